"""Sockets to an SSH server: straight TCP, or the two ends of a ProxyCommand."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any

from runbook.hosts.base import ConnectFailed, ResolveFailed
from runbook.model.clock import Clock

_STAGGER_S = 0.25  # a second address is tried beside the first after this long (RFC 8305, section 5)
_FAMILIES = {"any": socket.AF_UNSPEC, "inet": socket.AF_INET, "inet6": socket.AF_INET6}
_KEEP_STDERR = 4096


def dial(host: str, port: int, *, budget_s: float, clock: Clock, family: str = "any") -> socket.socket:
    """A connected TCP socket with small writes sent at once. Addresses of both families race, v6 and v4 in turn.

    Without TCP_NODELAY every small request waits ~40 ms for the peer's delayed acknowledgement. Raises ResolveFailed, ConnectFailed.
    """
    try:
        found = socket.getaddrinfo(host, port, _FAMILIES.get(family, socket.AF_UNSPEC), socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ResolveFailed(f"the name `{host}` cannot be resolved: {reason}", "check the spelling, ssh_config and DNS") from None
    deadline = clock.monotonic() + budget_s
    sock = _race(_alternate(found), deadline, clock, f"{host}:{port}", budget_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return sock


def limit_silence(sock: socket.socket, seconds: float) -> None:
    """Let the kernel drop the connection when sent bytes stay unacknowledged for `seconds`, where it knows how."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))


Address = tuple[int, int, int, str, Any]


def _alternate(found: Sequence[Address]) -> list[Address]:
    first = [address for address in found if address[0] == found[0][0]]
    rest = [address for address in found if address[0] != found[0][0]]
    return [address for address in chain(*zip_longest(first, rest)) if address is not None]


def _race(addresses: list[Address], deadline: float, clock: Clock, where: str, budget_s: float) -> socket.socket:
    errors: list[OSError] = []
    with selectors.DefaultSelector() as pending:
        try:
            next_start = clock.monotonic()
            while (addresses or pending.get_map()) and clock.monotonic() < deadline:
                if addresses and (clock.monotonic() >= next_start or not pending.get_map()):
                    _start(addresses.pop(0), pending, errors)
                    next_start = clock.monotonic() + _STAGGER_S
                    continue
                for key, _ in pending.select(max(0.0, (min(deadline, next_start) if addresses else deadline) - clock.monotonic())):
                    sock = key.fileobj
                    assert isinstance(sock, socket.socket)
                    pending.unregister(sock)
                    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if code == 0:
                        sock.setblocking(True)
                        return sock
                    sock.close()
                    errors.append(OSError(code, os.strerror(code)))
        finally:
            for key in list(pending.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
    if not errors:
        hint = "a firewall may drop the packets; raise ConnectTimeout in ssh_config for a slow link"
        raise ConnectFailed(f"{where} did not accept a connection within {budget_s:.0f} s", hint)
    raise refused(errors[-1], where)


def _start(address: Address, pending: selectors.BaseSelector, errors: list[OSError]) -> None:
    family, kind, protocol, _, where = address
    try:
        sock = socket.socket(family, kind, protocol)
    except OSError as error:  # a machine without IPv6
        errors.append(error)
        return
    sock.setblocking(False)
    code = sock.connect_ex(where)
    if code in (0, errno.EINPROGRESS):
        pending.register(sock, selectors.EVENT_WRITE)
        return
    sock.close()
    errors.append(OSError(code, os.strerror(code)))


def refused(error: OSError, where: str) -> ConnectFailed:
    """A TCP failure in words."""
    if error.errno == errno.ECONNREFUSED:
        return ConnectFailed(f"nothing listens on {where} (connection refused)", "check the port, and that sshd runs there")
    return ConnectFailed(f"{where} cannot be reached: {error.strerror or error}", "check the address, VPN and routes")


class ProxyChild:
    """A ProxyCommand: a shell command whose stdin and stdout are the connection. `sock` is our end.

    Its stderr is always read, so that it never blocks on a full pipe; the last of it is kept for the error message.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        self.sock, theirs = socket.socketpair()
        self._said = bytearray()
        with theirs:
            self._child = subprocess.Popen(
                ["/bin/sh", "-c", command], stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.PIPE, start_new_session=True
            )
        self._drain = threading.Thread(target=self._read_stderr, name="proxy-stderr", daemon=True)
        self._drain.start()

    def _read_stderr(self) -> None:
        assert self._child.stderr is not None
        with self._child.stderr as stream:
            while data := os.read(stream.fileno(), 4096):
                self._said = (self._said + data)[-_KEEP_STDERR:]

    def said(self) -> str:
        """The last line of its stderr, and how it ended if it has."""
        code = self._child.poll()
        if code is not None:
            self._drain.join(1.0)
        lines = self._said.decode(errors="replace").strip().splitlines()
        ending = "" if code is None else f"exited {code}" if code >= 0 else f"killed by signal {-code}"
        return ": ".join(part for part in (ending, lines[-1] if lines else "") if part)

    def close(self) -> None:
        """End the command and all that it started."""
        self.sock.close()
        try:
            os.killpg(self._child.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        try:
            self._child.wait(2)
        except subprocess.TimeoutExpired:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()
