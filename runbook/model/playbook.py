"""A playbook after parsing: what will run, where, and the place in the file that each part came from."""

from __future__ import annotations

import re
from typing import Any, Union

import msgspec

from runbook.model.diagnostic import Span
from runbook.model.units import Duration, Size


class Protect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What runbook must leave alone on a host: processes that are never ended (all keys hold), or files that are never written.

    `title` and `cmdline` are regular expressions; `port` and `pid_file` name a service: all that it started counts. `file` is a glob.
    """

    user: str = ""
    title: str = ""
    cmdline: str = ""
    port: Union[int, None] = None
    pid_file: str = ""
    file: str = ""
    why: str = ""

    def fault(self) -> str:
        """What is wrong with the rule; empty when nothing is."""
        about_processes = any((self.user, self.title, self.cmdline, self.port is not None, self.pid_file))
        if about_processes == bool(self.file):
            return "a rule of `protect:` is about processes (user, title, cmdline, port, pid_file) or about a `file:`"
        for key, text in (("title", self.title), ("cmdline", self.cmdline)):
            try:
                re.compile(text)
            except re.error as error:
                return f"`{key}: {text}` of a rule of `protect:` is no regular expression: {error}"
        return ""


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One place to run on: an inventory name, ssh alias, user@host[:port], `local` or `lab`, and how to get in there.

    `via` is a command prefix put before the helper's interpreter, as in `sudo -n -u svc`. On a host that is marked `production` or
    `shared`, what others would notice has to be confirmed.
    """

    target: str
    via: str | list[str] = ""
    python: str = ""
    gpus: list[int] | None = None
    vars: dict[str, Any] = {}
    protect: tuple[Protect, ...] = ()
    production: bool = False
    shared: bool = False


class Secret(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A secret by name. Its value comes from the environment of the controller, else from a file or from what a command prints there."""

    name: str
    required: bool = False
    file: str = ""
    command: list[str] = []


class Retry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Try a step again until it passes or the time is over. `until` is a bare expression; `verdicts` replaces the default list."""

    for_: Duration = msgspec.field(name="for")
    every: Duration = Duration(10)
    until: str | None = None
    verdicts: tuple[str, ...] = ("failed", "undecided", "unreachable", "resource_held")


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A declared input: what it must be, and its default unless it is required."""

    type: str = "any"
    default: Any = None
    required: bool = True
    choices: list[Any] = []
    help: str = ""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a variable has a value from: kind input, vars or vars_files; the value as it is written there."""

    kind: str
    value: Any
    span: Span


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """Keys that every step may carry. `timeout` is raw: text with a unit, or an expression."""

    name: str = ""
    host: Union[str, tuple[str, ...], None] = None
    when: str | None = None
    loop: Any = None
    timeout: str | None = None
    retry: dict[str, Any] | None = None
    vars: dict[str, Any] = {}
    ignore_errors: Union[bool, tuple[str, ...]] = False
    tags: tuple[str, ...] = ()


class StepNode(msgspec.Struct, frozen=True, kw_only=True, tag_field="node", tag="step"):
    """One step. `id` is the given one or `s07_wait_gpu_free`; `named` says which. `body` is the raw mapping, still templated."""

    id: str
    named: bool
    type: str
    body: dict[str, Any]
    common: Common
    span: Span
    spans: dict[str, Span] = {}
    """Places of the values in `body`, by dotted path as in "probes.0.at"; and of common keys, as in "~when"."""
    defaulted: tuple[str, ...] = ()
    """Keys whose values the file's `defaults` gave."""


class BlockNode(msgspec.Struct, frozen=True, kw_only=True, tag_field="node", tag="block"):
    """A block with its rescue and always steps."""

    id: str
    steps: tuple[Node, ...]
    rescue: tuple[Node, ...] = ()
    always: tuple[Node, ...] = ()
    common: Common = Common()
    span: Span = Span("", 0, 0)
    spans: dict[str, Span] = {}


class IncludeNode(BlockNode, frozen=True, kw_only=True, tag="include"):
    """The steps of another file, in a world of names of their own. Their ids begin with this one's and a dot."""

    file: str
    inputs: dict[str, Input] = {}
    outputs: dict[str, Any] = {}
    """As written; their expressions are those of the file."""
    vars: dict[str, Any] = {}
    """Defaults of its inputs, its variables and those of its vars files."""
    given: dict[str, Any] = {}
    """Values of its inputs; their expressions are those of the including file."""
    roles: dict[str, tuple[str, ...]] = {}
    """Each role of the file as roles of the run."""


Node = Union[StepNode, BlockNode, IncludeNode]


class Playbook(msgspec.Struct, frozen=True, kw_only=True):
    """A checked playbook. `hosts` maps a role to its targets; `text` is the exact source, kept for the journal."""

    file: str
    text: str
    name: str
    description: str = ""
    hosts: dict[str, tuple[Target, ...]] = {}
    inputs: dict[str, Input] = {}
    outputs: dict[str, Any] = {}
    vars: dict[str, Any] = {}
    """Defaults of inputs, `vars` and those of the vars files."""
    origins: dict[str, tuple[Origin, ...]] = {}
    """Each variable's values in the file and its vars files, lowest first: the last one counts."""
    vars_files: tuple[str, ...] = ()
    secrets: tuple[Secret, ...] = ()
    steps: tuple[Node, ...] = ()
    always: tuple[Node, ...] = ()
    post: tuple[str, ...] = ()
    """Tickets that receive the transcript: addresses, or `env:NAME`."""
    timeout: Duration | None = None
    suspend_for: Duration = Duration(7200)
    collect: bool = True
    """Whether the evidence bundle of a server is taken when a step that watches it does not pass."""
    files: dict[str, str] = {}
    """Texts of what it includes and of vars files, by path."""
    includes: dict[str, dict[str, str]] = {}
    """For each file that includes others: the name that it says, and the path that this means."""
    spans: dict[str, Span] = {}


DEFAULT_CAP = Size(256 * 2**10)
"""Bytes of any host text kept in memory as its head; four times that as its tail."""
