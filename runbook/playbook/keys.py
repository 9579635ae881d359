"""The keys of a playbook, of a step and of a block, as structs: the checks and the published schema both come from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Union, get_args

import msgspec
from msgspec import Meta

from runbook.model.fields import Expression
from runbook.model.playbook import Secret, Target
from runbook.model.units import Duration, TimeBox

VerdictWord = Literal[
    "failed",
    "undecided",
    "unreachable",
    "resource_held",
    "slow",
    "hung",
    "crashed",
    "wrong_check",
    "wrong_server",
    "invalid_experiment",
    "refused",
    "error",
]


InputType = Literal["any", "text", "integer", "number", "boolean", "list", "mapping", "duration", "size", "step"]
INPUT_TYPES: tuple[str, ...] = get_args(InputType)


class InputKeys(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An input; without `default` it must be given."""

    type: Annotated[InputType, Meta(description="what it must be; `step` is the id of a step of the including playbook")] = "any"
    default: Annotated[Any, Meta(description="what it is when it is not given [none: it is required]")] = None
    choices: Annotated[list[Any], Meta(description="the only values that it may have [any]")] = []
    help: Annotated[str, Meta(description="one line for people")] = ""


class OutputKeys(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An output, with a line for people."""

    value: Annotated[Any, Meta(description="its value, as a rule an expression over this file's steps")]
    help: Annotated[str, Meta(description="one line for people")] = ""


class PlaybookKeys(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A runbook playbook: steps on hosts, and what must be true."""

    runbook: Annotated[Literal[1], Meta(description="format version; always 1")]
    name: Annotated[str, Meta(description="what this playbook is called [the file's name]")] = ""
    description: Annotated[str, Meta(description="what question it answers")] = ""
    inputs: Annotated[dict[str, InputKeys], Meta(description="what may be given from outside: read as variables")] = {}
    outputs: Annotated[
        dict[str, Union[str, OutputKeys]], Meta(description="what others read as `steps.<id>.NAME` when they include this playbook")
    ] = {}
    defaults: Annotated[
        dict[str, dict[str, Any]], Meta(description="step type: values of its keys, and of `timeout`, for steps that leave them out")
    ] = {}
    hosts: Annotated[
        dict[str, Union[str, Target, list[Union[str, Target]]]],
        Meta(description="role: a target or a list of them (`local`, `lab`, an ssh alias, `user@host:port`)"),
    ] = {}
    vars: Annotated[dict[str, Any], Meta(description="variables and their defaults; `-e name=value` replaces them")] = {}
    vars_files: Annotated[list[str], Meta(description="YAML files of more variables, relative to this file")] = []
    secrets: Annotated[list[Union[str, Secret]], Meta(description="environment variables whose values are masked everywhere")] = []
    steps: Annotated[list[Any], Meta(description="what happens, in order")]
    always: Annotated[list[Any], Meta(description="steps that run at the end, whatever happened; not while the run is suspended")] = []
    post: Annotated[
        Union[str, list[str]],
        Meta(description="tickets that get the transcript at the end, failed or not: addresses as for `runbook post`, or `env:NAME`"),
    ] = []
    timeout: Annotated[Union[TimeBox, None], Meta(description="time box of the whole main part [none]")] = None
    suspend_for: Annotated[Duration, Meta(description="how long a suspended run keeps its server and patches")] = Duration(7200)
    collect: Annotated[
        Literal["auto", "off"], Meta(description="auto: take a server's evidence bundle when a step that watches it does not pass")
    ] = "auto"


class RetryKeys(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Try a step again until it passes or the time is over."""

    for_: Annotated[Duration, Meta(description="how long to go on trying")] = msgspec.field(name="for")
    every: Annotated[Duration, Meta(description="pause between two attempts")] = Duration(10)
    until: Annotated[Union[Expression, None], Meta(description="a bare expression that must be true as well")] = None
    verdicts: Annotated[
        list[VerdictWord], Meta(description="the verdicts that are tried again [failed, undecided, unreachable, resource_held]")
    ] = []


class CommonKeys(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Keys that every step may carry, beside its step type."""

    id: Annotated[Union[str, None], Meta(description="name for expressions and other steps: `steps.<id>`")] = None
    name: Annotated[str, Meta(description="one line for people")] = ""
    host: Annotated[Union[str, list[str], None], Meta(description="a role, a list of roles, or `all` [the only role]")] = None
    tags: Annotated[Union[str, list[str]], Meta(description="words by which `run --tags` and `--skip-tags` choose")] = []
    when: Annotated[Union[bool, Expression, None], Meta(description="a bare expression: the step runs only when it is true")] = None
    loop: Annotated[Union[list[Any], None], Meta(description="run once per item, as `item` and `index`; ends at the first failure")] = None
    timeout: Annotated[Union[TimeBox, None], Meta(description="time box [each step type has its own]")] = None
    retry: Annotated[Union[RetryKeys, None], Meta(description="try again until it passes or the time is over")] = None
    vars: Annotated[dict[str, Any], Meta(description="variables for this step alone")] = {}
    ignore_errors: Annotated[Union[bool, list[VerdictWord]], Meta(description="go on after `failed`, or after the verdicts named")] = False


class BlockKeys(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Steps that belong together."""

    block: Annotated[list[Any], Meta(description="the steps")]
    rescue: Annotated[
        list[Any], Meta(description="steps that run when the block failed or is unknown; if they pass, so does the block")
    ] = []
    always: Annotated[list[Any], Meta(description="steps that run after the block, whatever happened")] = []


NOT_ON_BLOCKS = frozenset({"loop", "retry", "ignore_errors"})
"""Keys that are about one step's outcome; a block has `rescue` for that."""
COMMON = tuple(CommonKeys.__struct_fields__)
BLOCK = tuple(BlockKeys.__struct_fields__)
TOP = tuple(PlaybookKeys.__struct_fields__)
