"""What commands print with `--json`: public keys. `schemas/run.schema.json` is made from here.

A key that is left out does not apply; a key that is null is not known yet.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import UNSET, Meta, UnsetType

from runbook.model.verdict import EXIT_CODES, INTERRUPTED_BY, Diagnosis, Finding

Word = Annotated[str, Meta(description="a verdict", extra_json_schema={"enum": sorted(EXIT_CODES)})]
Code = Annotated[
    int, Meta(description="the exit code", extra_json_schema={"enum": sorted({*EXIT_CODES.values(), *INTERRUPTED_BY.values()})})
]
Unix = Annotated[float, Meta(description="unix time, seconds")]


class StepRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One end of a step: on one host, of one attempt and loop item. `part` is left out for the main part."""

    id: str
    type: str
    host: str
    status: Literal["passed", "failed", "skipped", "unknown"]
    verdict: Annotated[Union[Word, None], Meta(description="null for a skipped step")]
    seconds: float
    kind: Union[str, UnsetType] = UNSET
    reason: Union[str, UnsetType] = UNSET
    item: Union[int, UnsetType] = UNSET
    ignored: Union[bool, UnsetType] = UNSET
    attempt: Union[int, UnsetType] = UNSET
    part: Union[Literal["rescue", "always", "cleanup"], UnsetType] = UNSET


class Cleanup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How cleanup went; none when there was nothing to clean up, or it has not begun."""

    status: Literal["passed", "failed", "none"]


class Transcript(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the run is written; a path is null when there is no such file."""

    dir: str
    events: str
    markdown: Union[str, None] = None
    html: Union[str, None] = None


class PostRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What came of one ticket of the playbook's `post:`. It never changes the verdict."""

    ticket: Annotated[str, Meta(description="as the playbook names it")]
    action: Literal["created", "updated", "sent", "failed"]
    url: Annotated[str, Meta(description="of the comment, where the tracker gives one")] = ""
    error: str = ""
    hint: str = ""


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run, as `run`, `cancel` and `show` print it. At most 32 KB, texts at most 2 KB each; `cut` names what went and its file.

    `verdict`, `kind` and `exit_code` are null while the run goes on; then `step`, `phase` and `moved` say where it is.
    """

    run: Union[str, None]
    playbook: Union[str, None]
    state: Literal["ended", "suspended", "running"]
    verdict: Union[Word, None]
    kind: Union[str, None]
    exit_code: Union[Code, None]
    reason: str
    steps: list[StepRow]
    findings: list[Finding]
    cleanup: Cleanup
    left_behind: list[str]
    next: Annotated[list[str], Meta(description="commands and changes to try next")]
    transcript: Transcript
    diagnosis: Annotated[Union[Diagnosis, UnsetType], Meta(description="of the step that decided")] = UNSET
    expires: Annotated[Union[Unix, UnsetType], Meta(description="when a keeper ends a suspended run, or what a run kept")] = UNSET
    posts: Annotated[Union[list[PostRow], UnsetType], Meta(description="`run`, `cancel`: one for each ticket of `post:`")] = UNSET
    step: Union[str, UnsetType, None] = UNSET
    phase: Union[str, UnsetType, None] = UNSET
    moved: Union[str, UnsetType] = UNSET
    stale: Annotated[
        Union[Literal["expired", "lost"], UnsetType, None],
        Meta(description="`show`: the journal is behind, since a suspension has expired or the controller has died"),
    ] = UNSET
    cut: Union[list[str], UnsetType] = UNSET


class StandsAt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run without a verdict: `run --wait-for` or `--detach`, `wait`, `cancel` while it goes on (exit 75), or its controller has died."""

    verdict: None = None
    state: Annotated[Literal["running", "lost"], Meta(description="lost: its controller has died, nobody works on it")]
    run: str
    step: Annotated[Union[str, None], Meta(description="that is running")]
    phase: Annotated[Union[str, None], Meta(description="of the server that it waits for")]
    moved: Annotated[str, Meta(description="what moved last")]
    next: list[str]


class EventsPage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`show --json --cursor N`: lines of the journal from N on. At most 32 KB, an event at most 4 KB; its `cut` names what went."""

    run: Union[str, None]
    state: Literal["ended", "suspended", "running"]
    stale: Union[Literal["expired", "lost"], None]
    events: list[dict[str, Any]]
    cursor: Annotated[int, Meta(description="for the next call")]
    more: Annotated[bool, Meta(description="there are more already")]


class Problem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One mistake; the place is null for one of the command line."""

    code: str
    severity: Literal["error", "warning"]
    file: Union[str, None]
    line: Union[int, None]
    col: Union[int, None]
    summary: str
    hint: Union[str, None]


class InvalidAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing ran: invalid is a usage error or an invalid playbook, exit code 2; refused was not confirmed, 8.

    `validate` prints it for valid ones too.
    """

    verdict: Literal["invalid", "passed", "refused"]
    diagnostics: list[Problem]


class DiagnoseAnswer(Diagnosis, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `diagnose --json` prints: the diagnosis, and the run that it is kept in. Without a run where the host was not reached."""

    verdict: Word
    run: Union[str, UnsetType] = UNSET
    transcript: Annotated[Union[str, UnsetType], Meta(description="path of the page")] = UNSET
    so_far: Annotated[Union[Diagnosis, UnsetType], Meta(description="of a look that was interrupted: what it would say of what it saw")] = (
        UNSET
    )


class UnclearAnswer(InvalidAnswer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`diagnose`: no server fits, or several do."""

    candidates: Annotated[list[dict[str, Any]], Meta(description="the servers that were found: pid, title, ports, age_s, profile, …")]
