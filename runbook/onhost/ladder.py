"""A ladder of signals: `TERM 15s`, `KILL 10s`; and whom a session's ladder reaches."""

import os
import re
import signal
from typing import Dict, List, NamedTuple, Sequence

from . import procs
from .errors import OpError

_RUNG = re.compile(r"(?:SIG)?([A-Z][A-Z0-9]*)\s+((?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+)")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Rung(NamedTuple):
    """One signal and how long to wait for its effect."""

    name: str
    number: int
    wait_s: float


def parse_ladder(texts: Sequence[str]) -> List[Rung]:
    """Rungs from their texts. Raises OpError for one that cannot be read."""
    return [_parse_rung(text) for text in texts]


def _parse_rung(text: str) -> Rung:
    found = _RUNG.fullmatch(text)
    number = getattr(signal, "SIG" + found.group(1), None) if found else None
    if found is None or not isinstance(number, signal.Signals):
        raise OpError("bad_request", "`%s` is not a rung of a ladder" % text, "write a signal and a wait, as in `TERM 15s`")
    wait_s = sum(float(count) * _SECONDS[unit] for count, unit in _PART.findall(found.group(2)))
    return Rung(found.group(1), int(number), wait_s)


def signal_name(number: int) -> str:
    """SIGKILL for 9; a real-time signal by its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "SIG%d" % number


def session_members(leader: int) -> Dict[int, procs.Stat]:
    """What still lives of the session or group that `leader` founded, zombies left out."""
    table = procs.process_table()
    return {pid: stat for pid, stat in table.items() if leader in (stat.sid, stat.pgid) and stat.state not in "ZX"}


def signal_session(members: Dict[int, procs.Stat], rung: Rung) -> None:
    """Send the rung's signal to every group among the members. A stopped group is continued, or it could not act on it."""
    for pgid in {stat.pgid for stat in members.values()}:
        _signal_group(pgid, rung.number)
        if rung.name != "KILL" and any(stat.state in "Tt" for stat in members.values() if stat.pgid == pgid):
            _signal_group(pgid, signal.SIGCONT)


def _signal_group(pgid: int, number: int) -> None:
    try:
        os.killpg(pgid, number)
    except (ProcessLookupError, PermissionError):
        pass  # gone, or another user's by now: the look after the rung tells which
