"""A run in a process of its own, in a session of its own: neither a closed terminal nor a killed shell ends it.

    caller ── fork ──▶ worker: a new session, no terminal, no file of the caller's; then the run
       └──▶ follows the worker's journal, as everybody can

Forked before any thread or connection exists, when the playbook is checked: it and the secrets are in the worker's memory already, so
nothing is handed over. What the worker has to say apart from its journal goes to `worker.log` in the run's folder.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click

from runbook.cli import attend
from runbook.cli.main import EXIT_BUG, EXIT_INTERRUPTED, EXIT_USAGE, guarded, leave
from runbook.engine.following import Tail
from runbook.engine.journal import JournalError
from runbook.model.clock import Clock
from runbook.model.event import Resumed, RunStarted
from runbook.render.story import tell

LOG = "worker.log"
EVERY_S = 0.02
LAST = 8192
"""Bytes of worker.log that are told when the run did not begin."""


class NotBegun(NamedTuple):
    """A worker that ended before it had the run: what it said, and its exit code (negative: of a signal)."""

    said: str
    code: int


def apart(folder: Path, work: Callable[[], int], clock: Clock, *, wait_for: float | None, as_json: bool, from_start: bool = True) -> int:
    """Do `work`, which runs the run of this folder, in a worker. Follow it for `wait_for`; None: print the run's id once it has begun.

    Answers the exit code: the run's own, 75, or what kept the worker from beginning.
    """
    began = clock.monotonic()
    try:
        failed = _until_begun(_start(folder, work), Tail(folder), clock)
    except KeyboardInterrupt:
        click.echo(f"no longer followed; the run in {folder} is left alone: `runbook runs` lists it", err=True)
        return EXIT_INTERRUPTED
    if failed is not None:
        return _refuse(failed)
    if wait_for is None:
        return attend.tell_begun(tell(attend.events_of(folder)), folder, as_json)
    rest = max(0.0, wait_for - (clock.monotonic() - began))
    return attend.attend(folder, clock, as_json=as_json, for_s=rest, from_start=from_start)


class _Started(NamedTuple):
    pid: int
    log: Path
    said_before: int


def _start(folder: Path, work: Callable[[], int]) -> _Started:
    """Fork. A folder that cannot be written is a usage error."""
    assert threading.active_count() == 1, "a fork copies one thread, and the locks that others hold"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as problem:
        raise click.UsageError(
            f"cannot write {folder / LOG}: {problem.strerror}: name another folder with --out, or set XDG_STATE_HOME"
        ) from problem
    said_before = os.fstat(log).st_size
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(log)
        return _Started(pid, folder / LOG, said_before)
    code = EXIT_BUG
    try:
        _part(log)
        code = guarded(work, sys.argv[1:])
    finally:
        leave(code)


def _part(log: int) -> None:
    """Keep nothing that is the caller's: its terminal and session, its pipes, a lock that some wrapper holds by an open file."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number, own in enumerate((null, null, log)):
        os.dup2(own, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    signal.signal(signal.SIGHUP, lambda *_: None)  # not SIG_IGN: programs that we start would inherit that


def _until_begun(worker: _Started, tail: Tail, clock: Clock) -> NotBegun | None:
    """Wait until the journal names the worker as the run's controller; answers how it ended when it does not."""
    never = threading.Event()
    while True:
        gone, status = os.waitpid(worker.pid, os.WNOHANG)
        if worker.pid in _controllers(tail):
            return None
        if gone:
            said = worker.log.read_bytes()[worker.said_before :][-LAST:].decode("utf-8", "replace").strip()
            return NotBegun(said, os.waitstatus_to_exitcode(status))
        clock.wait(never, EVERY_S)


def _controllers(tail: Tail) -> list[object]:
    """Who is named by the events that are new."""
    try:
        return [event.controller.get("pid") for event in tail.more() if isinstance(event, (RunStarted, Resumed))]
    except JournalError:
        return []  # it is not there yet


def _refuse(failed: NotBegun) -> int:
    """Tell why the worker did not begin, as it would have done itself."""
    if failed.code == EXIT_USAGE:
        raise click.UsageError(failed.said.rpartition("Error: ")[2])
    if failed.code < 0:
        click.echo(f"the run's worker was ended by signal {-failed.code} before it began", err=True)
    elif not failed.said:
        click.echo("the run did not begin, and nothing was done on its hosts: its worker could not write why; is the disk full?", err=True)
    if failed.said:
        click.echo(failed.said, err=True)
    return failed.code if failed.code >= 0 else EXIT_BUG
