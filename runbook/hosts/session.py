"""The controller's end of a helper: a transport over any two-way byte channel.

    new ── send bundle ──> starting ── nonce, hello ──> up ── end of file, broken frame ──> lost
                              │ end of file, no hello in time                └─ close ──> closed
                              └──> NoPython

One thread reads; callers wait for their own exchange. The bundle is sent without waiting for anything, so a start costs one round
trip, as each call does.
"""

from __future__ import annotations

import itertools
import queue
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

import msgspec

from runbook.hosts.base import CallTimeout, Cancelled, CancelToken, HostFacts, LinkLost, NoPython, PlaceEnded, RemoteError, Reply
from runbook.hosts.bundle import payload
from runbook.hosts.via import is_over
from runbook.model.clock import Clock, SystemClock
from runbook.model.playbook import Protect
from runbook.onhost import frames

NOISE_KEPT = 64 * 1024
PYTHON_HINT = "set `python:` for this host to a Python 3.8 or later, for example `python: /opt/conda/bin/python3`"
GOODBYE_S = 5.0
ALIVE_S = 20.0
"""Between two signs of life: a helper that hears none for five minutes and has nothing to do ends itself."""


class Channel(Protocol):
    """Two byte streams to a started command. `send` and `recv` may be used from two threads."""

    def send(self, data: bytes) -> None:
        """Write all of it, waiting for room. Raises OSError or EOFError when the other side is gone."""
        ...

    def recv(self, most: int) -> bytes:
        """At least one byte, or b"" at the end."""
        ...

    def close(self) -> None:
        """End it; a waiting `recv` returns. Idempotent."""
        ...

    def ending(self) -> str:
        """How it ended, for people: the last of stderr, the exit status. Waits at most a second for them."""
        ...


class Exchange:
    """One request under way. Used by one thread; messages are put in by the reader."""

    _LOST = object()
    _CANCELLED = object()

    def __init__(self, session: Session, id: int, op: str) -> None:
        self._session = session
        self.id = id
        self.op = op
        # SimpleQueue.put may be called from a signal handler that interrupted this very queue's `get`; a Condition could deadlock.
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._give_back: Callable[[], None] = lambda: None
        self._unacknowledged = 0

    def cancelled_by(self, token: CancelToken | None) -> None:
        """Make `next` raise Cancelled once the token is set."""
        if token is not None:
            self._give_back = token.on_set(lambda: self._inbox.put(self._CANCELLED))

    def put(self, message: Any) -> None:
        """Called by the reader."""
        self._inbox.put(message)

    def lost(self) -> None:
        """Called by the reader when there will be no more messages."""
        self._inbox.put(self._LOST)

    def feed(self, blob: bytes = b"", **args: Any) -> None:
        """Send more to the running operation."""
        self._session.send({"op": "feed", "args": {**args, "id": self.id}}, blob)

    def next(self, timeout_s: float) -> frames.Message:
        """The next event or answer. Raises CallTimeout, Cancelled or LinkLost; the first two leave the operation running."""
        try:
            message = self._inbox.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            raise CallTimeout(f"`{self.op}` got no answer from the host in time") from None
        if message is self._CANCELLED:
            raise Cancelled(f"interrupted while `{self.op}` waited")
        if message is self._LOST:
            raise self._session.loss()
        self._acknowledge(len(message[1]))
        return message  # type: ignore[no-any-return]

    def _acknowledge(self, size: int) -> None:
        """The helper streams no more than its window ahead of us, so a slow reader costs bounded memory."""
        self._unacknowledged += size
        if self._unacknowledged >= frames.WINDOW // 4:
            credit, self._unacknowledged = self._unacknowledged, 0
            self.feed(credit=credit)

    def stop(self) -> None:
        """Tell the helper to stop the operation, and forget it."""
        if self._session.forget(self):
            try:
                self._session.send({"op": "cancel", "args": {"id": self.id}})
            except LinkLost:
                pass  # then the helper is gone, or ends its operations because its stdin ended
        self._give_back()

    def finish(self) -> None:
        """The answer was read."""
        self._session.forget(self)
        self._give_back()


class Session:
    """A `Transport`: a helper that has said hello."""

    def __init__(
        self,
        channel: Channel,
        *,
        timeout_s: float = 30.0,
        clock: Clock | None = None,
        what: str = "the host",
        protect: Sequence[Protect] = (),
    ) -> None:
        """Start the helper on a channel whose command is `bundle.remote_command` or `helper_argv`.

        Raises NoPython, or PlaceEnded, when no helper answers in `timeout_s`; the channel is closed then. `what` names the host in
        messages; `protect` is what the helper must leave alone.
        """
        self._channel = channel
        self._clock: Clock = clock or SystemClock()
        self._what = what
        self._send_lock = threading.Lock()
        self._state_lock = threading.Lock()
        self._pending: dict[int, Exchange] = {}
        self._ids = itertools.count(1)
        self._lost: str | None = None
        self._over = threading.Event()
        self.noise = b""
        """What the account's start files printed before the helper, at most 64 KiB."""
        self._nonce = secrets.token_hex(16).encode()
        greeting = self._begin(0, "hello")
        sent = self._clock.now()
        # Reading first: an account whose start files print more than a pipe holds takes our bytes only when theirs are gone.
        self._reader = threading.Thread(target=self._read, name="helper reader", daemon=True)
        self._reader.start()
        try:
            channel.send(payload("dispatch", {"nonce": self._nonce.decode(), "protect": msgspec.to_builtins(protect)}))
        except (OSError, EOFError):
            pass  # the reader sees the end too, and `ending` knows why
        self.facts = self._hello(greeting, sent, timeout_s)
        threading.Thread(target=self._live, name="helper alive", daemon=True).start()

    def _live(self) -> None:
        """Tell the helper now and then that somebody is here."""
        while not self._over.wait(ALIVE_S):
            try:
                self.send({"op": "alive"})
            except LinkLost:
                return

    def _hello(self, greeting: Exchange, sent: float, timeout_s: float) -> HostFacts:
        try:
            header, _ = greeting.next(timeout_s)
            received = self._clock.now()
        except CallTimeout:
            noise = f"; it printed {self.noise[-200:]!r}" if self.noise else ""
            self._fail(f"no answer from the helper on {self._what} in {timeout_s:g} s{noise}")
        except LinkLost:
            self._fail(f"the helper did not start on {self._what}: {self._lost or 'no reason given'}")
        finally:
            greeting.finish()
        hello = header["hello"]
        try:
            if hello.pop("format") != frames.FORMAT:
                self._fail(f"the helper on {self._what} speaks another format")
            return self._facts(hello, sent, received)
        except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
            self._fail(f"the first words of the helper on {self._what} are damaged: {error}")

    def _facts(self, hello: dict[str, Any], sent: float, received: float) -> HostFacts:
        """What it says about itself, with the difference of the clocks. Raises what a damaged text makes of it."""
        start, end = hello.pop("received"), hello.pop("sent")
        return msgspec.convert(
            {
                **hello,
                "clock_offset_s": ((start - sent) + (end - received)) / 2,
                "clock_error_s": max(0.0, ((received - sent) - (end - start)) / 2),
            },
            HostFacts,
        )

    def _fail(self, summary: str) -> NoReturn:
        self._channel.close()
        if is_over(summary):
            raise PlaceEnded(summary, "`squeue --me` lists the jobs that run: name one of them in `via:`")
        raise NoPython(summary, PYTHON_HINT)

    # calls -------------------------------------------------------------------------------------------------------

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
        """One request, one reply (see `Transport`)."""
        deadline = self._clock.monotonic() + timeout_s
        exchange = self.begin(op, args, blob, cancel=cancel)
        try:
            while True:
                header, data = exchange.next(deadline - self._clock.monotonic())
                if "event" not in header:
                    return answer(header, data)
                if on_event is not None:
                    on_event(header["event"], data)
        except CallTimeout:
            raise CallTimeout(f"`{op}` got no answer from {self._what} in {timeout_s:g} s", "the link may still be alive") from None
        finally:
            exchange.stop()

    def begin(self, op: str, args: dict[str, Any], blob: bytes = b"", *, cancel: CancelToken | None = None) -> Exchange:
        """Send a request and return at once. The caller ends it with `stop` or `finish`. Raises LinkLost, Cancelled."""
        if cancel is not None and cancel.is_set():
            raise Cancelled(f"interrupted before `{op}` began")
        exchange = self._begin(next(self._ids), op)
        try:
            self.send({"id": exchange.id, "op": op, "args": args}, blob)
        except BaseException:
            exchange.finish()
            raise
        exchange.cancelled_by(cancel)
        return exchange

    def _begin(self, id: int, op: str) -> Exchange:
        exchange = Exchange(self, id, op)
        with self._state_lock:
            if self._lost is None:
                self._pending[id] = exchange
                return exchange
        raise self.loss()

    def send(self, header: dict[str, Any], blob: bytes = b"") -> None:
        """Write one message. Raises LinkLost, and RemoteError for one that is too large."""
        try:
            data = frames.encode(header, blob)
        except frames.BrokenFrame as error:
            raise RemoteError("unsupported", str(error), f"the most is {frames.MOST_BLOB >> 20} MiB at once") from error
        if self._lost is not None:
            raise self.loss()
        try:
            with self._send_lock:
                self._channel.send(data)
        except (OSError, EOFError) as error:
            self._end(f"{error or type(error).__name__}")
            raise self.loss() from error

    def forget(self, exchange: Exchange) -> bool:
        """Drop an exchange; True when it had not been answered."""
        with self._state_lock:
            return self._pending.pop(exchange.id, None) is not None

    @property
    def lost(self) -> str | None:
        """Why there will be no more answers; None while the link is up."""
        return self._lost

    def loss(self) -> LinkLost:
        """The error for calls on a link that is gone."""
        why = self._lost or "it was closed"
        return LinkLost(f"the connection to {self._what} was lost: {why}", "nothing is known about what ran there")

    # reading -----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            rest = self._skip_noise()
            decoder = frames.Decoder()
            data = rest
            while data:
                for header, blob in decoder.feed(data):
                    self._hand_out(header, blob)
                data = self._channel.recv(1 << 17)
            why = self._channel.ending()
        except (frames.BrokenFrame, KeyError, TypeError, ValueError) as error:
            why = f"its answer was damaged ({error})"
        except (OSError, EOFError) as error:
            why = str(error) or type(error).__name__
        self._end(why)

    def _skip_noise(self) -> bytes:
        """Read up to and past the nonce; what comes before it is kept as noise. Returns what follows."""
        window = b""
        while data := self._channel.recv(1 << 17):
            window += data
            before, found, after = window.partition(self._nonce)
            if found:
                self.noise = (self.noise + before)[:NOISE_KEPT]
                return after or self._channel.recv(1 << 17)
            keep = len(self._nonce) - 1
            self.noise = (self.noise + window[:-keep])[:NOISE_KEPT]
            window = window[-keep:]
        self.noise = (self.noise + window)[:NOISE_KEPT]
        return b""

    def _hand_out(self, header: dict[str, Any], blob: bytes) -> None:
        id = 0 if "hello" in header else int(header["id"])
        with self._state_lock:
            exchange = self._pending.get(id) if "event" in header else self._pending.pop(id, None)
        if exchange is not None:
            exchange.put((header, blob))

    def _end(self, why: str) -> None:
        with self._state_lock:
            if self._lost is None:
                self._lost = why
            pending, self._pending = list(self._pending.values()), {}
        self._over.set()
        for exchange in pending:
            exchange.lost()

    def close(self) -> None:
        """Let the helper end what it runs, then end the channel. Idempotent."""
        try:
            self.send({"op": "bye"})
        except LinkLost:
            pass  # it has ended already
        self._reader.join(GOODBYE_S)
        self._channel.close()
        self._end("it was closed")


def answer(header: dict[str, Any], blob: bytes) -> Reply:
    """The reply in a final message. Raises RemoteError when the operation failed."""
    error = header.get("error")
    if error is None and "ok" in header:
        return Reply(header["ok"], blob)
    if not isinstance(error, dict):
        raise RemoteError("failed", "the host's answer is neither a result nor an error", "try again; if it repeats, report it")
    data = error.get("data")
    raise RemoteError(
        str(error.get("code", "failed")),
        str(error.get("message", "no reason given")),
        str(error.get("hint", "")),
        data if isinstance(data, dict) else {},
    )
