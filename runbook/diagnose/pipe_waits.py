"""hung/stdin and hung/log_pipe: a pipe or terminal at whose other end nobody does anything."""

from __future__ import annotations

import re
from collections.abc import Iterator

from runbook.diagnose.actors import pipes
from runbook.diagnose.calls import Tid, at_calls
from runbook.diagnose.enders import starters
from runbook.diagnose.execution import APART_S, WORKS, Run, execution, peer_execution
from runbook.diagnose.family import everyone, name
from runbook.diagnose.knots import may_act, waiting_for_end
from runbook.diagnose.places import NOWHERE, places, wchan_kind
from runbook.diagnose.stall import stall
from runbook.diagnose.standstill import Proof, at_rest, verdict
from runbook.diagnose.view import View
from runbook.diagnose.words import quote
from runbook.model.sample import PipeSample, ProcessSample
from runbook.model.units import format_size
from runbook.model.verdict import Diagnosis

LOG_FDS = (1, 2)
ASKS = re.compile(
    r"\?\s*$|[\[(]\s*(?:y(?:es)?\s*/\s*n(?:o)?)\s*[\])]|\b(?:enter|type|password|passphrase|token|username|choice|select\w*|press)\b.{0,60}[:>]\s*$",
    re.IGNORECASE,
)
"""A question to whoever starts it. A worker that reads its tasks from standard input asks nothing."""
LATEST = 200
"""Log lines among which the question is looked for: another thread may have gone on talking."""


def stdin(view: View) -> Diagnosis | None:
    """hung/stdin: when the main thread reads descriptor 0, a terminal or a pipe, after its log asked a question, executed nothing between
    two looks ≥ 10 s apart, and whoever holds the other end of the pipe can never write again: stopped, or by its threads' system calls in
    waits without a limit of time, as a launcher that waits for its end.

    its live twins: a consumer whose producer works or sleeps, a launcher that fetches the answer, a server that holds a pipe as stdin and
    does not read it, a worker that reads its tasks from standard input, a chat at its terminal.
    """
    if view.once(stall).wall_s < APART_S or not at_rest(view):
        return None
    for process, run in _readers(view):
        if process.stdin == "tty" and _reads_terminal(view, run) and _question(view):
            return _stdin_verdict(view, process, run, "a terminal at which nobody types")
        mine = [pipe for pipe in pipes(process) if pipe.end == "read"]
        inlet = next((pipe for pipe in mine if pipe.fd == 0), None)
        reads = process.stdin == "pipe" and wchan_kind(run.wchan) == "pipe_read" and len({pipe.name for pipe in mine}) == 1
        if reads and inlet is not None and _question(view) and _nobody_writes(view, process):
            return _stdin_verdict(view, process, run, f"{inlet.name}, into which nobody writes")
    return None


def _question(view: View) -> str:
    """What it asks, by its log; empty where it asks nothing."""
    texts = (timed.line.text.strip() for timed in reversed(view.lines[-LATEST:]))
    return next((text for text in texts if ASKS.search(text)), "")


def _readers(view: View) -> Iterator[tuple[ProcessSample, Run]]:
    """The main process, and a child that reads the very stdin which it inherited."""
    main = view.main
    table = view.once(everyone)
    for process in table.values():
        run = view.once(execution).of((process.pid, process.start))
        if main is None or run is None or not run.frozen or run.seconds < APART_S:
            continue
        if process.pid == main.pid or process.ppid == main.pid:
            yield process, run


def _reads_terminal(view: View, run: Run) -> bool:
    """By its wait channel, which newer kernels share with sockets, or by its system call."""
    call = view.once(at_calls).get((run.process.pid, run.process.pid))
    return view.once(places).get(run.key, NOWHERE).kind == "tty" or (call is not None and call.terminal)


def _nobody_writes(view: View, process: ProcessSample) -> bool:
    """Whether all who hold the write end are seen, and can do nothing before this process ends."""
    reader = (process.pid, process.pid)
    call = view.once(at_calls).get(reader)
    if call is None or call.call != "read" or not call.peers_known or not call.peers:
        return False
    return not may_act(view, call.peers, frozenset({reader}) | waiting_for_end(view, process.pid) | _stopped(view))


def _stopped(view: View) -> frozenset[Tid]:
    """The threads of processes that were stopped at every look."""
    stopped = [run for run in _runs(view) if run.frozen and run.states == {"T"}]
    return frozenset((run.process.pid, one.tid) for run in stopped for one in run.process.threads)


def _runs(view: View) -> tuple[Run, ...]:
    return (*view.once(execution).runs, *view.once(peer_execution).runs)


def _run_of(view: View, pid: int) -> Run | None:
    return next((run for run in _runs(view) if run.process.pid == pid), None)


def _stdin_verdict(view: View, process: ProcessSample, run: Run, what: str) -> Diagnosis:
    question = _question(view)
    asks = f"; it asks: {quote(question)[:120]}" if question else ""
    text = f"{name(view, process)} reads its standard input, {what}{asks}"
    return verdict(
        view,
        "stdin",
        "stdin",
        "it waits for input that nobody gives",
        accuse=process,
        note="reads standard input",
        proofs=(Proof("coordination", "stdin", process.stdin, text, run.seconds),),
        next_looks=("start it with its input closed: `</dev/null`", "or give it the flag that answers its question"),
    )


def log_pipe(view: View) -> Diagnosis | None:
    """hung/log_pipe: when a thread is in a write to its stdout or stderr, a pipe that is full, at two looks ≥ 10 s apart, and whoever
    could read it can never do so again: stopped, or by its threads' system calls in waits without a limit of time; or is an engine's own
    launcher, which wakes in a loop over descriptors and leaves this one full.

    its live twins: a reader that is slow but reads on, whether it sleeps, polls, or joins a thread that does; one that hands on what it
    has read to another host or into a FIFO, or lets its writers wait while it does; a full pipe of a process whose other threads work, or
    read it.
    """
    if view.once(stall).wall_s < APART_S or not at_rest(view):
        return None
    for process in view.once(everyone).values():
        run = view.once(execution).of((process.pid, process.start))
        if run is None or run.seconds < APART_S:
            continue
        main_writes = run.frozen and wchan_kind(run.wchan) == "pipe_write"
        if not main_writes and not any(wchan_kind(channel) == "pipe_write" for channel in run.others):
            continue
        outlet = next((pipe for pipe in pipes(process) if pipe.end == "write" and pipe.fd in LOG_FDS and _is_full(pipe)), None)
        if outlet is not None and _reader_stands(view, process, outlet):
            return _log_verdict(view, process, run, outlet)
    return None


def _is_full(pipe: PipeSample) -> bool:
    """A write that does not fit into the rest of a page blocks before the last byte is taken."""
    return pipe.fill is not None and pipe.capacity is not None and pipe.fill > pipe.capacity // 2


def _reader_stands(view: View, process: ProcessSample, pipe: PipeSample) -> bool:
    """Nobody will ever empty it, as far as is seen. One that waits for a time, for a disk or for another host may read on after that."""
    writing = {(process.pid, one.tid) for one in process.threads if wchan_kind(one.wchan) == "pipe_write"} & view.once(at_calls).keys()
    given = waiting_for_end(view, process.pid) | _stopped(view) | writing
    readers = [pid for pid in pipe.peers if not _passes_by(view, process, pid)]
    return bool(pipe.peers) and not may_act(view, readers, given) and not any(starters(view, readers))


def _passes_by(view: View, process: ProcessSample, pid: int) -> bool:
    """An engine's own launcher, which wakes in a loop over descriptors and leaves this one full. Any other may take it up again."""
    parent = next((run for run in view.once(execution).runs if run.process.pid == pid == process.ppid), None)
    known = view.profile.processes.main
    if parent is None or not known or not re.search(known, parent.process.title):
        return False
    return not parent.frozen and wchan_kind(parent.wchan) == "loop" and parent.demand < WORKS


def _log_verdict(view: View, process: ProcessSample, run: Run, pipe: PipeSample) -> Diagnosis:
    fill = format_size(pipe.fill or 0)
    text = f"{name(view, process)} is in a write to descriptor {pipe.fd}, {pipe.name}, which is full with {fill}"
    reader = next((everyone for pid in pipe.peers if (everyone := _process(view, pid)) is not None and pid != process.pid), None)
    who = f"; its reader, pid {reader.pid} `{reader.title[:60]}`, stands still" if reader is not None else ""
    return verdict(
        view,
        "log_pipe",
        "log_pipe",
        "it cannot go on before somebody reads its output",
        accuse=reader or process,
        note="does not read the pipe" if reader is not None else "blocked in writing its log",
        proofs=(Proof("coordination", "pipe_fill", pipe.fill, text + who, run.seconds),),
        confidence="proven" if reader is not None else "strong",
        next_looks=("let it write into a file instead of a pipe", "or read the pipe on: it goes on at once"),
    )


def _process(view: View, pid: int) -> ProcessSample | None:
    known = next((process for process in view.once(everyone).values() if process.pid == pid), None)
    if known is not None:
        return known
    run = _run_of(view, pid)
    return run.process if run is not None else None
