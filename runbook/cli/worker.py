"""A run in a process of its own, in a session of its own: neither a closed terminal nor a killed shell ends it.

    caller ── fork ──▶ worker: a new session, no terminal, no file of the caller's; then the run
       └──▶ reads the worker's journal, as everybody can

Forked before any thread or connection exists, when the playbook is checked: it and the secrets are in the worker's memory already, so
nothing is handed over. What the worker has to say apart from its journal goes to `worker.log` in the run's folder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import click

from runbook.cli.main import EXIT_BUG, EXIT_USAGE, guarded, leave
from runbook.engine.following import Tail
from runbook.engine.journal import JournalError
from runbook.model.clock import Clock
from runbook.model.event import AnyEvent

LOG = "worker.log"
EVERY_S = 0.02
LAST = 8192
"""Bytes of worker.log that are told when the run did not begin."""


class NotBegun(click.ClickException):
    """The worker ended before the first event, and not because of the command line."""

    exit_code = EXIT_BUG


def start(folder: Path, work: Callable[[], int]) -> int:
    """Do `work` in a worker, which ends with its answer; answers the worker's pid. A folder that cannot be written is a usage error."""
    assert threading.active_count() == 1, "a fork copies one thread, and the locks that others hold"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as problem:
        raise click.UsageError(
            f"cannot write {folder / LOG}: {problem.strerror}: name another folder with --out, or set XDG_STATE_HOME"
        ) from problem
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(log)
        return pid
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


def first_events(folder: Path, pid: int, clock: Clock) -> list[AnyEvent]:
    """The first events of a worker's journal, as soon as there are any. Raises click.UsageError and NotBegun, as the worker ended."""
    tail, never = Tail(folder), threading.Event()
    while True:
        gone, status = os.waitpid(pid, os.WNOHANG)
        with contextlib.suppress(JournalError):  # not there yet
            if events := tail.more():
                return events
        if gone:
            raise _not_begun(folder, os.waitstatus_to_exitcode(status))
        clock.wait(never, EVERY_S)


def _not_begun(folder: Path, code: int) -> click.ClickException:
    said = ""
    with contextlib.suppress(OSError):
        said = (folder / LOG).read_bytes()[-LAST:].decode("utf-8", "replace").strip()
    if code == EXIT_USAGE:
        return click.UsageError(said.rpartition("Error: ")[2])
    how = f"signal {-code}" if code < 0 else f"exit {code}"
    return NotBegun(f"the run's worker ended before it began ({how})" + (f":\n{said}" if said else ""))
