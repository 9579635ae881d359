"""A TCP connection from inside the host, its bytes carried by messages.

    relay {host, port, connect_s} ── event {connected} ── events {data} + bytes ── answer {closed: peer | us}
    feed + bytes: sent on · feed {eof}: our half is closed · feed {close}: the end

The controller may feed before it hears that the connection stands. An error's `data.outcome` is refused, timeout, unreachable,
reset or resolve.
"""

import errno
import os
import select
import socket
import time
from typing import Any, Dict, List, Optional, Tuple

from .errors import OpError
from .wake import WakePipe

CHUNK = 1 << 16
LOOK_AGAIN_S = 3600.0  # poll() takes no time of any length
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EADDRNOTAVAIL)
_RESET = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED)


def relay(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Connect, then move bytes both ways until either side ends it. `blob` is sent first."""
    with WakePipe() as wake:
        ctx.wake_by(wake.wake)
        try:
            deadline = time.monotonic() + float(args.get("connect_s", 10.0))
            connection = connect(str(args["host"]), int(args["port"]), deadline, wake, ctx)
            with connection:
                peer = connection.getpeername()
                ctx.emit({"connected": "%s:%d" % (peer[0], peer[1])})
                return {"closed": Relay(ctx, connection, wake, blob).move()}, b""
        finally:
            ctx.wake_by(lambda: None)


OPS = {"relay": relay}


def failure(outcome: str, text: str) -> OpError:
    """An error that says which way the network failed."""
    return OpError("failed", text, data={"outcome": outcome})


def connect(host: str, port: int, deadline: float, wake: WakePipe, ctx: Any) -> socket.socket:
    """A connected, non-blocking socket to the first address that answers. Raises OpError, of the last address."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise failure("resolve", "`%s` does not resolve on this host: %s" % (host, error.strerror or error)) from error
    last = failure("resolve", "`%s` has no address" % host)
    for family, kind, protocol, _, address in found:
        try:
            return _connect_one(family, kind, protocol, address, deadline, wake, ctx)
        except OpError as error:
            last = error
        if ctx.cancelled.is_set():
            break
    raise last


def _connect_one(family: int, kind: int, protocol: int, address: Any, deadline: float, wake: WakePipe, ctx: Any) -> socket.socket:
    place = "%s:%s" % (address[0], address[1])
    try:
        connection = socket.socket(family, kind, protocol)
    except OSError as error:
        raise failure("unreachable", "%s: %s" % (place, error.strerror)) from error
    try:
        connection.setblocking(False)
        code = connection.connect_ex(address)
        if code == errno.EINPROGRESS:
            _await_writable(connection, deadline, wake, ctx, place)
            code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise failure(outcome_of(code), "connect to %s: %s" % (place, os.strerror(code)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
    except BaseException:
        connection.close()
        raise


def outcome_of(code: Optional[int]) -> str:
    """The word for an errno."""
    if code == errno.ECONNREFUSED:
        return "refused"
    if code == errno.ETIMEDOUT:
        return "timeout"
    if code in _RESET:
        return "reset"
    return "unreachable" if code in _UNREACHABLE else "error"


def _await_writable(connection: socket.socket, deadline: float, wake: WakePipe, ctx: Any, place: str) -> None:
    poller = select.poll()
    poller.register(connection, select.POLLOUT)
    poller.register(wake, select.POLLIN)
    while True:
        wait_s = deadline - time.monotonic()
        if wait_s <= 0:
            raise failure("timeout", "connect to %s: no answer in time" % place)
        ready = {fd for fd, _ in poller.poll(min(wait_s, LOOK_AGAIN_S) * 1000 + 1)}
        if connection.fileno() in ready:
            return
        if wake.fileno() in ready:
            wake.clear()
        if ctx.cancelled.is_set():
            raise failure("error", "connect to %s: cancelled" % place)


class Relay:
    """Bytes both ways over one connection."""

    def __init__(self, ctx: Any, connection: socket.socket, wake: WakePipe, first: bytes) -> None:
        self._ctx, self._connection, self._wake = ctx, connection, wake
        self._out: List[memoryview] = [memoryview(first)] if first else []
        self._eof = False  # our half is to be closed once everything is sent

    def move(self) -> str:
        """Until the peer has closed ("peer") or the controller wants no more ("us"). Raises OpError for a reset."""
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        poller.register(self._connection, 0)
        while True:
            if self._take_fed():
                return "us"
            if self._eof and not self._out:
                self._eof = False
                self._connection.shutdown(socket.SHUT_WR)
            events = (select.POLLIN if self._ctx.has_room() else 0) | (select.POLLOUT if self._out else 0)
            poller.modify(self._connection, events)
            for fd, event in poller.poll():
                if fd == self._wake.fileno():
                    self._wake.clear()
                elif not self._serve(event):
                    return "peer"

    def _take_fed(self) -> bool:
        """Queue what the controller sent; True when it wants the end."""
        if self._ctx.cancelled.is_set():
            return True
        while not self._ctx.inbox.empty():
            args, blob = self._ctx.inbox.get()
            if args.get("close"):
                return True
            if blob:
                self._out.append(memoryview(blob))
            self._eof = self._eof or bool(args.get("eof"))
        return False

    def _serve(self, event: int) -> bool:
        """Send and receive once; False when the peer has closed."""
        try:
            if event & select.POLLOUT and self._out:
                sent = self._connection.send(self._out[0])
                self._out[0] = self._out[0][sent:]
                if not self._out[0]:
                    self._out.pop(0)
            if event & ~select.POLLOUT:
                data = self._connection.recv(CHUNK)
                if not data:
                    return False
                self._ctx.emit({"data": True}, data)
        except BlockingIOError:
            return True
        except OSError as error:
            raise failure(outcome_of(error.errno), "the connection ended: %s" % error.strerror) from error
        return True
