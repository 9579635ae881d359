"""A window over the samples of one wait: what the rules ask. Computed once per judgement, on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from runbook.diagnose import progress
from runbook.diagnose.lines import Matcher, TimedLine, log_lines, matcher
from runbook.diagnose.log_progress import LogMotions, log_motions
from runbook.diagnose.motion import Motion
from runbook.diagnose.phases import Track, track
from runbook.model.profile import Profile
from runbook.model.question import Question
from runbook.model.sample import Absent, Blind, CheckSample, ListenerSample, ProcessSample, Sample, Seen

T = TypeVar("T")
SOURCES = (
    "processes",
    "exit",
    "log",
    "check",
    "listeners",
    "gpus",
    "pressure",
    "sockets",
    "locks",
    "stacks",
    "calls",
    "collectives",
    "kernel",
    "peers",
)
LONGEST_RECENT_S = 60.0
SHORTEST_RECENT_S = 5.0


class Check(NamedTuple):
    """A health check or request and the time of the sample that carries it."""

    t: float
    answer: CheckSample


class View:
    """The samples of a wait in time order, with the profile and the question they are judged by."""

    def __init__(self, samples: Sequence[Sample], profile: Profile, question: Question, now: float) -> None:
        self.samples = sorted(samples, key=lambda sample: sample.t)
        self.profile = profile
        self.question = question
        self.now = now
        self._answers: dict[Callable[[View], Any], Any] = {}

    def once(self, ask: Callable[[View], T]) -> T:
        """What a pure function says of this view; asked once, since several rules want the same."""
        if ask not in self._answers:
            self._answers[ask] = ask(self)
        found: T = self._answers[ask]
        return found

    @cached_property
    def rules(self) -> Matcher:
        """The profile's compiled regexes."""
        return matcher(self.profile)

    @cached_property
    def lines(self) -> list[TimedLine]:
        """All log lines."""
        return log_lines(self.samples, self.rules)

    @cached_property
    def course(self) -> Track:
        """Phases and ready mark."""
        return track(self.lines)

    @cached_property
    def motions(self) -> tuple[Motion, ...]:
        """All that moved."""
        return progress.motions(self.samples, self.log)

    @cached_property
    def log(self) -> LogMotions:
        """What moved in the log, and what only repeated."""
        return log_motions(self.samples, self.lines)

    @cached_property
    def checks(self) -> list[Check]:
        """Checks that were made, oldest first."""
        return [Check(sample.t, sample.check.value) for sample in self.samples if isinstance(sample.check, Seen)]

    @property
    def last(self) -> Sample | None:
        """The newest sample."""
        return self.samples[-1] if self.samples else None

    def newest(self, source: str) -> Any:
        """What a source said last, seen or absent; Blind when it was never read."""
        reason = Blind("no sample")
        for sample in reversed(self.samples):
            outcome = getattr(sample, source)
            if not isinstance(outcome, Blind):
                return outcome
            reason = outcome if reason.reason == "no sample" else reason
        return reason

    def current(self, source: str) -> Any:
        """What the newest sample that asked a source got, blind included."""
        for sample in reversed(self.samples):
            outcome = getattr(sample, source)
            if not (isinstance(outcome, Blind) and outcome.reason in progress.NOT_ASKED):
                return outcome
        return Blind("not asked")

    def blind(self) -> tuple[str, ...]:
        """Sources that the newest look could not read, with the reason; those that nobody asked are left out."""
        found = []
        for source in SOURCES:
            outcome = self.current(source)
            if isinstance(outcome, Blind) and outcome.reason not in progress.NOT_ASKED:
                found.append(f"{source}: {outcome.reason}")
        processes = self.newest("processes")
        for process in processes.value if isinstance(processes, Seen) else ():
            if isinstance(process.io, Blind) and process.io.reason not in progress.NOT_ASKED:
                found.append(f"io of pid {process.pid}: {process.io.reason}")
                break
        return tuple(found)

    @cached_property
    def main(self) -> ProcessSample | None:
        """The root of the server's tree: the oldest process whose parent is not part of it."""
        processes = self.newest("processes")
        if not isinstance(processes, Seen) or not processes.value:
            return None
        pids = {process.pid for process in processes.value}
        roots = [process for process in processes.value if process.ppid not in pids] or list(processes.value)
        return min(roots, key=lambda process: (process.start, process.pid))

    @property
    def elapsed_s(self) -> float:
        """Seconds since the wait began."""
        return self.now - self.question.since

    @property
    def recent_s(self) -> float:
        """How far back motion still counts as "now": a third of the box, at least 5 s and at most 60 s."""
        return min(LONGEST_RECENT_S, max(SHORTEST_RECENT_S, self.question.box_s / 3))

    def moved_since(self, t: float, strong_only: bool = True) -> list[Motion]:
        """Motion after `t`."""
        return [motion for motion in self.motions if motion.t > t and (motion.strong or not strong_only)]

    @property
    def quiet_s(self) -> float | None:
        """Seconds since strong progress was last seen; counted from the first sample when there was none."""
        if not self.samples:
            return None
        strong = [motion.t for motion in self.motions if motion.strong]
        return max(0.0, self.now - (strong[-1] if strong else self.samples[0].t))

    def listeners(self) -> list[tuple[float, tuple[ListenerSample, ...]]]:
        """Readings of who listens on the server's port; an empty one means nobody does."""
        found = []
        for sample in self.samples:
            if isinstance(sample.listeners, Seen):
                found.append((sample.t, sample.listeners.value))
            elif isinstance(sample.listeners, Absent):
                found.append((sample.t, ()))
        return found
