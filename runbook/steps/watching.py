"""What the waiting steps share: a server looked at again and again, and a call that runs beside the looking."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from runbook.diagnose.check import check_sample
from runbook.hosts.base import CallTimeout, CancelToken, HostError, HttpAnswer, Mark, RemoteError
from runbook.model.sample import Absent, Blind, CheckSample, Expectation, Sample, Seen
from runbook.steps.base import Launched, StepContext

T = TypeVar("T")

FULL_LOOK_S = 10.0
"""GPU memory and threads are read this often; they cost more than the rest."""
BLIND_TOOL_S = 60.0
"""A GPU tool that did not answer is asked again only after this time."""


class Exchange(Generic[T]):
    """One call in a thread of its own, so that samples are still taken while it waits. `close` ends it."""

    def __init__(self, cancel: CancelToken, call: Callable[[CancelToken], T]) -> None:
        self._token = CancelToken()
        self._take_back = cancel.on_set(self._token.set)
        self._done = threading.Event()
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, name="runbook-exchange", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value.append(self._call(self._token))
        except BaseException as problem:  # handed to whoever asks for the result
            self._error = problem
        finally:
            self._done.set()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, at the latest after `seconds`."""
        return self._done.wait(max(0.0, seconds))

    def result(self) -> T:
        """What the call gave; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._value[0]

    def close(self) -> None:
        """Tell the call to end and wait a moment for it."""
        self._take_back()
        self._token.set()
        self._thread.join(timeout=2.0)


class Watched:
    """A launched server as successive looks see it; each look brings what its log gained since the one before."""

    def __init__(self, ctx: StepContext, launched: Launched, begin: Mark | None = None) -> None:
        self._ctx = ctx
        self.launched = launched
        state = launched.state
        self._inode = begin.inode if begin else state.log_inode
        self._offset = begin.size if begin else state.log_offset
        self._full_at = float("-inf")
        self._gpus_at = float("-inf")
        self._gpu_tool = True

    def look(self) -> Sample:
        """One sample. A helper that does not answer in time is blindness, not an unreachable host: the link may still be alive."""
        state = self.launched.state
        now = self._ctx.clock.monotonic()
        full, gpus = now - self._full_at >= FULL_LOOK_S, self._gpu_tool and now >= self._gpus_at
        spec: dict[str, Any] = {
            "run": self._ctx.run.id,
            "server": state.id,
            "pid": state.pid,
            "start": state.start,
            "log": {"path": state.log, "inode": self._inode, "offset": self._offset},
            "threads": full,
            "gpus": gpus,
        }
        if self.launched.port is not None:
            spec["port"] = self.launched.port
        try:
            sample = self._ctx.host.sample(spec, timeout_s=90.0 if gpus else 30.0)
        except (CallTimeout, RemoteError) as problem:
            return blind_sample(self._ctx, self.launched.state.id, problem.summary)
        self._full_at = now if full else self._full_at
        if gpus:
            self._gpu_tool = not isinstance(sample.gpus, Absent)
            self._gpus_at = now + (BLIND_TOOL_S if isinstance(sample.gpus, Blind) else FULL_LOOK_S)
        if isinstance(sample.log, Seen):
            self._inode, self._offset = sample.log.value.inode, sample.log.value.end
        return sample


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
    try:
        return ctx.host.marks([launched.state.log]).get(launched.state.log)
    except HostError:
        return None


def plain(value: Any) -> Any:
    """A struct as plain data for expressions."""
    return msgspec.to_builtins(value, enc_hook=float)
