"""The journal's events: a closed union. `events.jsonl` is the only truth of a run, one event a line.

Every action emits started and then exactly one end:

    run_started ─ host_connected* ─ step_started ─ (action | sample | …)* ─ step_ended ─ … ─ run_suspended | run_ended
                                        └── its controller dies, or the run is suspended ── resumed ─ …
"""

from __future__ import annotations

from typing import Any, Union

import msgspec

from runbook.model.question import Question
from runbook.model.sample import Sample
from runbook.model.usual import MeasuredStart
from runbook.model.verdict import Diagnosis, Finding

FORMAT = 1


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", omit_defaults=True):
    """What every event has: `t`, unix seconds on the controller; `n`, its line number from 0. The journal sets both."""

    t: float = 0.0
    n: int = -1


class RunStarted(Event, frozen=True, kw_only=True, tag="run_started"):
    """The header. Holds what is needed to go on, cancel or re-judge without the playbook file."""

    format: int
    run: str
    version: str
    playbook: str
    playbook_text: str
    playbook_sha256: str
    name: str
    targets: dict[str, list[dict[str, Any]]]
    vars: dict[str, Any]
    overrides: dict[str, Any] = {}
    secrets: list[str] = []
    check: bool = False
    no_suspend: bool = False
    keep: bool = False
    reuse: str = ""
    """The run whose servers and patches may be taken over."""
    argv: list[str] = []
    files: dict[str, str] = {}
    """Texts of included playbooks and vars files, by path."""
    includes: dict[str, dict[str, str]] = {}
    """For each file that includes others: the name that it says, and the path that this meant."""
    tags: list[str] = []
    skip_tags: list[str] = []
    start_at: str = ""
    controller: dict[str, Any] = {}
    """host, user, pid, start, boot_id of the controller: its lock; cwd, where its hosts.yaml was."""


class HostConnected(Event, frozen=True, kw_only=True, tag="host_connected"):
    """A host answered. `facts` are the helper's: hostname, user, python, boot_id, state_dir, clock offset."""

    host: str
    address: str
    facts: dict[str, Any]
    seconds: float


class StepStarted(Event, frozen=True, kw_only=True, tag="step_started"):
    """A step begins on one target. `box_s` is its effective time box, `limited_by` what set it when not the step itself."""

    step: str
    type: str
    name: str = ""
    host: str = ""
    attempt: int = 1
    item: int | None = None
    box_s: float | None = None
    limited_by: str | None = None
    part: str = "main"
    """main, rescue, always or cleanup."""
    marks: dict[str, Any] = {}
    """Where each known log stood: path -> {inode, size}."""


class StepEnded(Event, frozen=True, kw_only=True, tag="step_ended"):
    """A step's one end on one target. `result` is what `steps.<id>` gives to expressions."""

    step: str
    type: str
    host: str = ""
    attempt: int = 1
    item: int | None = None
    status: str
    verdict: str | None
    kind: str | None = None
    reason: str = ""
    seconds: float
    result: dict[str, Any] = {}
    diagnosis: Diagnosis | None = None
    rescued: bool = False
    ignored: bool = False
    part: str = "main"
    marks: dict[str, Any] = {}


class ActionStarted(Event, frozen=True, kw_only=True, tag="action_started"):
    """One act on a host begins: launch, signal, write, restore, connect. `id` pairs it with its end."""

    id: str
    step: str
    host: str
    action: str
    detail: dict[str, Any] = {}


class ActionEnded(Event, frozen=True, kw_only=True, tag="action_ended"):
    """The end of an act. `ok` false carries the error's sentence."""

    id: str
    step: str
    host: str
    action: str
    ok: bool
    detail: dict[str, Any] = {}
    error: str = ""


class WaitBegan(Event, frozen=True, kw_only=True, tag="wait_began"):
    """A wait on a server begins: the question and the profile, as plain data, that its samples are judged by. Enough to judge again."""

    step: str
    host: str
    question: Question
    profile: dict[str, Any]


class SampleTaken(Event, frozen=True, kw_only=True, tag="sample"):
    """An observation that a verdict may rest on. Written when it has settled: all of the last 120 s of a wait, one in 30 s before.

    Threads that are as in the sample before are left out; `gone`: by pid, threads that are not there any more.
    """

    step: str
    sample: Sample
    gone: dict[str, list[int]] = {}


class WaitEnded(Event, frozen=True, kw_only=True, tag="wait_ended"):
    """The answer of a wait, before its step makes anything of it.

    `ends`: why it had to answer: box, link (the host is gone for good), suspect, or empty: it was certain. `now`: the time at which it was
    judged, controller unix s.
    """

    step: str
    host: str
    verdict: str
    kind: str | None = None
    rule: str
    now: float
    ends: str = ""


class StartMeasured(Event, frozen=True, kw_only=True, tag="start_measured"):
    """How long a start took that came to its end: what later starts of the same command are shown beside."""

    step: str
    host: str
    start: MeasuredStart


class Suspected(Event, frozen=True, kw_only=True, tag="suspected"):
    """A state of a wait that goes on, never a verdict: what looks like a hang since `since`, and which looks would decide.

    An empty `kind`: the suspicion is gone.
    """

    step: str
    host: str
    kind: str
    text: str
    since: float = 0.0
    want: tuple[str, ...] = ()


class PhaseReached(Event, frozen=True, kw_only=True, tag="phase"):
    """A server (or one rank of it) entered a phase; with `ended` the rank left it and is in none until its next.

    `label` is the rank's own name in the log ("DP0 TP1"); a phase of the server as a whole has neither label nor rank.
    """

    step: str
    server: str
    phase: str
    rank: int | None = None
    line: str = ""
    label: str = ""
    ended: bool = False

    @property
    def whole(self) -> bool:
        """Whether it is about the server as a whole, not about one of its ranks."""
        return self.rank is None and not self.label


class Moved(Event, frozen=True, kw_only=True, tag="moved"):
    """Where a wait stands, for people: at most one every 10 s. `text` names what moved last."""

    step: str
    host: str
    phase: str | None
    text: str
    elapsed_s: float
    box_s: float | None = None


class Found(Event, frozen=True, kw_only=True, tag="finding"):
    """A finding, as it was noticed."""

    finding: Finding


class EvidenceSaved(Event, frozen=True, kw_only=True, tag="evidence"):
    """A file in the run folder's evidence/."""

    step: str
    file: str
    bytes: int
    about: str = ""


class Owed(Event, frozen=True, kw_only=True, tag="owed"):
    """Something on a host that must be undone: kind launch, patch or keeper. Written before it exists."""

    id: str
    kind: str
    step: str
    host: str
    detail: dict[str, Any] = {}


class Settled(Event, frozen=True, kw_only=True, tag="settled"):
    """What was owed is done: how is stopped, restored, kept, gone or taken over, then by the run `by`."""

    id: str
    how: str
    by: str = ""


class Registered(Event, frozen=True, kw_only=True, tag="registered"):
    """A launch or a patch exists, and this is how later steps refer to it. kind is launch or patch; data is its plain form."""

    kind: str
    step: str
    host: str
    data: dict[str, Any]


class VarsSet(Event, frozen=True, kw_only=True, tag="vars_set"):
    """A `set` step changed variables for the rest of the run."""

    step: str
    values: dict[str, Any]


class Interrupted(Event, frozen=True, kw_only=True, tag="interrupted"):
    """A signal or a cancel arrived: SIGINT, SIGTERM, cancel."""

    by: str
    exit_code: int = 130


class MainEnded(Event, frozen=True, kw_only=True, tag="main_ended"):
    """The main part is over; cleanup begins, or the run is suspended."""

    verdict: str
    failed_step: str | None = None


class RunSuspended(Event, frozen=True, kw_only=True, tag="run_suspended"):
    """Server, patch and `always` stay as they are until `expires` (unix s), when the keeper cleans up."""

    verdict: str
    kind: str | None
    exit_code: int
    reason: str
    step: str
    expires: float
    left_behind: list[str] = []
    next: list[str] = []


class Resumed(Event, frozen=True, kw_only=True, tag="resumed"):
    """Another controller goes on with the run. `in_flight`: what had begun and had no end when the one before died."""

    controller: dict[str, Any]
    in_flight: list[str] = []
    redo: list[str] = []
    skip: list[str] = []


class RunEnded(Event, frozen=True, kw_only=True, tag="run_ended"):
    """The end. `cleanup` is passed, failed or none."""

    verdict: str
    kind: str | None = None
    exit_code: int
    reason: str
    failed_step: str | None = None
    cleanup: str = "none"
    left_behind: list[str] = []
    next: list[str] = []
    seconds: float = 0.0
    kept_until: float | None = None
    """Of a run that keeps what it made: when its keepers end it (unix s)."""


AnyEvent = Union[
    RunStarted,
    HostConnected,
    StepStarted,
    StepEnded,
    ActionStarted,
    ActionEnded,
    WaitBegan,
    WaitEnded,
    SampleTaken,
    StartMeasured,
    Suspected,
    PhaseReached,
    Moved,
    Found,
    EvidenceSaved,
    Owed,
    Settled,
    Registered,
    VarsSet,
    Interrupted,
    MainEnded,
    RunSuspended,
    Resumed,
    RunEnded,
]
