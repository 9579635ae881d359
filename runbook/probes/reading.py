"""Reading what probes wrote: side file or log, torn lines and foreign text in between included."""

from __future__ import annotations

import json
from typing import Any, Union

import msgspec


class Armed(msgspec.Struct, frozen=True, kw_only=True):
    """A process that loaded the patched file. `how`: import, fork, or late when the first record failed.

    `sha256` is of the file as it lay on disk at that moment; `start` in clock ticks since boot; times are host unix seconds.
    """

    pid: int
    start: int
    time: float
    file: str
    sha256: str
    how: str
    rank: int | None = None
    module: str = ""
    python: str = ""
    argv0: str = ""
    ppid: int = 0


class Unarmed(msgspec.Struct, frozen=True, kw_only=True):
    """A process loaded the patched file, but the code that reports could not start there. `how`: the exception."""

    pid: int
    start: int
    time: float
    how: str


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The import of the patched file came to its end.

    replaced: probe number -> what runs instead of its function. unseen: numbers of those that could not be followed.
    """

    pid: int
    start: int
    time: float
    replaced: dict[str, str] = {}
    unseen: tuple[int, ...] = ()


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """The first object of a class that came out of the constructor of `alive`: `made` is that class or a subclass."""

    alive: str
    made: str = msgspec.field(name="class")
    pid: int
    start: int
    time: float
    replaced: dict[str, str] = {}
    unseen: tuple[int, ...] = ()


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A probe was reached. `mode` names a capture or tracing, in which values are not read.

    exit: return or raise, of an exit probe; raised: the exception's type and text. saved: what became of each tensor:
    name with file, shape, dtype and bytes, or with error.
    """

    probe: int
    pid: int
    start: int
    seq: int
    time: float
    rank: int | None = None
    mode: str = ""
    condition: str = ""
    exit: str = ""
    raised: str = ""
    shown: dict[str, Any] = {}
    saved: tuple[dict[str, Any], ...] = ()

    def plain(self) -> dict[str, Any]:
        """As expressions see it: the shown values beside pid, rank, seq, time and the probe's index."""
        told: dict[str, Any] = {"mode": self.mode, "condition": self.condition, "saved": list(self.saved)}
        more: dict[str, Any] = {key: value for key, value in told.items() if value}
        if self.exit:
            more.update(exit=self.exit, raised=self.raised or None)
        return {
            **self.shown,
            **more,
            "probe": self.probe,
            "pid": self.pid,
            "process_start": self.start,
            "rank": self.rank,
            "seq": self.seq,
            "time": self.time,
        }


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """Hits of a probe may be missing from `time` on. `kind`: dropped (bucket empty, to `until`), spent or graph (to the end)."""

    kind: str
    probe: int
    pid: int
    start: int
    time: float
    until: float | None = None
    how: str = ""

    def covers(self, since: float, until: float) -> bool:
        """Whether it lasts into that stretch of host time."""
        return self.time <= until and (self.until is None or self.until >= since)


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """All records of one patch, sorted by time, rank and seq. `torn` lines carried the marker and could not be read."""

    armed: tuple[Armed, ...] = ()
    hits: tuple[Hit, ...] = ()
    silences: tuple[Silence, ...] = ()
    loaded: tuple[Loaded, ...] = ()
    built: tuple[Built, ...] = ()
    unarmed: tuple[Unarmed, ...] = ()
    torn: int = 0


Record = Union[Armed, Unarmed, Loaded, Built, Hit, Silence]
_KINDS: dict[str, type[Record]] = {
    "armed": Armed,
    "unarmed": Unarmed,
    "loaded": Loaded,
    "built": Built,
    "hit": Hit,
    "dropped": Silence,
    "spent": Silence,
    "graph": Silence,
}


def head(marker: str) -> str:
    """The first bytes of each record: what a log is searched for."""
    return f'{{"runbook": {json.dumps(marker)},'


def read(data: bytes, marker: str) -> Channel:
    """The records in these bytes. A record may follow other text on its line, and be cut anywhere."""
    found: dict[type, list[Any]] = {Armed: [], Unarmed: [], Loaded: [], Built: [], Hit: [], Silence: []}
    torn = 0
    start = head(marker)
    for part in data.decode("utf-8", "replace").split(start)[1:]:
        record = _record(start + part.split("\n", 1)[0])
        if record is None:
            torn += 1
        else:
            found[type(record)].append(record)
    hits = sorted(found[Hit], key=lambda hit: (hit.time, -1 if hit.rank is None else hit.rank, hit.seq))
    return Channel(
        armed=tuple(found[Armed]),
        hits=tuple(hits),
        silences=tuple(found[Silence]),
        loaded=tuple(found[Loaded]),
        built=tuple(found[Built]),
        unarmed=tuple(found[Unarmed]),
        torn=torn,
    )


def _record(line: str) -> Record | None:
    try:
        data, _ = json.JSONDecoder().raw_decode(line)
        return msgspec.convert(data, _KINDS[data["kind"]])
    except (ValueError, KeyError, msgspec.ValidationError):
        return None
