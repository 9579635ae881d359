"""The StepContext that steps are given: one per step, target and attempt."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from runbook.diagnose import baseline
from runbook.engine import names
from runbook.engine.boxes import Box
from runbook.engine.link import Link
from runbook.engine.reuse import Reuse
from runbook.engine.runtime import Action, Runtime
from runbook.engine.watch import pause, watch
from runbook.hosts.base import CancelToken, Host, HostFacts, Unreachable
from runbook.model.clock import Clock
from runbook.model.event import Event, EvidenceSaved, Moved, Owed, Registered, Settled, StartMeasured, VarsSet
from runbook.model.playbook import StepNode
from runbook.model.profile import Profile
from runbook.model.units import enc_hook
from runbook.model.usual import Kin, MeasuredStart, PhaseTime, Usual
from runbook.model.verdict import Diagnosis
from runbook.steps.base import Goal, Launched, Patched, Reentry, RunInfo, Window

AFTER_S = 2.0
"""A window that ends with a step goes on this long after its end: logs lag behind answers."""
SPEAK_S = 10.0


def once(step: str, target: str, item: int | None, attempt: int) -> str:
    """A name for an attempt: the same whichever controller is at it, and good as a file name."""
    which = f".{item}" if item is not None else ""
    return f"{step}.{attempt}{which}@{zlib.crc32(target.encode()):08x}"


class Context:
    """Implements `steps.base.StepContext` on a runtime."""

    def __init__(
        self,
        runtime: Runtime,
        node: StepNode,
        target: str,
        box: Box,
        place: names.Place,
        began: float,
        reentry: Reentry | None = None,
        attempt: int = 1,
    ) -> None:
        self._runtime = runtime
        self._node = node
        self._place = place
        self._box = box
        self._began = began
        self._spoke = float("-inf")
        self.step = node.id
        self.target = target
        self.clock: Clock = runtime.clock
        self.cancel: CancelToken = runtime.cancel
        self.check_mode = runtime.options.check
        self.can_ask = runtime.ask is not None
        self.diff = runtime.options.diff
        self.reentry = reentry
        self.run: RunInfo = runtime.info
        self.once = once(node.id, target, place.number if place.looping else None, attempt)
        self._link = Link(runtime, node.id, target, self.remaining_s)
        self._thread, self._watching = threading.get_ident(), False

    @property
    def reuse(self) -> Reuse | None:
        """The run whose servers and patches may be taken over."""
        earlier = self._runtime.reused
        return (
            Reuse(earlier, self._runtime, self._runtime.options.run, self.step, self.host)
            if earlier is not None and not self.check_mode
            else None
        )

    @property
    def host(self) -> Host:
        """The connected host of this step. A link that was lost is waited for by its own calls, not by looks and what runs beside them."""
        if threading.get_ident() != self._thread:
            return self._runtime.host(self.target)
        return self._link.look() if self._watching else self._link.host()

    def reach(self, lost: Unreachable, helper: HostFacts | None = None) -> str:
        """Reach the host again; answers what became of the helper of the lost link."""
        self._link.again(lost)
        return self._runtime.fate(helper) if helper is not None else ""

    def lost(self, why: Unreachable) -> bool:
        """A look saw no host: tell people that it is tried again; True when that is pointless."""
        if self._link.is_hopeless(why):
            return True
        self._link.tell(why)
        return False

    def remaining_s(self) -> float:
        """Seconds left in the effective time box."""
        return self._box.remaining_s(self.clock)

    def limited_by(self) -> str | None:
        """What set the box when it was not the step itself."""
        return None if self._box.label == "step" else self._box.label

    def watch(self, goal: Goal) -> Diagnosis:
        """Wait until the goal is judged."""
        self._watching = True
        try:
            diagnosis = watch(goal, self)
        finally:
            self._watching = False
        return msgspec.structs.replace(diagnosis, limited_by=diagnosis.limited_by or self.limited_by())

    def emit(self, event: Event) -> None:
        """Write an event."""
        self._runtime.emit(event)

    def evaluate(self, expression: str) -> Any:
        """Evaluate a bare expression in the run's scope."""
        return names.evaluate(self._runtime, expression, self._place)

    def action(self, name: str, **detail: Any) -> Action:
        """One act on the host."""
        return self._runtime.action(self.step, self.target, name, detail)

    def find(self, code: str, text: str) -> None:
        """Record a finding."""
        self._runtime.find(code, text, self.step)

    def evidence(self, name: str, data: bytes | Iterable[bytes], about: str = "") -> str:
        """Save a masked file in the run's evidence/; one a host and loop item where there are several."""
        sizes: list[int] = []

        def counted(pieces: Iterable[bytes]) -> Iterator[bytes]:
            for piece in pieces:
                sizes.append(len(piece))
                yield piece

        whole = f"{self.step}/{names.file(self._runtime, self._node, self._place)}{name}"
        path = self._runtime.journal.save(whole, data if isinstance(data, bytes) else counted(data))
        size = len(data) if isinstance(data, bytes) else sum(sizes)
        self.emit(EvidenceSaved(step=self.step, file=path, bytes=size, about=about))
        return path

    def owe(self, id: str, kind: str, **detail: Any) -> None:
        """Write down what must be undone, before it exists."""
        self.emit(Owed(id=id, kind=kind, step=self.step, host=self.target, detail=detail))

    def settle(self, id: str, how: str) -> None:
        """What was owed is done."""
        if id in self._runtime.state.owed:
            self.emit(Settled(id=id, how=how))

    def keep(self, thing: Launched | Patched) -> None:
        """Register a launch or a patch for later steps."""
        kind = "launch" if isinstance(thing, Launched) else "patch"
        self.emit(Registered(kind=kind, step=thing.step, host=self.target, data=msgspec.to_builtins(thing, enc_hook=enc_hook)))

    def set_vars(self, values: dict[str, Any]) -> None:
        """Change variables for the rest of the run."""
        self.emit(VarsSet(step=self.step, values=values))

    def masked(self, text: str | None) -> str | None:
        """A text as the journal has it."""
        return None if text is None else self._runtime.journal.mask.text(text)

    def launched(self, step: str) -> Launched | None:
        """The launch of that step on this host."""
        return self._runtime.state.launches.get((step, self.target))

    def launches(self) -> tuple[Launched, ...]:
        """All servers of this run on this host, oldest first."""
        return tuple(launched for (_, host), launched in self._runtime.state.launches.items() if host == self.target)

    def usual(self, launched: Launched) -> Usual | None:
        """What earlier starts of the same command took here."""
        age_s = self.clock.now() + self.host.facts.clock_offset_s - launched.state.started
        return baseline.usual(self._runtime.earlier(self._kin(launched)), age_s)

    def measured(self, launched: Launched, ready_s: float, phases: Sequence[PhaseTime]) -> None:
        """Record how long this start took."""
        start = MeasuredStart(kin=self._kin(launched), ready_s=ready_s, phases=baseline.longest_each(phases))
        self.emit(StartMeasured(step=self.step, host=self.target, start=start))

    def _kin(self, launched: Launched) -> Kin:
        gpus = self._runtime.state.gpus.get(self.target, ())
        return baseline.kin(self.host.facts.hostname, gpus, launched.profile.profile, launched.state.argv)

    def patched(self, step: str) -> Patched | None:
        """The patch of that step on this host."""
        return self._runtime.state.patches.get((step, self.target))

    def patches(self) -> tuple[Patched, ...]:
        """All patches of this run on this host that are not restored yet, oldest first."""
        state = self._runtime.state
        open_ids = {(debt.step, debt.host) for debt in state.owed.values() if debt.kind == "patch"}
        return tuple(patch for key, patch in state.patches.items() if key in open_ids and key[1] == self.target)

    def forward_launch(self, step: str | None) -> dict[str, Any] | None:
        """The templated body of a launch that may come later."""
        launches = [node for node in self._runtime.nodes.values() if node.type == "launch" and step in (None, node.id)]
        if step is None:  # the only one of this file and of those that it includes
            launches = [node for node in launches if node.id.startswith(self._place.prefix)]
        if len(launches) != 1:
            return None
        there = names.around(self._runtime, launches[0].id).at(self._place.target, self._place.host_index)
        return names.template_body(self._runtime, launches[0], there)

    def window(self, since: str, until: str | None = None) -> Window:
        """The window from a step's start to the end of another + 2 s, or to now; waits out the 2 s."""
        state = self._runtime.state
        if since == "start":
            began, marks = state.header.t if state.header else 0.0, {}
        else:
            start = state.steps[since].starts[self.target]
            began = start.t
            marks = state.marks_at(self.target, start.t)
        if until is None:
            return Window(since=began, until=None, begin=marks, end=None)
        ended = next(end.t for end in reversed(state.steps[until].ends) if end.host == self.target) + AFTER_S
        if self.clock.now() < ended:
            pause(self.clock, self.cancel, ended - self.clock.now())
        return Window(since=began, until=ended, begin=marks, end=state.marks_at(self.target, ended) or None)

    def watch_log(self, path: str) -> None:
        """Note this log at the start of each step from now on."""
        self._runtime.watch_log(self.target, path)

    def profile(self, name: str) -> Profile:
        """A profile by name."""
        return self._runtime.profile(name)

    def known_profiles(self) -> Sequence[Profile]:
        """All profiles that are known."""
        return self._runtime.profiles()

    def protected_runs(self) -> frozenset[str]:
        """Run ids that are ours."""
        return frozenset({self.run.id})

    def ask(self, text: str, seconds: float) -> str | None:
        """A line that somebody types."""
        return self._runtime.ask(text, seconds, self.cancel) if self._runtime.ask is not None else None

    def progress(self, text: str, phase: str | None = None) -> None:
        """Tell people what is going on."""
        now = self.clock.monotonic()
        if now - self._spoke >= SPEAK_S:
            self._spoke = now
            self.emit(Moved(step=self.step, host=self.target, phase=phase, text=text, elapsed_s=now - self._began, box_s=None))
