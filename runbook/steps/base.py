"""What a step type is: a frozen struct whose fields are its YAML keys, and `run`.

A new step type is one file here, one line in `steps/__init__.py`, one test file. Schema, reference page and completion come
from the struct: the docstring is the first line of its page, each field carries its description.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import msgspec

from runbook.hosts.base import CancelToken, Host, HostFacts, LaunchState, Mark, UndoRecord, Unreachable
from runbook.model.clock import Clock
from runbook.model.profile import Profile
from runbook.model.question import Question
from runbook.model.sample import Sample
from runbook.model.usual import PhaseTime, Usual
from runbook.model.verdict import Diagnosis

if TYPE_CHECKING:  # what judges is loaded when something is watched
    from runbook.diagnose.view import View
    from runbook.steps.kept import Reusable


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a step ended on one target. `fields` is what `steps.<id>.<name>` gives to expressions: plain data."""

    verdict: str
    fields: dict[str, Any] = {}
    reason: str = ""
    kind: str | None = None
    diagnosis: Diagnosis | None = None


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    """A server as later steps refer to it: one that this run started, or one that was up and is attached.

    `run`: whose keeper started it. None is this run; empty is nobody's: then nobody records how it ends.
    """

    step: str
    host: str
    state: LaunchState
    profile: Profile
    port: int | None
    env: dict[str, str]
    prelude: str = ""
    ranks: int | None = None
    box_note: str = ""
    run: str | None = None
    taken: bool = False
    """Taken over from `run`, which had kept it: it is this run's to end, though that run's keeper is its parent."""
    log_note: str = ""
    """Why there is no log, where `state.log` is empty."""

    @property
    def attached(self) -> bool:
        """Whether it was up already: then it is never stopped by us."""
        return self.run is not None and not self.taken


class Patched(msgspec.Struct, frozen=True, kw_only=True):
    """A patch this run wrote, as restore and expect_probe refer to it.

    `marker` is unique to run and patch; `side_file` is where its probes write, one JSON line a hit.
    """

    step: str
    host: str
    record: UndoRecord
    path: str
    module: str
    marker: str
    side_file: str
    launch: str | None
    probes: tuple[dict[str, Any], ...]
    written: float = 0.0
    """Host unix time just before the file was replaced: a process that started earlier cannot have loaded it."""


class Reentry(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal says of an attempt that was in flight when its controller died, and is entered again.

    `registered`: its launch or patch is on record. `acted`: the detail of each act that had begun, by name.
    """

    registered: bool = False
    vars_set: bool = False
    redo: bool = False
    """The author wants it done again, if nobody knows how the first one ended."""
    acted: dict[str, dict[str, Any]] = {}


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time and of each known log: marks by path; `end` null is now. Times are controller unix seconds."""

    since: float
    until: float | None
    begin: dict[str, Mark]
    end: dict[str, Mark] | None


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The run: its id and its folder on the controller."""

    id: str
    dir: str
    suspend_for_s: float = 7200.0


class Goal(Protocol):
    """What `watch` waits for. The engine owns the loop, the time box, the journal and Ctrl-C; a goal only looks and judges."""

    every_s: float
    """Seconds between looks."""

    def look(self) -> Sample:
        """One observation: at most a few round trips, each bounded. HostError is turned into a sample with an Absent link."""
        ...

    def judge(self, samples: Sequence[Sample], now: float, *, final: bool) -> Diagnosis | None:
        """Pure: an answer that is certain, or None to go on. With `final` the box has ended and it must answer."""
        ...

    def moved(self, samples: Sequence[Sample]) -> tuple[str | None, str]:
        """(phase, what moved last) for people."""
        ...


@runtime_checkable
class Judged(Protocol):
    """A goal whose samples `judge` decides, so that its wait can be judged again from the journal, and suspected meanwhile."""

    profile: Profile

    def question(self, final: bool) -> Question:
        """What the wait wants to know. But for `final` it stays the same."""
        ...

    def view(self, samples: Sequence[Sample], now: float) -> View:
        """What is asked of these samples while the wait goes on; the same one that judged them."""
        ...

    def want(self, looks: tuple[str, ...]) -> None:
        """A suspicion asks for these looks: full, stacks, collectives, kernel. The next samples bring them."""
        ...

    def inquiring(self) -> bool:
        """Whether a look that was wanted is still under way."""
        ...


class RankPhase(NamedTuple):
    """A rank entered a phase or, with `ended`, left it. `t` is the controller time at which the mark was read; `label` as in the log."""

    t: float
    phase: str
    label: str
    rank: int | None
    ended: bool = False


@runtime_checkable
class TellsRanks(Protocol):
    """A goal that can tell the ranks of its server apart."""

    def rank_phases(self) -> Sequence[RankPhase]:
        """All so far, in the order in which they were read; the list only grows."""
        ...


class StepContext(Protocol):
    """All that a step may touch. One per step, target and attempt."""

    step: str
    """Id of the step."""
    run: RunInfo
    clock: Clock
    cancel: CancelToken
    reentry: Reentry | None
    """This attempt had begun before, under a controller that died. None: it begins now."""
    check_mode: bool
    """Look, change nothing, report "would …"."""
    diff: bool
    """A step that changes a text gives the change as the result `diff`."""
    can_ask: bool
    """Whether somebody sits at a terminal."""

    @property
    def reuse(self) -> Reusable | None:
        """The run whose servers and patches may be taken over; connects at its first use."""
        ...

    @property
    def host(self) -> Host:
        """The step's host; connects at its first use. Raises Unreachable."""
        ...

    once: str
    """The name of this attempt in its run, on this host: the same when a later controller goes on with it."""

    def reach(self, lost: Unreachable, helper: HostFacts | None = None) -> str:
        """Reach the host again after its link was lost, by the end of the box; from any thread. Raises Unreachable.

        Answers what became of the `helper` of that link: told (it left records of all it was given), gone, stuck, rebooted, or
        empty: not known.
        """
        ...

    def remaining_s(self) -> float:
        """Seconds left in the effective time box."""
        ...

    def limited_by(self) -> str | None:
        """What set the box when it was not the step itself: "block", "playbook"."""
        ...

    def watch(self, goal: Goal) -> Diagnosis:
        """Wait until `goal` is judged; the only loop that waits. Never raises for what it observes."""
        ...

    def evaluate(self, expression: str) -> Any:
        """Evaluate a bare expression in the run's scope: a `lang.expressions.Evaluation` (value or unknown, parts for people)."""
        ...

    def action(self, name: str, **detail: Any) -> Any:
        """Context manager for one act on the host: `with ctx.action("launch", argv=…) as done: done(pid=…)`. Emits started and
        exactly one end; an exception ends it as failed and goes on."""
        ...

    def find(self, code: str, text: str) -> None:
        """Record a finding."""
        ...

    def evidence(self, name: str, data: bytes | Iterable[bytes], about: str = "") -> str:
        """Save a file in the run's evidence/, masked; answers its path relative to the run folder. A large one comes in pieces."""
        ...

    def owe(self, id: str, kind: str, **detail: Any) -> None:
        """Write down what must be undone, before it exists. Kinds: launch, patch, keeper."""
        ...

    def settle(self, id: str, how: str) -> None:
        """What was owed is done."""
        ...

    def keep(self, thing: Launched | Patched) -> None:
        """Register a launch or a patch so that later steps can refer to it."""
        ...

    def set_vars(self, values: dict[str, Any]) -> None:
        """Change variables for the rest of the run."""
        ...

    def masked(self, text: str | None) -> str | None:
        """A text as the journal has it: without secrets."""
        ...

    def launched(self, step: str) -> Launched | None:
        """The launch of that step on this host; None when it never happened."""
        ...

    def launches(self) -> tuple[Launched, ...]:
        """All servers of this run on this host, launched or attached, oldest first."""
        ...

    def usual(self, launched: Launched) -> Usual | None:
        """What earlier starts of the same command took here; None when none is known."""
        ...

    def measured(self, launched: Launched, ready_s: float, phases: Sequence[PhaseTime]) -> None:
        """Record how long this start took, for later ones."""
        ...

    def patched(self, step: str) -> Patched | None:
        """The patch of that step on this host; None when it never happened."""
        ...

    def patches(self) -> tuple[Patched, ...]:
        """All patches of this run on this host, oldest first, not yet restored."""
        ...

    def forward_launch(self, step: str | None) -> dict[str, Any] | None:
        """For patch.for: the templated launch body (command, cwd, env, prelude, python) of that step, or of the only launch on this
        host when `step` is None. Values that depend on later steps are an error found by validate."""
        ...

    def window(self, since: str, until: str | None = None) -> Window:
        """The window from `since` (a step id, or "start") to the end of `until` + 2 s, or to now."""
        ...

    def watch_log(self, path: str) -> None:
        """Note this log at the start of each step from now on."""
        ...

    def profile(self, name: str) -> Profile:
        """A profile by name."""
        ...

    def known_profiles(self) -> Sequence[Profile]:
        """All profiles that are known, to guess which one fits."""
        ...

    def protected_runs(self) -> frozenset[str]:
        """Run ids that are ours: this run and none other."""
        ...

    def ask(self, text: str, seconds: float) -> str | None:
        """A line that somebody types after `text`; None when nobody does in that time. Only where `can_ask`. Raises Cancelled."""
        ...

    def progress(self, text: str, phase: str | None = None) -> None:
        """Tell people what is going on; at most one event every 10 s is kept."""
        ...


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every step type."""

    TYPE: ClassVar[str] = ""
    SHORTHAND: ClassVar[str | None] = None
    """The field that a bare value (not a mapping) stands for."""
    TIMEOUT: ClassVar[str] = "2m"
    """Default time box."""
    RESULTS: ClassVar[dict[str, str]] = {}
    """Result fields and what they mean; `steps.x.<other>` is a static error."""
    EXAMPLE: ClassVar[str] = ""
    """A runnable YAML step."""
    NEEDS_HOST: ClassVar[bool] = True
    """False for steps that only compute (assert, set)."""
    FREE: ClassVar[bool] = False
    """The whole mapping is free-form and arrives in the field named by SHORTHAND (set)."""
    CHANGES: ClassVar[bool] = False
    """It uses the host's GPUs, or changes what those who use them run: the run must hold the host's lease."""
    HOLDS: ClassVar[bool] = False
    """Its command goes on when the controller is lost: the host is asked for its end before it counts as unknown."""
    RESUME: ClassVar[str] = "again"
    """In flight when the controller died. again: enter it anew, for it only looks. recheck: it asks the host what was done, by
    `ctx.reentry`. unknown: nobody can tell, so the author decides."""
    ENDS: ClassVar[bool] = False
    """It ends what the run made: left out of the last `always` by `run --keep`."""
    SUSPENDS: ClassVar[bool] = False
    """Ending slow or undecided on a server this run launched suspends the run (wait_healthy, request)."""

    @classmethod
    def on_resume(cls, body: Mapping[str, Any]) -> str:
        """RESUME of a step with this body, as written."""
        return cls.RESUME

    @classmethod
    def disturbs(cls, body: dict[str, Any]) -> str:
        """What others on the host would notice of a step with this body, still with expressions in it; empty when nothing."""
        return ""

    def problems(self) -> list[tuple[str, str, str]]:
        """Static mistakes that types cannot say: (dotted path, summary, hint). Called with expressions still in the text fields."""
        return []

    def plan(self) -> list[str]:
        """What it would do, one line an act, for `runbook plan`."""
        return []

    def run(self, ctx: StepContext) -> StepResult:
        """Do it. Raises HostError for the host; the engine turns that into a verdict."""
        raise NotImplementedError


Printer = Callable[[str], None]
