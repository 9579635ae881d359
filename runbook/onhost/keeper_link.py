"""The Unix socket between helper and keeper: one JSON object each way. Its folder's mode keeps everybody else out."""

import json
import os
import socket
from typing import Any, Dict, List, Optional

from . import procs
from .errors import OpError
from .runfolder import FORMAT, RunFolder, read_json

MOST_REQUEST = 8 << 20


def listen(folder: RunFolder) -> socket.socket:
    """A socket in the run's folder. Its address is relative to an open folder, since a socket's path holds 107 bytes at most."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    here = os.open(folder.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.path.exists(folder.socket):
            os.unlink(folder.socket)
        server.bind("/proc/self/fd/%d/keeper.sock" % here)
    finally:
        os.close(here)
    server.listen(16)
    return server


def ask(folder: RunFolder, request: Dict[str, Any], limit_s: float = 20.0) -> Dict[str, Any]:
    """One request to a run's keeper. Raises OpError: its own, or failed when it does not answer."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(limit_s)
    here = os.open(folder.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection.connect("/proc/self/fd/%d/keeper.sock" % here)
        connection.sendall(json.dumps({"format": FORMAT, **request}).encode("ascii"))
        connection.shutdown(socket.SHUT_WR)
        answer = json.loads(receive(connection).decode("ascii"))
    except (OSError, ValueError) as error:
        hint = "look at keeper.err in %s" % folder.path
        raise OpError("failed", "the keeper of run %s does not answer: %s" % (folder.run, error), hint) from error
    finally:
        os.close(here)
        connection.close()
    if "error" in answer:
        raise OpError(**answer["error"])
    return answer["ok"]


def receive(connection: socket.socket) -> bytes:
    """All bytes until the peer has said everything. Raises ValueError for more than MOST_REQUEST."""
    parts: List[bytes] = []
    size = 0
    while size <= MOST_REQUEST:
        part = connection.recv(65536)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
    raise ValueError("more than %d bytes" % MOST_REQUEST)


def living(folder: RunFolder) -> Optional[Dict[str, Any]]:
    """Record of the run's keeper when it is alive on this boot."""
    record = read_json(folder.keeper)
    if record is None or record["boot_id"] != procs.boot_id() or not procs.is_alive(record["pid"], record["start"]):
        return None
    return record
