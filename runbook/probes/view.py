"""What was seen of a patch and a window, as the judge gets it. Pure."""

from __future__ import annotations

from typing import Union

import msgspec

from runbook.model.sample import Blind, Seen
from runbook.probes.reading import Channel


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """A .pyc of the patched file. `time`: when it was written, host unix seconds.

    of_the_patch: its header carries the patched file's time and size. unchecked: Python never compares it with the source.
    """

    path: str
    time: float
    of_the_patch: bool = False
    unchecked: bool = False


class View(msgspec.Struct, frozen=True, kw_only=True):
    """All times are host unix seconds; `error_s` is how far controller times may be off when turned into them.

    `side` holds the bytes of the side file that were read, `log` the number of records in the server's log inside the window;
    `alive` the (pid, start) of the run's live processes; `imports_from` the file that the launch's interpreter imports now.
    `alive_names` are the classes that must have been built; `import_errors` lines of the log that tell of a failed import;
    `strangers` says which process runs as another user, empty when none does.
    """

    channel: Channel
    path: str
    sha256: str
    written: float
    since: float
    until: float
    error_s: float = 0.0
    side: Union[Seen[int], Blind] = Blind("not asked")
    log: Union[Seen[int], Blind] = Blind("not asked")
    alive: Union[Seen[frozenset[tuple[int, int]]], Blind] = Blind("not asked")
    launched: float | None = None
    ended: float | None = None
    imports_from: Union[Seen[str], Blind] = Blind("not asked")
    alive_names: tuple[str, ...] = ()
    import_errors: tuple[str, ...] = ()
    bytecode: tuple[Compiled, ...] = ()
    strangers: str = ""


def read_compiled(path: str, head: bytes, time: float, source_mtime: float, source_size: int) -> Compiled:
    """A .pyc by its first 16 bytes: magic number, flags, then the source's time in seconds and its size, each little-endian."""
    flags, mtime, size = (int.from_bytes(head[at : at + 4], "little") for at in (4, 8, 12))
    hashed = bool(flags & 1)
    same = (mtime, size) == (int(source_mtime) & 0xFFFFFFFF, source_size & 0xFFFFFFFF)
    return Compiled(path=path, time=time, of_the_patch=not hashed and len(head) >= 16 and same, unchecked=hashed and not flags & 2)


def clock(t: float) -> str:
    """A host time for people."""
    return f"{t:.3f}"
