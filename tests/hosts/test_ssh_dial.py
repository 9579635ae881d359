"""Sockets to a server: refused, unknown, silent; both address families; a ProxyCommand as a connection."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from runbook.hosts.base import ConnectFailed, ResolveFailed
from runbook.hosts.dial import ProxyChild, dial
from runbook.model.clock import SystemClock
from tests.support.sshd import free_port, until

CLOCK = SystemClock()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_small_writes_are_sent_at_once(listener: socket.socket) -> None:
    with dial("127.0.0.1", listener.getsockname()[1], budget_s=5, clock=CLOCK) as sock:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) and sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_a_name_with_two_families_connects_by_the_one_that_listens(listener: socket.socket) -> None:
    """`localhost` is ::1 and 127.0.0.1; only the second has a listener."""
    with dial("localhost", listener.getsockname()[1], budget_s=5, clock=CLOCK) as sock:
        assert sock.getpeername()[0] == "127.0.0.1"


def test_nothing_listens_is_said() -> None:
    with pytest.raises(ConnectFailed, match=r"nothing listens on 127\.0\.0\.1") as refused:
        dial("127.0.0.1", free_port(), budget_s=5, clock=CLOCK)
    assert refused.value.stage == "tcp" and refused.value.hint


def test_a_name_that_does_not_exist_is_a_resolve_failure() -> None:
    with pytest.raises(ResolveFailed, match=r"no-such-host\.invalid"):
        dial("no-such-host.invalid", 22, budget_s=5, clock=CLOCK)


def test_a_label_that_is_too_long_is_a_resolve_failure() -> None:
    with pytest.raises(ResolveFailed):
        dial("a" * 70 + ".example", 22, budget_s=5, clock=CLOCK)


def test_packets_that_vanish_end_within_the_budget() -> None:
    """A listener whose queue is full drops the first packet of a connection, as a firewall does."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
            fillers.append(filler)
        before = CLOCK.monotonic()
        with pytest.raises(ConnectFailed, match="did not accept a connection within 0 s"):
            dial("127.0.0.1", server.getsockname()[1], budget_s=0.3, clock=CLOCK)
        assert CLOCK.monotonic() - before < 1.0
        for filler in fillers:
            filler.close()


def test_a_proxy_command_is_a_two_way_connection() -> None:
    proxy = ProxyChild("cat")
    proxy.sock.sendall(b"hello")
    assert proxy.sock.recv(100) == b"hello"
    proxy.close()


def test_the_words_of_a_proxy_that_fails_are_kept() -> None:
    proxy = ProxyChild("echo 'no route to bastion' >&2; exit 7")
    assert proxy.sock.recv(100) == b""
    until(lambda: proxy.said() == "exited 7: no route to bastion", 5)
    proxy.close()


def test_a_proxy_that_talks_a_lot_on_stderr_does_not_stall() -> None:
    proxy = ProxyChild("head -c 1000000 /dev/zero | tr '\\0' x >&2; echo through")
    assert proxy.sock.recv(100) == b"through\n"
    proxy.close()


def test_closing_a_proxy_ends_all_that_it_started() -> None:
    proxy = ProxyChild("sleep 300 & echo $!; wait")
    child = int(proxy.sock.recv(100))
    proxy.close()
    status = Path(f"/proc/{child}/status")
    until(lambda: not status.exists() or "\nState:\tZ" in status.read_text(), 5)
