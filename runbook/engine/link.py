"""A step's way to its host. A link that was lost is tried again, with growing pauses, until the step's time is over.

    up ── LinkLost ──> lost ── a try ──> up
                        │ └─ no answer: the next try after 0.5, 1, 2, 4, then every 5 s
                        └── the step's box is over, or the answer is final (host key, login, job over) ──> Unreachable

A step's own calls wait for that (`Link.host`); a look of a wait does not: it is a look that saw no host (`Link.look`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runbook.engine.runtime import Runtime
from runbook.hosts.base import (
    REPEATABLE,
    AuthRefused,
    Cancelled,
    CancelToken,
    Host,
    HostKeyRefused,
    HttpAnswer,
    LinkLost,
    PlaceEnded,
    Reply,
    Unreachable,
)
from runbook.model.event import Moved

PAUSES_S = (0.5, 1.0, 2.0, 4.0, 5.0)
SPEAK_S = 5.0
FINAL = (HostKeyRefused, AuthRefused, PlaceEnded)
"""Trying again would change nothing, or lock the account."""
SAFE_METHODS = frozenset({"GET", "HEAD"})


class Link:
    """The link of one step on one target. `look` is for the thread that watches, `host` and `again` for all others."""

    def __init__(self, runtime: Runtime, step: str, target: str, remaining_s: Callable[[], float]) -> None:
        self._runtime, self._step, self._target, self._remaining_s = runtime, step, target, remaining_s
        self._failure: Unreachable | None = None
        self._tries = 0
        self._due = self._spoke = float("-inf")
        self._began = runtime.clock.monotonic()

    def look(self) -> Host:
        """The host, by one try when one is due; else the failure of the last one. Raises Unreachable."""
        clock = self._runtime.clock
        if self._failure is not None and clock.monotonic() < self._due:
            raise self._failure
        try:
            host = self._runtime.host(self._target, self._remaining_s())
        except Unreachable as failure:
            self._failure = failure
            self._due = clock.monotonic() + PAUSES_S[min(self._tries, len(PAUSES_S) - 1)]
            self._tries += 1
            raise
        self._failure, self._tries = None, 0
        return host

    def host(self) -> Host:
        """The host, whose calls outlive the loss of the link. Raises Unreachable when it was never there, or not in time."""
        real = self.again(None)
        mortal = real.ends_with_link
        attached = Host(real.name, real.address, _Calls(self), real.facts, _Requests(self), real.gpu_indices, ends_with_link=mortal)
        attached.cancel = real.cancel
        return attached

    def is_hopeless(self, why: Unreachable) -> bool:
        """Whether trying again cannot help: the answer is final, or the host was never there."""
        return isinstance(why, FINAL) or not self._runtime.was_reached(self._target)

    def again(self, lost: Unreachable | None) -> Host:
        """Reach the host, after `lost` if it was; tells people that it is tried. Raises Unreachable at the end of the box."""
        while True:
            try:
                return self.look()
            except Unreachable as failure:
                if self.is_hopeless(failure) or self._remaining_s() <= 0:
                    raise
                self.tell(lost or failure)
            self._pause()

    def tell(self, why: Unreachable) -> None:
        """Say that it is tried again, and for how long; every few seconds at most."""
        now = self._runtime.clock.monotonic()
        if now - self._spoke < SPEAK_S:
            return
        self._spoke = now
        left = max(0.0, self._remaining_s())
        text = f"link lost, trying again ({left:.0f} s left): {why.summary}"
        self._runtime.emit(Moved(step=self._step, host=self._target, phase=None, text=text, elapsed_s=now - self._began, box_s=None))

    def _pause(self) -> None:
        clock = self._runtime.clock
        seconds = max(0.05, min(self._due - clock.monotonic(), self._remaining_s()))
        if clock.wait(self._runtime.cancel.event, seconds):
            raise Cancelled("interrupted while waiting for the link")


class _Calls:
    """A `Transport` over whichever connection stands. What may be repeated is, when the link was lost under it."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def lost(self) -> str | None:
        """It is never gone for good."""
        return None

    def call(
        self,
        op: str,
        args: dict[str, Any],
        blob: bytes = b"",
        *,
        timeout_s: float,
        cancel: CancelToken | None = None,
        on_event: Callable[[dict[str, Any], bytes], None] | None = None,
    ) -> Reply:
        """One request, one reply; sent again over the next connection if that does no harm. Raises HostError."""
        lost: LinkLost | None = None
        while True:
            host = self._link.again(lost)
            try:
                return host.transport.call(op, args, blob, timeout_s=timeout_s, cancel=cancel, on_event=on_event)
            except LinkLost as problem:
                if op not in REPEATABLE:
                    raise
                lost = problem

    def close(self) -> None:
        """The connection is the run's."""


class _Requests:
    """An `HttpClient` over whichever connection stands; a request that only reads is sent again."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: dict[str, str] | None = None,
        content: bytes | None = None,
        timeout_s: float,
        stream: bool = False,
        cancel: CancelToken | None = None,
    ) -> HttpAnswer:
        """One exchange (see `HttpClient`)."""
        lost: LinkLost | None = None
        while True:
            client = self._link.again(lost).http
            try:
                return client.request(method, url, headers=headers, content=content, timeout_s=timeout_s, stream=stream, cancel=cancel)
            except LinkLost as problem:
                if method not in SAFE_METHODS:
                    raise
                lost = problem
