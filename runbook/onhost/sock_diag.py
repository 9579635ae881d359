"""All TCP sockets of this network namespace with their byte counters, by one netlink question: what `ss -tin` shows.

Needs no rights. Structures: linux/inet_diag.h and linux/tcp.h, whose layouts only ever grow at the end.
"""

import os
import socket
import struct
from typing import List, NamedTuple, Optional

_NETLINK_SOCK_DIAG = 4
_ALL_FAMILIES = 18  # TCPDIAG_GETSOCK: IPv4 and IPv6 in one walk of the kernel's table, which is most of the cost
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_DONE, _ERROR = 3, 2
_INET_DIAG_INFO = 2
_HEADER = struct.Struct("=IHHII")
_MESSAGE = struct.Struct("=BBBB")
_PORTS = struct.Struct("!HH")
_COUNTS = struct.Struct("=IIIII")  # expires, rqueue, wqueue, uid, inode
_TCP_INFO_LAST_DATA_RECV = 52
_TCP_INFO_BYTES = 120  # u64 bytes_acked, u64 bytes_received
_LISTEN, _TIME_WAIT = 10, 6
MOST_READS = 4096

STATES = (
    "", "ESTAB", "SYN-SENT", "SYN-RECV", "FIN-WAIT-1", "FIN-WAIT-2", "TIME-WAIT", "UNCONN", "CLOSE-WAIT", "LAST-ACK", "LISTEN", "CLOSING",
)  # fmt: skip
"""By the kernel's number, named as `ss` names them."""


class Connection(NamedTuple):
    """A TCP socket. Counters are bytes since it was opened, None where the kernel was not asked."""

    inode: int
    state: str
    local: str
    peer: str
    unread: int
    unsent: int
    received: Optional[int] = None
    sent: Optional[int] = None
    quiet_s: Optional[float] = None


def connections() -> List[Connection]:
    """Every socket that has an owner, listening ones too. Raises OSError where the kernel does not answer such a question."""
    return _dump(~(1 << _TIME_WAIT) & 0xFFF, _INET_DIAG_INFO)


def listening() -> List[Connection]:
    """Every listening socket, without counters. Raises OSError."""
    return _dump(1 << _LISTEN, 0)


def _dump(states: int, extension: int) -> List[Connection]:
    found: List[Connection] = []
    question = struct.pack("=BBBB48xII", 0, 0, 0, 1 << (extension - 1) if extension else 0, states, 0)
    header = _HEADER.pack(_HEADER.size + len(question), _ALL_FAMILIES, _REQUEST_DUMP, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(1.0)
        link.send(header + question)
        for _ in range(MOST_READS):
            if _take(link.recv(1 << 18), found):
                break
    return found


def _take(data: bytes, found: List[Connection]) -> bool:
    """Read one part of the answer; whether it is the last. Raises OSError."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind = _HEADER.unpack_from(data, at)[:2]
        if kind == _ERROR:
            number = -struct.unpack_from("=i", data, at + _HEADER.size)[0]
            raise OSError(number, os.strerror(number))
        if kind == _DONE or length < _HEADER.size:
            return True
        one = _connection(data, at + _HEADER.size, at + length)
        if one is not None:
            found.append(one)
        at += (length + 3) & ~3
    return False


def _connection(data: bytes, at: int, end: int) -> Optional[Connection]:
    family, state = _MESSAGE.unpack_from(data, at)[:2]
    _, unread, unsent, _, inode = _COUNTS.unpack_from(data, at + 52)
    if not inode:
        return None
    local_port, peer_port = _PORTS.unpack_from(data, at + 4)
    local, peer = address(family, data[at + 8 : at + 24], local_port), address(family, data[at + 24 : at + 40], peer_port)
    name = STATES[state] if state < len(STATES) else str(state)
    info = _attribute(data, at + 72, end)
    if info is None or len(info) < _TCP_INFO_BYTES + 16:
        return Connection(inode, name, local, peer, unread, unsent)
    sent, received = struct.unpack_from("=QQ", info, _TCP_INFO_BYTES)
    quiet_ms = struct.unpack_from("=I", info, _TCP_INFO_LAST_DATA_RECV)[0]
    return Connection(inode, name, local, peer, unread, unsent, received, sent, quiet_ms / 1000.0)


def _attribute(data: bytes, at: int, end: int) -> Optional[bytes]:
    """The payload of INET_DIAG_INFO."""
    while at + 4 <= end:
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            return None
        if kind == _INET_DIAG_INFO:
            return data[at + 4 : at + length]
        at += (length + 3) & ~3
    return None


def address(family: int, raw: bytes, port: int) -> str:
    """address:port; an IPv4 address mapped into IPv6 is written as IPv4, so that both ends of a connection look alike."""
    if family == socket.AF_INET:
        return "%s:%d" % (socket.inet_ntop(family, raw[:4]), port)
    if raw.startswith(b"\0" * 10 + b"\xff\xff"):
        return "%s:%d" % (socket.inet_ntop(socket.AF_INET, raw[12:16]), port)
    return "[%s]:%d" % (socket.inet_ntop(socket.AF_INET6, raw), port)
