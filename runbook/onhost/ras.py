"""Asking NCCL's RAS service on this host: plain text over TCP, no client program needed. It answers for the whole job."""

import socket
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from . import procs, ras_read
from .listeners import listeners
from .sources import absent, blind, seen

ADDRESS = "localhost:28028"  # NCCL's default, since 2.24
GATHER_S = 3  # how long RAS itself waits for ranks that do not answer
MOST_BYTES = 16 << 20
ASK = b"timeout %d\nset format json\nverbose status\n" % GATHER_S
"""A version without JSON answers the second command with an error and the third in text."""

Targets = List[Tuple[int, int, Optional[int]]]


def address(targets: Targets) -> str:
    """NCCL_RAS_ADDR of the first process that has it, else the default."""
    found = (procs.environ_value(pid, "NCCL_RAS_ADDR") for pid, _, _ in targets)
    return next((value for value in found if value), ADDRESS)


def split_address(text: str) -> Tuple[str, int]:
    """(host, port) of `host:port` or `[v6]:port`. Raises ValueError."""
    host, _, port = text.rpartition(":")
    return host.strip("[]") or "localhost", int(port)


def look(ctx: Any, targets: Targets, limit_s: float) -> Dict[str, Any]:
    """An outcome of rows (see `ras_read`), with `raw` beside it where something was said."""
    where = address(targets)
    try:
        host, port = split_address(where)
    except ValueError:
        return blind("NCCL_RAS_ADDR is %r, which is no host:port" % where[:60])
    owners: Set[int] = {row["pid"] for row in listeners(ctx, {"port": port}, b"")[0]}
    if not owners:
        return absent("NCCL's RAS does not listen on %s: no NCCL communicator yet, NCCL before 2.24, or NCCL_RAS_ENABLE=0" % where)
    if 0 not in owners and not owners & {pid for pid, _, _ in targets}:
        return blind("RAS on %s belongs to another job (pid %d): give each launch its own NCCL_RAS_ADDR" % (where, min(owners)))
    try:
        raw = ask(host, port, time.monotonic() + limit_s).decode("utf-8", "replace")
        answer = ras_read.read(raw)
    except OSError as error:
        return blind("RAS on %s: %s" % (where, error.strerror or "no answer in %.0f s" % limit_s))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return blind("RAS on %s gave no status that can be read: %s" % (where, str(error)[:120]))
    if not answer.rows:
        return dict(absent("RAS: %d communicators, and no rank differs" % answer.communicators), raw=raw)
    return dict(seen(answer.rows), raw=raw)


def ask(host: str, port: int, deadline: float) -> bytes:
    """The whole conversation's answer. Raises OSError, also when it is not over in time."""
    with socket.create_connection((host, port), timeout=max(0.05, deadline - time.monotonic())) as stream:
        stream.sendall(ASK)
        parts: List[bytes] = []
        size = 0
        while size < MOST_BYTES:
            stream.settimeout(max(0.05, deadline - time.monotonic()))
            part = stream.recv(65536)
            if not part or time.monotonic() > deadline:
                break
            parts.append(part)
            size += len(part)
        return b"".join(parts)
