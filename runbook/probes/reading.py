"""Reading what probes wrote: side file or log, torn lines and foreign text in between included."""

from __future__ import annotations

import json
from typing import Any

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


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A probe was reached. `mode` names a capture or tracing, in which values are not read."""

    probe: int
    pid: int
    start: int
    seq: int
    time: float
    rank: int | None = None
    mode: str = ""
    condition: str = ""
    shown: dict[str, Any] = {}

    def plain(self) -> dict[str, Any]:
        """As expressions see it: the shown values beside pid, rank, seq, time and the probe's index."""
        more = {key: value for key, value in (("mode", self.mode), ("condition", self.condition)) if value}
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
    torn: int = 0


_KINDS: dict[str, type[Armed] | type[Hit] | type[Silence]] = {
    "armed": Armed,
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
    found: dict[type, list[Any]] = {Armed: [], Hit: [], Silence: []}
    torn = 0
    start = head(marker)
    for part in data.decode("utf-8", "replace").split(start)[1:]:
        record = _record(start + part.split("\n", 1)[0])
        if record is None:
            torn += 1
        else:
            found[type(record)].append(record)
    hits = sorted(found[Hit], key=lambda hit: (hit.time, -1 if hit.rank is None else hit.rank, hit.seq))
    return Channel(armed=tuple(found[Armed]), hits=tuple(hits), silences=tuple(found[Silence]), torn=torn)


def _record(line: str) -> Armed | Hit | Silence | None:
    try:
        data, _ = json.JSONDecoder().raw_decode(line)
        return msgspec.convert(data, _KINDS[data["kind"]])
    except (ValueError, KeyError, msgspec.ValidationError):
        return None
