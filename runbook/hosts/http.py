"""HTTP from inside a host, by httpx over the helper's relay.

`relay_transport`, the only importer of httpx in this package, is imported when the first request is made: a controller that asks
nothing does not pay for it.
"""

from __future__ import annotations

import threading
from typing import Any

import runbook
from runbook.hosts.base import CancelToken, HttpAnswer
from runbook.hosts.relay_stream import RelayStream
from runbook.hosts.session import Session
from runbook.hosts.sse import SseReader
from runbook.model.clock import Clock, SystemClock

MOST_BODY = 64 << 20
_HEADERS = {"user-agent": f"runbook/{runbook.__version__}", "accept-encoding": "identity", "connection": "close"}


class Exchanging:
    """One exchange under way, and what has come of it so far."""

    def __init__(self, clock: Clock, timeout_s: float, cancel: CancelToken | None) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._deadline = self._began + timeout_s
        self.cancel = cancel
        self.stream: RelayStream | None = None
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.events: list[str] = []
        self.ttft_s: float | None = None

    def rest_s(self) -> float:
        """Seconds left of the whole exchange's time."""
        return self._deadline - self._clock.monotonic()

    def took_s(self) -> float:
        """Seconds since it began."""
        return self._clock.monotonic() - self._began

    def take_events(self, events: list[str]) -> None:
        """Keep events; the first one is the first token."""
        if events and self.ttft_s is None:
            self.ttft_s = self.took_s()
        self.events += events

    def answer(self, outcome: str, error: str = "") -> HttpAnswer:
        """The exchange as a value."""
        return HttpAnswer(
            outcome=outcome,
            latency_s=self.took_s(),
            status=self.status,
            headers=self.headers,
            body=bytes(self.body),
            error=error,
            ttft_s=self.ttft_s,
            events=tuple(self.events),
        )


class RelayHttp:
    """An `HttpClient` over a session. Thread safe; each exchange has a connection of its own."""

    def __init__(self, session: Session, clock: Clock | None = None) -> None:
        self._session = session
        self._clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._client: Any = None

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
        """One exchange within `timeout_s`, connecting and body included (see `HttpClient`).

        When it ends early the answer still carries the status, headers and body that had come by then.
        """
        from runbook.hosts import relay_transport as door

        with self._lock:
            self._client = self._client or door.client(self._session, _HEADERS)
        exchange = Exchanging(self._clock, timeout_s, cancel)
        try:
            with self._client.stream(method, url, headers=headers, content=content, extensions={door.EXCHANGE: exchange}) as response:
                return _read(exchange, response, stream)
        except door.FAILURES as error:
            return exchange.answer(*door.outcome_of(error, exchange.stream.head if exchange.stream is not None else b""))


def _read(exchange: Exchanging, response: Any, stream: bool) -> HttpAnswer:
    exchange.status = response.status_code
    exchange.headers = dict(response.headers)
    events = SseReader()
    for chunk in response.iter_bytes():
        exchange.body += chunk
        if stream:
            exchange.take_events(events.feed(chunk))
        if len(exchange.body) > MOST_BODY:
            return exchange.answer("error", f"the body is larger than {MOST_BODY} bytes; it was not read on")
    if stream:
        exchange.take_events(events.end())
    return exchange.answer("answer")
