"""The other explanations of a silence, and what excludes each. Pure.

An explanation is excluded by something that was seen, never by default; one that nothing excludes keeps the silence from being
evidence. Records: `armed` when the file begins to load, `loaded` when its import has ended, `built` when a class was constructed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from runbook.model.sample import Blind, Seen
from runbook.probes.reading import Armed, Built, Loaded, Silence
from runbook.probes.view import View, clock

_Record = TypeVar("_Record", Loaded, Built)
IMPORT_FAILED = "its import failed and the engine went on without it"
REPLAYED = "a graph replays it without Python"
Row = tuple[str, str, str]
"""(explanation, what excludes it, or why it is left: empty when excluded)."""


def explanations(view: View, imports: tuple[Armed, ...]) -> Iterator[Row]:
    """All of them, for processes that loaded the patched bytes."""
    first, living = imports[0], _living(view, imports)
    yield "another copy of the file was imported", f"pid {first.pid} loaded {first.file}, sha256 {first.sha256[:12]}: the patched bytes", ""
    yield "the process is older than the patch", f"it loaded the patched bytes {first.time - view.written:.1f}s after they were written", ""
    yield "stale bytecode ran", "the record of the load is written by the patched code itself", ""
    yield "the stream was buffered", "a record is one write to a file of its own, past every buffer", _side_fault(view)
    yield (
        "the log was rotated or is another one",
        "records do not need the log: the side file was read from its beginning",
        _side_fault(view),
    )
    yield "the importing process has ended", "it is alive", _death(view, imports)
    yield "it was loaded after the window", f"loaded before {clock(view.until)}", _late(view, imports)
    yield _import_error(view, living or list(imports))
    yield _replaced(view, living or list(imports))
    if view.alive_names:
        yield _never_built(view, living or list(imports))
    yield from swallowed(view)


def swallowed(view: View) -> Iterator[Row]:
    """Those that hide some of the hits as well as all of them."""
    yield _empty_bucket(view)
    graphs = [silence for silence in view.channel.silences if silence.kind == "graph" and silence.time <= view.until]
    early = [silence for silence in view.channel.silences if silence.kind == "spent" and silence.time <= view.until]
    yield REPLAYED, "no capture and no torch.compile trace came past the probe", _graph(graphs or early)
    yield "records were torn", "every record could be read", f"{view.channel.torn} could not be read" if view.channel.torn else ""


def not_armed(view: View) -> tuple[str, str]:
    """(outcome, why) when no process loaded the patched bytes. Someone who compiled them without a report makes it unseen."""
    if view.channel.unarmed:
        one = view.channel.unarmed[0]
        return "unseen", f"pid {one.pid} loaded it, but the code that reports could not start there: {one.how}"
    others = [armed for armed in view.channel.armed if armed.sha256 != view.sha256]
    if isinstance(view.alive, Seen) and not view.alive.value and view.ended is None:
        return "not_armed", "no process of this run is there"
    if others:
        first = others[0]
        return (
            "not_armed",
            f"pid {first.pid} loaded {first.file} with sha256 {first.sha256[:12]}, not the {view.sha256[:12]} that was written",
        )
    if view.launched is not None and view.written and view.launched < view.written - 2 * view.error_s:
        return "not_armed", f"the server was started {view.written - view.launched:.1f}s before the patch was written"
    if isinstance(view.imports_from, Seen) and view.imports_from.value != view.path:
        return "not_armed", f"its interpreter imports {view.imports_from.value}, the patch is in {view.path}"
    if view.strangers:
        return "unseen", f"{view.strangers}, who cannot write to the side file of {view.path}"
    for compiled in view.bytecode:
        if compiled.unchecked:
            return "not_armed", f"Python takes {compiled.path} without looking at the source (unchecked hash-based bytecode)"
        if compiled.of_the_patch:
            why = f"somebody compiled the patched file into {compiled.path} at {clock(compiled.time)}, yet nothing of it reported"
            return "unseen", f"{why}: could that process write to the side file?"
    if view.import_errors:
        return "not_armed", f"the log tells of an import that failed: `{view.import_errors[0]}`"
    if view.ended is not None:
        return "not_armed", "the server ended without having imported it"
    return "not_armed", "no process of the server has imported it: another module does this work, or it is imported later"


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
    return f"loaded at {clock(imports[0].time)}" if all(armed.time > view.until + view.error_s for armed in imports) else ""


def _import_error(view: View, processes: Sequence[Armed]) -> Row:
    """An engine's registry catches the error of a module and goes on without it: then the file began to load and never ended."""
    name = IMPORT_FAILED
    scripts = [armed for armed in processes if armed.module == "__main__"]
    unfinished = [armed for armed in processes if armed not in scripts and not _records_of(view, armed, view.channel.loaded)]
    if not unfinished:
        by = "it runs as the main script" if len(scripts) == len(processes) else "the import came to its end"
        return name, by, ""
    told = f"; the log says `{view.import_errors[0]}`" if view.import_errors else ""
    return name, "", f"pid {unfinished[0].pid} began to load the file and has not reported the end of it{told}"


def _replaced(view: View, processes: Sequence[Armed]) -> Row:
    name = "another function runs in its place"
    ends = [record for armed in processes for record in _records_of(view, armed, view.channel.loaded)]
    built = [record for armed in processes for record in _records_of(view, armed, view.channel.built)]
    found = [(record.pid, record.replaced, f"of the {record.made} that was built") for record in built]
    found += [(record.pid, record.replaced, "when the import had ended") for record in ends]
    for pid, replaced, where in found:
        for number, how in replaced.items():
            return name, "", f"pid {pid}, probe {number}, {where}: {how}"
    if built:
        return name, f"in the {built[0].made} that was built, calls lead to the patched code", ""
    if not ends or any(set(record.unseen) for record in ends):
        return name, "the file defines it where nothing outside reaches it, or runs as a script; a graph would have been told", ""
    return name, "when the import had ended, its name led to the patched code (what replaces it later shows with `alive:`)", ""


def _never_built(view: View, processes: Sequence[Armed]) -> Row:
    name = "nothing was built of the class"
    built = [record for armed in processes for record in _records_of(view, armed, view.channel.built) if record.time <= view.until]
    for wanted in view.alive_names:
        if all(record.alive != wanted for record in built):
            pids = ", ".join(str(armed.pid) for armed in processes)
            return name, "", f"no `{wanted}` was constructed in pid {pids}: another class does this work"
    first = built[0]
    return name, f"pid {first.pid} built a {first.made} at {clock(first.time)}", ""


def _records_of(view: View, armed: Armed, records: Sequence[_Record]) -> list[_Record]:
    """Those of the process, or of the one that it was forked from after the import (`late`: where nothing tells of a fork)."""
    own = [record for record in records if (record.pid, record.start) == (armed.pid, armed.start)]
    if own or armed.how == "import":
        return own
    parents = [one for one in view.channel.armed if one.pid == armed.ppid and one.time <= armed.time]
    return [found for parent in parents[-1:] for found in _records_of(view, parent, records) if found.time <= armed.time]


def _empty_bucket(view: View) -> Row:
    name = "the bucket was used up"
    silences = [silence for silence in view.channel.silences if silence.kind != "graph" and silence.covers(view.since, view.until)]
    if not silences:
        return name, "no record of an empty bucket reaches into the window", ""
    one = silences[0]
    before = [hit for hit in view.channel.hits if (hit.pid, hit.probe) == (one.pid, one.probe) and hit.time <= one.time]
    by = f" by {len(before)} hits before the window (warm-up, health checks, or earlier requests)" if before else ""
    return name, "", f"pid {one.pid} reached probe {one.probe} and had used up its hits at {clock(one.time)}{by}"


def _graph(silences: list[Silence]) -> str:
    if not silences:
        return ""
    how = silences[0].how or "its hits were used up before, so that a capture would not have been told"
    return f"pid {silences[0].pid}, probe {silences[0].probe}: {how}; run it eagerly, as with --disable-cuda-graph"
