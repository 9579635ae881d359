"""A small table of step types, so that these tests pin the checks and not what the real step types happen to take."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Union

import msgspec
from msgspec import Meta

from runbook.model.fields import Expression, ForwardLaunchRef, LaunchRef, ProfileName, PythonSource, Regex, ShellText, StepRef
from runbook.model.units import Duration, Rung, Size
from runbook.steps.include import Include


class Base(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the checks read of a step type."""

    TYPE: ClassVar[str] = ""
    SHORTHAND: ClassVar[str | None] = None
    TIMEOUT: ClassVar[str] = "2m"
    RESULTS: ClassVar[dict[str, str]] = {}
    EXAMPLE: ClassVar[str] = ""
    NEEDS_HOST: ClassVar[bool] = True
    FREE: ClassVar[bool] = False

    @classmethod
    def disturbs(cls, body: dict[str, Any]) -> str:
        return ""

    def problems(self) -> list[tuple[str, str, str]]:
        return []

    def plan(self) -> list[str]:
        return []


class Start(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start a server."""

    TYPE: ClassVar[str] = "launch"
    RESULTS: ClassVar[dict[str, str]] = {"pid": "of the process", "log": "its log"}
    EXAMPLE: ClassVar[str] = "launch: {command: [server]}"

    command: Annotated[Union[ShellText, list[Union[str, int]]], Meta(description="what to start")]
    env: Annotated[dict[str, str], Meta(description="variables to add")] = {}
    profile: Annotated[ProfileName, Meta(description="engine profile")] = "generic"
    port: Annotated[Union[Annotated[int, Meta(ge=1, le=65535)], None], Meta(description="where it listens")] = None
    at_end: Annotated[Literal["stop", "keep"], Meta(description="what becomes of it")] = "stop"
    settle: Annotated[Duration, Meta(description="how long it must live")] = Duration(1)

    def plan(self) -> list[str]:
        return [f"start {self.command} for {self.settle}"]


class Match(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All keys must hold."""

    cmdline: Annotated[Union[Regex, None], Meta(description="searched in argv")] = None
    port: Annotated[Union[int, None], Meta(description="listens there")] = None


class Stop(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stop processes."""

    TYPE: ClassVar[str] = "stop"
    RESULTS: ClassVar[dict[str, str]] = {"gone": "those that are gone"}
    EXAMPLE: ClassVar[str] = "stop: {match: {cmdline: server}}"

    match: Annotated[Union[Match, list[Match], None], Meta(description="what to look for")] = None
    step: Annotated[Union[LaunchRef, None], Meta(description="the launch to stop")] = None
    ladder: Annotated[list[Rung], Meta(description="signals")] = []
    free: Annotated[Union[Size, None], Meta(description="memory to reach")] = None
    tree: Annotated[bool, Meta(description="descendants too")] = True

    def problems(self) -> list[tuple[str, str, str]]:
        if (self.match is None) == (self.step is None):
            return [("", "`stop` needs one of `match` and `step`", "write for example `step: server`")]
        matches = self.match if isinstance(self.match, list) else [self.match or Match(port=1)]
        return [("match", "an empty match matches everything", "name a port") for match in matches if match == Match()]

    def plan(self) -> list[str]:
        return [f"stop {self.step or self.match}"]


class Patch(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change a file of a launch that may come later."""

    TYPE: ClassVar[str] = "patch"
    RESULTS: ClassVar[dict[str, str]] = {"path": "of the file"}
    EXAMPLE: ClassVar[str] = "patch: {file: /srv/a.py, show: [x + 1]}"

    for_: Annotated[Union[ForwardLaunchRef, None], Meta(description="the launch")] = msgspec.field(name="for", default=None)
    file: Annotated[str, Meta(description="path")] = ""
    show: Annotated[list[PythonSource], Meta(description="what to write down")] = []
    since: Annotated[StepRef, Meta(description="from then on")] = "start"


class Shell(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run a script."""

    TYPE: ClassVar[str] = "run"
    SHORTHAND: ClassVar[str | None] = "shell"
    TIMEOUT: ClassVar[str] = "10m"
    RESULTS: ClassVar[dict[str, str]] = {"exit": "exit code", "stdout": "text"}
    EXAMPLE: ClassVar[str] = "run: echo hello"

    shell: Annotated[Union[ShellText, None], Meta(description="a script")] = None
    argv: Annotated[Union[list[str], None], Meta(description="a command")] = None
    env: Annotated[dict[str, str], Meta(description="variables to add")] = {}

    def plan(self) -> list[str]:
        return [f"run {self.shell or self.argv}"]


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must be true."""

    that: Annotated[Expression, Meta(description="a bare expression")]
    because: Annotated[str, Meta(description="why")] = ""


class Check(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Check expressions."""

    TYPE: ClassVar[str] = "assert"
    SHORTHAND: ClassVar[str | None] = "that"
    NEEDS_HOST: ClassVar[bool] = False
    RESULTS: ClassVar[dict[str, str]] = {"claims": "each of them"}
    EXAMPLE: ClassVar[str] = "assert: 1 < 2"

    that: Annotated[Union[Expression, Claim, list[Union[Expression, Claim]]], Meta(description="expressions")]


class Put(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Set variables."""

    TYPE: ClassVar[str] = "set"
    SHORTHAND: ClassVar[str | None] = "values"
    FREE: ClassVar[bool] = True
    NEEDS_HOST: ClassVar[bool] = False
    EXAMPLE: ClassVar[str] = "set: {a: 1}"

    values: Annotated[dict[str, Any], Meta(description="name to value")]


TABLE: dict[str, Any] = {step.TYPE: step for step in (Start, Stop, Patch, Shell, Check, Put, Include)}
PROFILES = frozenset({"generic", "sglang"})
