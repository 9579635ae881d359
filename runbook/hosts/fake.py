"""A host without a host, for tests of what uses one: each operation is answered by a table.

    host = fake_host(ops={"processes": [], "run": lambda call: ({"exit": 0, …}, b"out")})

A value is plain data, a function of a `FakeCall` that gives data or (data, bytes), or an exception to raise.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from runbook.hosts.base import CallTimeout, Cancelled, CancelToken, Host, HostError, HostFacts, HttpAnswer, LinkLost, RemoteError, Reply

FACTS = HostFacts(
    hostname="fake",
    user="nobody",
    uid=65534,
    pid=2,
    python="/usr/bin/python3",
    python_version="3.8.0",
    boot_id="00000000-0000-0000-0000-000000000000",
    state_dir="/nonexistent/runbook",
    home="/nonexistent",
    cpus=1,
    cwd="/",
)


class FakeCall(msgspec.Struct, frozen=True):
    """One call as the table's function sees it."""

    op: str
    args: dict[str, Any]
    blob: bytes
    emit: Callable[[dict[str, Any], bytes], None]
    cancelled: threading.Event
    """Set when the caller no longer waits."""


class FakeTransport:
    """A `Transport` over a table of operations. `calls` lists (op, args) in order."""

    def __init__(self, ops: Mapping[str, Any]) -> None:
        self.ops = dict(ops)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._closed = False

    @property
    def lost(self) -> str | None:
        """Only a closed one is."""
        return "it was closed" if self._closed else None

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
        """Answer from the table; time box and cancel hold as on a real host."""
        if cancel is not None and cancel.is_set():
            raise Cancelled(f"interrupted before `{op}` began")
        if self._closed:
            raise LinkLost("the connection to the fake host was lost: it was closed")
        self.calls.append((op, args))
        inbox: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        asked = FakeCall(op, args, blob, lambda data, more: inbox.put(("event", (data, more))), threading.Event())
        give_back = cancel.on_set(lambda: inbox.put(("raise", Cancelled(f"interrupted while `{op}` waited")))) if cancel else None
        threading.Thread(target=self._answer, args=(asked, inbox), daemon=True).start()
        try:
            return _await_reply(inbox, op, timeout_s, on_event)
        finally:
            asked.cancelled.set()
            if give_back is not None:
                give_back()

    def _answer(self, asked: FakeCall, inbox: queue.SimpleQueue[tuple[str, Any]]) -> None:
        try:
            answer = self.ops.get(asked.op, RemoteError("bad_request", f"there is no operation `{asked.op}`"))
            if callable(answer) and not isinstance(answer, type):
                answer = answer(asked)
            if isinstance(answer, BaseException):
                raise answer
        except Exception as error:
            inbox.put(("raise", error))
        else:
            data, more = answer if isinstance(answer, tuple) else (answer, b"")
            inbox.put(("reply", Reply(data, more)))

    def close(self) -> None:
        """Later calls raise LinkLost. Idempotent."""
        self._closed = True


def _await_reply(
    inbox: queue.SimpleQueue[tuple[str, Any]], op: str, timeout_s: float, on_event: Callable[[dict[str, Any], bytes], None] | None
) -> Reply:
    while True:
        try:
            kind, value = inbox.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            raise CallTimeout(f"`{op}` got no answer from the fake host in {timeout_s:g} s") from None
        if kind == "raise":
            raise value
        if kind == "reply":
            assert isinstance(value, Reply)
            return value
        if on_event is not None:
            on_event(*value)


class FakeHttp:
    """An `HttpClient` over a table: "METHOD url" to an answer, a list of answers (the last one stays), or a function of the request.

    What the table lacks is refused, as a port without a server would be.
    """

    def __init__(self, answers: Mapping[str, Any] | None = None) -> None:
        self.answers = dict(answers or {})
        self.requests: list[tuple[str, str, bytes | None]] = []

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
        """Answer from the table."""
        if cancel is not None and cancel.is_set():
            raise Cancelled("interrupted before the request")
        self.requests.append((method, url, content))
        answer = self.answers.get(f"{method} {url}", HttpAnswer(outcome="refused", latency_s=0.0, error="Connection refused"))
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if callable(answer):
            answer = answer(method, url, content)
        if isinstance(answer, HostError):
            raise answer
        assert isinstance(answer, HttpAnswer)
        return answer


def fake_host(
    name: str = "fake", ops: Mapping[str, Any] | None = None, http: Mapping[str, Any] | None = None, *, gpus: list[int] | None = None
) -> Host:
    """A `Host` whose operations and HTTP answers come from tables."""
    return Host(name, "fake", FakeTransport(ops or {}), FACTS, FakeHttp(http), gpus)
