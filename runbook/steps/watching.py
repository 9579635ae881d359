"""What the waiting steps share: a server looked at again and again, and what a suspicion asks of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from runbook.diagnose import ends
from runbook.diagnose.check import check_sample
from runbook.diagnose.judge import judged
from runbook.diagnose.view import View
from runbook.hosts.base import CallTimeout, HostError, HttpAnswer, Mark, RemoteError
from runbook.model.profile import Profile
from runbook.model.question import Expectation, Question
from runbook.model.sample import Blind, CheckSample, Sample, Seen
from runbook.model.verdict import Diagnosis
from runbook.steps.base import Launched, StepContext
from runbook.steps.caches import caches
from runbook.steps.counters import EngineCounters
from runbook.steps.gpu_looks import GpuLooks
from runbook.steps.inquiry import Inquiry
from runbook.steps.past import read_past

LOOK_S = 30.0
FULL_LOOK_S = 10.0
"""Open files, pipes, sockets, locks and disks are read this often; they cost more than the rest."""


class Watched:
    """A server as successive looks see it; each look brings what its log gained since the one before.

    Most looks are cheap. A full one, with open files, pipes, sockets, locks and disks, is made every 10 s and when a suspicion wants it.
    """

    def __init__(self, ctx: StepContext, launched: Launched, begin: Mark | None = None) -> None:
        self._ctx = ctx
        self.launched = launched
        state = launched.state
        self._inode = begin.inode if begin else state.log_inode
        self._offset = begin.size if begin else state.log_offset
        self._full_at = float("-inf")
        self._gpus = GpuLooks(ctx)
        self._history = launched.run is not None and begin is None
        self.inquiry = Inquiry(ctx)
        self._counters = EngineCounters(ctx, launched)

    def look(self) -> Sample:
        """One sample. A helper that does not answer in time is blindness, not an unreachable host: the link may still be alive."""
        now = self._ctx.clock.monotonic()
        full = self.inquiry.counts or now - self._full_at >= FULL_LOOK_S
        past, self._history = read_past(self._ctx, self.launched) if self._history else None, False
        if past is not None:
            self._inode, self._offset = past.inode, past.offset
        self._gpus.ask()
        try:
            sample = self._ctx.host.sample(self._spec(full, self.inquiry.kernel), timeout_s=LOOK_S)
        except (CallTimeout, RemoteError) as problem:
            return blind_sample(self._ctx, self.launched.state.id, problem.summary)
        self._full_at = now if full else self._full_at
        sample = msgspec.structs.replace(sample, gpus=self._gpus.read(), engine=self._counters.read())
        if not self.launched.state.log:
            sample = msgspec.structs.replace(sample, log=Blind(self.launched.log_note or "no log is known"))
        if isinstance(sample.log, Seen):
            self._inode, self._offset = sample.log.value.inode, sample.log.value.end
            if past is not None:
                log = msgspec.structs.replace(sample.log.value, lines=past.lines + sample.log.value.lines, offset=0)
                sample = msgspec.structs.replace(sample, log=Seen(log))
        return self.inquiry.join(sample, full)

    def close(self) -> None:
        """End what is still under way."""
        self.inquiry.close()
        self._counters.close()
        self._gpus.close()

    def _spec(self, full: bool, kernel: bool) -> dict[str, Any]:
        state = self.launched.state
        spec: dict[str, Any] = {
            "run": self._ctx.run.id if self.launched.run is None else self.launched.run,
            "server": state.id,
            "pid": state.pid,
            "start": state.start,
            "threads": True,
            "full": full,
            "kernel": kernel,
        }
        if state.log:
            spec["log"] = {"path": state.log, "inode": self._inode, "offset": self._offset}
        if self.launched.port is not None:
            spec["port"] = self.launched.port
        if full:
            spec["calls"] = self.inquiry.counts
            spec["folders"] = caches(self.launched.env, self._ctx.host.facts.home, self._ctx.host.facts.user)
        return spec


class Viewed:
    """A goal that `judge` decides. Judging, suspecting and telling what moved share one view of each look."""

    profile: Profile
    _viewed: tuple[Sequence[Sample], View] | None = None

    def question(self, final: bool) -> Question:
        """What the wait wants to know."""
        raise NotImplementedError

    def view(self, samples: Sequence[Sample], now: float, *, final: bool = False) -> View:
        """Of these samples: the one that was made last, where it was made of them for the same question."""
        question = self.question(final)
        if self._viewed is not None and self._viewed[0] is samples and (self._viewed[1].question, self._viewed[1].now) == (question, now):
            return self._viewed[1]
        found = View(samples, self.profile, question, now)
        self._viewed = samples, found
        return found

    def judge(self, samples: Sequence[Sample], now: float, *, final: bool) -> Diagnosis | None:
        """What the samples prove."""
        return judged(self.view(samples, now, final=final))


class ServerGoal(Viewed):
    """A goal on samples of a server (`watched` None: of a bare URL). Subclasses look and ask."""

    watched: Watched | None

    def moved(self, samples: Sequence[Sample]) -> tuple[str | None, str]:
        """Phase, and what moved last."""
        return ends.moved(self.view(samples, samples[-1].t))

    def want(self, looks: tuple[str, ...]) -> None:
        """A suspicion asks for these looks."""
        if self.watched is not None:
            self.watched.inquiry.want(looks)

    def inquiring(self) -> bool:
        """Whether one of them is still to come."""
        return self.watched is not None and self.watched.inquiry.under_way

    def close(self) -> None:
        """End what is still under way."""
        if self.watched is not None:
            self.watched.close()


def blind_sample(ctx: StepContext, server: str, reason: str) -> Sample:
    """A look that brought nothing."""
    blind = Blind(reason)
    facts = ctx.host.facts
    now = ctx.clock.now()
    return Sample(
        t=now,
        host=ctx.host.name,
        host_t=now + facts.clock_offset_s,
        boot_id=facts.boot_id,
        server=server,
        processes=blind,
        exit=blind,
        log=blind,
        listeners=blind,
    )


def bare_sample(ctx: StepContext, **sources: Any) -> Sample:
    """A look that asked no more than these sources."""
    now = ctx.clock.now()
    facts = ctx.host.facts
    return Sample(t=now, host=ctx.host.name, host_t=now + facts.clock_offset_s, boot_id=facts.boot_id, **sources)


def answer_check(url: str, answer: HttpAnswer, expect: Expectation) -> CheckSample:
    """The exchange as a sample, judged by what was expected."""
    return check_sample(
        url, answer.outcome, answer.latency_s, expect, status=answer.status, headers=answer.headers, body=answer.body, error=answer.error
    )


def base_url(launched: Launched | None, url: str | None) -> str | None:
    """Where the server listens, seen from its own host; None when no port is known."""
    if url is not None:
        return url.rstrip("/")
    return f"http://127.0.0.1:{launched.port}" if launched is not None and launched.port is not None else None


def begin_mark(ctx: StepContext, launched: Launched) -> Mark | None:
    """Where the server's log stands now; None when it cannot be asked."""
    if not launched.state.log:
        return None
    try:
        return ctx.host.marks([launched.state.log]).get(launched.state.log)
    except HostError:
        return None


def plain(value: Any) -> Any:
    """A struct as plain data for expressions."""
    return msgspec.to_builtins(value, enc_hook=float)
