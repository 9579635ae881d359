"""Ending a run whose journal cannot tell of it: emptied, damaged, or never begun. Its hosts have on record what it left there.

Which hosts it was on is told by the controller's lock, else by what can be read of the journal.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from runbook.cli import open_patches, store
from runbook.engine import lock
from runbook.engine.journal import JournalError
from runbook.engine.recording import load_recording
from runbook.hosts.base import CancelToken, Host, HostError, RemoteError
from runbook.model.answer import Cleanup, RunAnswer, Transcript
from runbook.model.clock import SystemClock
from runbook.model.event import HostConnected
from runbook.model.playbook import Target
from runbook.model.verdict import EXIT_CODES
from runbook.steps.restore import UNDONE, not_undone


def known_hosts(folder: Path) -> list[str]:
    """The hosts of a run, as far as its folder tells."""
    said = lock.last_holder(folder).get(store.HOSTS) or []
    with contextlib.suppress(JournalError):
        said = [*said, *(event.host for event in load_recording(folder) if isinstance(event, HostConnected))]
    return list(dict.fromkeys(str(name) for name in said))


def cancel(folder: Path, why: str, named: Sequence[str] = (), *, as_json: bool) -> int:
    """End on every known host what the run left there; answer 0 when nothing is left, 1 else, 6 when one was not reached."""
    hosts, run = named or known_hosts(folder), store.name_of(folder)
    if not hosts:
        raise click.UsageError(
            f"{run}: {why}, and its folder does not say on which hosts it was: `runbook doctor HOST` shows what lies on one, "
            f"`runbook cancel {run} --host HOST` ends and undoes it"
        )
    click.echo(f"{run}: {why}: what its hosts have on record of it is ended", err=True)
    left: list[str] = []
    lost: list[str] = []
    for name in hosts:
        try:
            left += [f"{name}: {line}" for line in _ended(name, folder)]
        except HostError as problem:
            lost.append(f"{name}: {problem.summary}" + (f"; {problem.hint}" if problem.hint else ""))
    code = EXIT_CODES["unreachable"] if lost else EXIT_CODES["failed"] if left else EXIT_CODES["passed"]
    return _tell(folder, why, [*lost, *left], code, as_json)


def _ended(name: str, folder: Path) -> list[str]:
    """Servers and scripts ended, files given back, the run's folder removed. Answers what stays. Raises HostError."""
    from runbook.hosts.connect import connect

    cwd = lock.last_holder(folder).get("cwd")
    host = connect(Target(target=name), clock=SystemClock(), cancel=CancelToken(), cwd=Path(cwd) if cwd else None)
    with contextlib.closing(host):
        try:
            return _released(host, Path(store.name_of(folder)).name)
        except RemoteError as problem:
            if problem.code != "not_found":
                raise
            return []  # it left nothing there


def _released(host: Host, run: str) -> list[str]:
    left = open_patches.stop(host, run).left
    left += [not_undone(report) for report in host.restore(run) if report.state not in UNDONE]
    return [*left, *(host.retire(run) if not left else ())]


def _tell(folder: Path, why: str, left: list[str], code: int, as_json: bool) -> int:
    run = store.name_of(folder)
    again = [f"runbook cancel {run}  # tries again to clean up"] if left else []
    reason = f"{why}; " + ("cleanup is not complete" if left else "nothing of it is left on its hosts")
    for line in left:
        click.echo(f"left behind: {line}", err=True)
    for line in again:
        click.echo(f"next: {line}", err=True)
    if as_json:
        files = store.transcripts(folder)
        answer = RunAnswer(
            run=run,
            playbook=None,
            state="ended",
            verdict="interrupted",
            kind=None,
            exit_code=EXIT_CODES["interrupted"],
            reason=reason,
            steps=[],
            findings=[],
            cleanup=Cleanup(status="failed" if left else "passed"),
            left_behind=left,
            next=again,
            transcript=Transcript(dir=str(folder), events=f"{folder}/events.jsonl", markdown=files["markdown"], html=files["html"]),
        )
        click.echo(json.dumps(msgspec.to_builtins(answer), ensure_ascii=False))
    else:
        click.echo(reason)
    return code
