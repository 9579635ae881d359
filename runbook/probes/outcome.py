"""What the records of a patch say about a window: fired, not_reached, not_armed or unseen. Pure.

a hit in the window                                  -> fired
nothing could be read                                -> unseen
no process of the run loaded these bytes             -> not_armed
loaded, no hit, another explanation is left          -> unseen
loaded, no hit, every other explanation is excluded  -> not_reached
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Union

import msgspec

from runbook.model.sample import Blind, Seen
from runbook.probes.reading import Armed, Channel, Hit, Silence


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen. All times are host unix seconds; `error_s` is how far controller times may be off when turned into them.

    `side` holds the bytes of the side file that were read, `log` the number of records in the server's log inside the window;
    `alive` the (pid, start) of the run's live processes; `imports_from` the file that the launch's interpreter imports now.
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


class Excluded(msgspec.Struct, frozen=True):
    """Another explanation of the silence, and what excludes it."""

    explanation: str
    by: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """`left` are the explanations that nothing excludes; `reason` is for people."""

    outcome: str
    reason: str
    hits: tuple[Hit, ...] = ()
    imports: tuple[Armed, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    left: tuple[str, ...] = ()


def judge(view: View) -> Outcome:
    """The first row of the table above that holds."""
    hits = tuple(hit for hit in view.channel.hits if view.since - view.error_s <= hit.time <= view.until + view.error_s)
    imports = tuple(armed for armed in view.channel.armed if armed.sha256 == view.sha256)
    if hits:
        pids = sorted({hit.pid for hit in hits})
        reason = f"{len(hits)} hit{'s' if len(hits) > 1 else ''} in the window, from pid {', '.join(map(str, pids))}"
        return Outcome(outcome="fired", reason=reason, hits=hits, imports=imports)
    if isinstance(view.side, Blind) and isinstance(view.log, Blind):
        return Outcome(outcome="unseen", reason=f"no record could be read: {view.side.reason}; {view.log.reason}", left=(view.side.reason,))
    if not imports:
        return _not_armed(view)
    excluded, left = [], []
    for explanation, by, holds in _explanations(view, imports):
        if holds:
            left.append(f"{explanation}: {holds}")
        else:
            excluded.append(Excluded(explanation, by))
    if left:
        reason = f"no hit in the window, but that proves nothing: {left[0]}"
        return Outcome(outcome="unseen", reason=reason, imports=imports, excluded=tuple(excluded), left=tuple(left))
    pids = sorted({armed.pid for armed in _living(view, imports)})
    reason = f"pid {', '.join(map(str, pids))} loaded the patched file and did not reach a probe in the window"
    return Outcome(outcome="not_reached", reason=reason, imports=imports, excluded=tuple(excluded))


def _explanations(view: View, imports: tuple[Armed, ...]) -> Iterator[tuple[str, str, str]]:
    """(explanation, what excludes it, or why it is left: empty when excluded)."""
    first = imports[0]
    yield "another file was imported", f"pid {first.pid} loaded {first.file}, sha256 {first.sha256[:12]}: the patched bytes", ""
    yield "the process is older than the patch", f"it loaded the patched bytes {first.time - view.written:.1f}s after they were written", ""
    yield "stale bytecode ran", "the record of the load is written by the patched code itself", ""
    yield "the stream was buffered or is another log", "records go to a file of their own, one write each", _side_fault(view)
    yield "the importing process has ended", "it is alive", _death(view, imports)
    yield "it was loaded after the window", f"loaded before {_clock(view.until)}", _late(view, imports)
    silences = [silence for silence in view.channel.silences if silence.kind != "graph" and silence.covers(view.since, view.until)]
    yield "the bucket was used up", "no record of an empty bucket reaches into the window", _empty(silences)
    graphs = [silence for silence in view.channel.silences if silence.kind == "graph" and silence.time <= view.until]
    early = [silence for silence in view.channel.silences if silence.kind == "spent" and silence.time <= view.until]
    yield "a graph replays it without Python", "no capture and no torch.compile trace came past the probe", _graph(graphs or early)
    yield "records were torn", "every record could be read", f"{view.channel.torn} could not be read" if view.channel.torn else ""


def _side_fault(view: View) -> str:
    return f"the side file was not read ({view.side.reason}), only the log" if isinstance(view.side, Blind) else ""


def _living(view: View, imports: tuple[Armed, ...]) -> list[Armed]:
    if isinstance(view.alive, Blind):
        return []
    return [armed for armed in imports if (armed.pid, armed.start) in view.alive.value]


def _death(view: View, imports: tuple[Armed, ...]) -> str:
    if isinstance(view.alive, Blind):
        return f"the process table could not be read ({view.alive.reason})"
    return "" if _living(view, imports) else f"pid {', '.join(str(armed.pid) for armed in imports)} is gone"


def _late(view: View, imports: tuple[Armed, ...]) -> str:
    return f"loaded at {_clock(imports[0].time)}" if all(armed.time > view.until + view.error_s for armed in imports) else ""


def _empty(silences: list[Silence]) -> str:
    if not silences:
        return ""
    return f"pid {silences[0].pid} reached probe {silences[0].probe} and had used up its hits at {_clock(silences[0].time)}"


def _graph(silences: list[Silence]) -> str:
    if not silences:
        return ""
    how = silences[0].how or "its hits were used up before, so that a capture would not have been told"
    return f"pid {silences[0].pid}, probe {silences[0].probe}: {how}; run it eagerly, as with --disable-cuda-graph"


def _not_armed(view: View) -> Outcome:
    """Why the running server does not have the patched file, as far as it can be seen."""
    others = [armed for armed in view.channel.armed if armed.sha256 != view.sha256]
    if isinstance(view.alive, Seen) and not view.alive.value and view.ended is None:
        why = "no process of this run is there"
    elif others:
        why = (
            f"pid {others[0].pid} loaded {others[0].file} with sha256 {others[0].sha256[:12]}, not the {view.sha256[:12]} that was written"
        )
    elif view.launched is not None and view.written and view.launched < view.written - 2 * view.error_s:
        why = f"the server was started {view.written - view.launched:.1f}s before the patch was written"
    elif isinstance(view.imports_from, Seen) and view.imports_from.value != view.path:
        why = f"its interpreter imports {view.imports_from.value}, the patch is in {view.path}"
    elif view.ended is not None:
        why = "the server ended without having imported it"
    else:
        why = "no process of the server has imported it: another module does this work, or it is imported later"
    return Outcome(outcome="not_armed", reason=f"the patched file {view.path} was not loaded: {why}", left=(why,))


def _clock(t: float) -> str:
    return f"{t:.3f}"
