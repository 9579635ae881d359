"""A whole StepContext over one host: real helper, real clock, a folder for the run. For tests of single steps, without the engine.

ctx = LocalContext(host, tmp_path)
result = ctx.at("chat").do(Grep(log="server", pattern="x"))
"""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from runbook.engine.watch import watch
from runbook.hosts.base import Cancelled, CancelToken, Host, HostFacts, Unreachable
from runbook.model.clock import Clock, SystemClock
from runbook.model.event import Event
from runbook.model.profile import Profile
from runbook.model.sample import Sample
from runbook.model.usual import PhaseTime, Usual
from runbook.model.verdict import Diagnosis
from runbook.steps.base import Goal, Launched, Patched, Reentry, RunInfo, Step, StepResult, Window
from runbook.steps.kept import Reusable

AFTER_S = 0.2
"""A window goes on this long after the step that ends it: shorter than in a run, so that tests do not wait."""


@dataclasses.dataclass
class Span:
    """When a step ran, and where each known log stood at its two ends."""

    since: float
    begin: dict[str, Any]
    until: float | None = None
    end: dict[str, Any] | None = None


class _Noting:
    """A goal whose samples are noted as they are taken."""

    def __init__(self, goal: Goal, ctx: LocalContext) -> None:
        self._goal, self._ctx = goal, ctx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._goal, name)

    def look(self) -> Sample:
        """The goal's look."""
        sample = msgspec.structs.replace(self._goal.look(), t=self._ctx.clock.now())
        self._ctx.samples.append(sample)
        return sample


class LocalContext:
    """Implements `steps.base.StepContext`; what a step wrote down can be read afterwards from the lists."""

    def __init__(
        self,
        host: Host,
        folder: Path,
        *,
        run: str = "",
        box_s: float = 10.0,
        check_mode: bool = False,
        profiles: dict[str, Profile] | None = None,
        launches: dict[str, dict[str, Any]] | None = None,
        clock: Clock | None = None,
        scope: dict[str, Any] | None = None,
    ) -> None:
        self.host = host
        self.target = host.name
        self.run = RunInfo(id=run or f"t{secrets.token_hex(6)}", dir=str(folder))  # what carries its mark is ended with it
        self.clock: Clock = clock or SystemClock()
        self.cancel = CancelToken()
        self.check_mode = check_mode
        self.can_ask = False
        self.diff = False
        self.reentry: Reentry | None = None
        self.reuse: Reusable | None = None
        self.step = self.once = "s00"
        self.box_s = box_s
        self.began = self.clock.monotonic()
        self.scope = scope or {}
        self.profiles = profiles or {}
        self.bodies = launches or {}
        """Templated bodies of launches that may come later, by step id."""
        self.logs: list[str] = []
        self.spans: dict[str, Span] = {}
        self.kept: dict[tuple[type, str], Any] = {}
        self.owed: dict[str, dict[str, Any]] = {}
        self.settled: dict[str, str] = {}
        self.order: list[str] = []
        """What was owed, begun, ended and settled, in this order."""
        self.findings: list[tuple[str, str]] = []
        self.samples: list[Sample] = []
        self.events: list[Event] = []
        self.set: dict[str, Any] = {}
        self.known_times: Usual | None = None
        self.took: list[tuple[float, tuple[PhaseTime, ...]]] = []

    # what tests call ---------------------------------------------------------------------------------------------

    def at(self, step: str) -> LocalContext:
        """The next step is `step`."""
        self.step = step
        return self

    def do(self, step: Step) -> StepResult:
        """Run a step inside its own window and time box."""
        self.began = self.clock.monotonic()
        with self.span(self.step):
            return step.run(self)

    @contextlib.contextmanager
    def span(self, step: str) -> Iterator[None]:
        """Note logs at both ends, as the engine does around a step."""
        span = self.spans[step] = Span(since=self.clock.now(), begin=dict(self.host.marks(self.logs)) if self.logs else {})
        try:
            yield
        finally:
            span.until = self.clock.now() + AFTER_S

    # StepContext -------------------------------------------------------------------------------------------------

    def reach(self, lost: Unreachable, helper: HostFacts | None = None) -> str:
        """There is one connection only."""
        raise lost

    def lost(self, why: Unreachable) -> bool:
        """It does not come back."""
        return True

    def remaining_s(self) -> float:
        """Seconds left in the step's box."""
        return self.box_s - (self.clock.monotonic() - self.began)

    def limited_by(self) -> str | None:
        """Nothing above the step limits it."""
        return None

    def watch(self, goal: Goal) -> Diagnosis:
        """The engine's loop. What was seen can be read from `samples` while it goes on."""
        return watch(cast(Goal, _Noting(goal, self)), self)

    def emit(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)

    def _pause(self, seconds: float) -> None:
        if self.clock.wait(self.cancel.event, seconds):
            raise Cancelled("interrupted while waiting")

    def evaluate(self, expression: str) -> Any:
        """Evaluate a bare expression over `scope`."""
        from runbook.lang.expressions import evaluate

        return evaluate(expression, self.scope)

    @contextlib.contextmanager
    def action(self, name: str, **detail: Any) -> Iterator[Any]:
        """One act: started, then one end."""
        self.order.append(f"{name} started")
        try:
            yield lambda **more: detail.update(more)
        except BaseException:
            self.order.append(f"{name} failed")
            raise
        self.order.append(f"{name} done")

    def find(self, code: str, text: str) -> None:
        """Record a finding."""
        self.findings.append((code, text))

    def evidence(self, name: str, data: bytes | Iterable[bytes], about: str = "") -> str:
        """Save a file under evidence/."""
        path = Path(self.run.dir) / "evidence" / self.step / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else b"".join(data))
        return str(path.relative_to(self.run.dir))

    def owe(self, id: str, kind: str, **detail: Any) -> None:
        """Write down what must be undone."""
        self.order.append(f"owe {id}")
        self.owed[id] = {"kind": kind, "step": self.step, **detail}

    def settle(self, id: str, how: str) -> None:
        """What was owed is done."""
        if self.owed.pop(id, None) is not None:
            self.order.append(f"settle {id}")
            self.settled[id] = how

    def keep(self, thing: Launched | Patched) -> None:
        """Register a launch or patch."""
        self.kept[(type(thing), thing.step)] = thing

    def set_vars(self, values: dict[str, Any]) -> None:
        """Change variables."""
        self.set.update(values)

    def masked(self, text: str | None) -> str | None:
        """Nothing is secret here."""
        return text

    def launched(self, step: str) -> Launched | None:
        """The launch of that step."""
        return self.kept.get((Launched, step))

    def launches(self) -> tuple[Launched, ...]:
        """All launches."""
        return tuple(thing for (kind, _), thing in self.kept.items() if kind is Launched)

    def usual(self, launched: Launched) -> Usual | None:
        """What the test says."""
        return self.known_times

    def measured(self, launched: Launched, ready_s: float, phases: Sequence[PhaseTime]) -> None:
        """Keep it."""
        self.took.append((ready_s, tuple(phases)))

    def patched(self, step: str) -> Patched | None:
        """The patch of that step."""
        return self.kept.get((Patched, step))

    def patches(self) -> tuple[Patched, ...]:
        """Patches that are still owed, oldest first."""
        steps = {debt["step"] for debt in self.owed.values() if debt["kind"] == "patch"}
        return tuple(thing for (kind, step), thing in self.kept.items() if kind is Patched and step in steps)

    def forward_launch(self, step: str | None) -> dict[str, Any] | None:
        """The body of that launch, or of the only one."""
        if step is not None:
            return self.bodies.get(step)
        return next(iter(self.bodies.values())) if len(self.bodies) == 1 else None

    def window(self, since: str, until: str | None = None) -> Window:
        """The window between two steps; waits until it has ended."""
        first = Span(since=0.0, begin={}) if since == "start" else self.spans[since]
        if until is None:
            return Window(since=first.since, until=None, begin=first.begin, end=None)
        last = self.spans[until]
        assert last.until is not None, f"step {until} has not ended"
        self._pause(max(0.0, last.until - self.clock.now()))
        if last.end is None:
            last.end = dict(self.host.marks(self.logs)) if self.logs else {}
        return Window(since=first.since, until=last.until, begin=first.begin, end=last.end)

    def watch_log(self, path: str) -> None:
        """Note this log at the start of each step."""
        if path not in self.logs:
            self.logs.append(path)

    def profile(self, name: str) -> Profile:
        """A profile by name; an empty one where the test gave none."""
        return self.profiles.get(name) or Profile(profile=name)

    def known_profiles(self) -> list[Profile]:
        """Those that the test gave."""
        return list(self.profiles.values())

    def protected_runs(self) -> frozenset[str]:
        """This run only."""
        return frozenset({self.run.id})

    def ask(self, text: str, seconds: float) -> str | None:
        """Nobody is here to answer."""
        raise AssertionError(f"nobody can be asked: {text}")

    def progress(self, text: str, phase: str | None = None) -> None:
        """Nobody watches a test."""
