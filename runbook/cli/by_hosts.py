"""Ending a run whose journal cannot tell of it: emptied, damaged, gone, or never begun. Its hosts have on record what it left there.

Which hosts it was on is told by the controller's lock, else by what can be read of the journal.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from runbook.cli import host_record, store
from runbook.engine import lock
from runbook.engine.journal import JournalError
from runbook.engine.recording import load_recording
from runbook.hosts.base import HostError
from runbook.model.answer import Cleanup, RunAnswer, Transcript
from runbook.model.event import HostConnected
from runbook.model.verdict import EXIT_CODES


def known_hosts(folder: Path) -> list[str]:
    """The hosts of a run, as far as its folder tells."""
    said = lock.last_holder(folder).get(store.HOSTS) or []
    with contextlib.suppress(JournalError):
        said = [*said, *(event.host for event in load_recording(folder) if isinstance(event, HostConnected))]
    return list(dict.fromkeys(str(name) for name in said))


def cancel(folder: Path, why: str, named: Sequence[str] = (), *, as_json: bool) -> int:
    """End on every host, known or named, what the run left there; answer 0 when nothing is left, 1 else, 6 or 8 when one was not asked."""
    known, run = known_hosts(folder), store.name_of(folder)
    hosts = list(dict.fromkeys([*known, *named]))
    if not hosts:
        raise click.UsageError(
            f"{run}: {why}, and its folder does not say on which hosts it was: `runbook doctor HOST` shows what lies on one, "
            f"`runbook cancel {run} --host HOST` ends and undoes it"
        )
    click.echo(f"{run}: {why}: what its hosts have on record of it is ended", err=True)
    left: list[str] = []
    codes = [EXIT_CODES["passed"]]
    strangers: list[str] = []
    cwd = lock.last_holder(folder).get("cwd")
    for name in hosts:
        try:
            found = host_record.end(name, Path(run).name, Path(cwd) if cwd else None, quietly=not folder.is_dir())
        except HostError as problem:
            left.insert(0, f"{name}: {problem.summary}" + (f"; {problem.hint}" if problem.hint else ""))
            codes.append(EXIT_CODES["unreachable"])
            continue
        strangers += [] if found.known else [name]
        lines = [found.goes_on] if found.goes_on else found.left
        left += [f"{name}: {line}" for line in lines]
        codes += [EXIT_CODES["refused"]] if found.goes_on else [EXIT_CODES["failed"]] if lines else []
    for name in strangers:
        click.echo(f"{name}: nothing is known there of it", err=True)
    if strangers == hosts and not known:
        raise click.UsageError(
            f"{run}: {why}, and nothing is known of it on {', '.join(hosts)}: it takes the whole id, and the host that it was on "
            "(`runbook doctor HOST` shows what lies on one)"
        )
    return _tell(folder, why, left, max(codes, key=_weight), as_json, [name for name in named if name not in known])


def _weight(code: int) -> int:
    """A host that was not asked counts more than what is left on one that was."""
    return (EXIT_CODES["passed"], EXIT_CODES["failed"], EXIT_CODES["refused"], EXIT_CODES["unreachable"]).index(code)


def _tell(folder: Path, why: str, left: list[str], code: int, as_json: bool, named: list[str]) -> int:
    """`named`: the hosts that have to be named again by the next try."""
    run = store.name_of(folder)
    more = "".join(f" --host {shlex.quote(name)}" for name in named)
    again = [f"runbook cancel {run}{more}  # tries again to clean up"] if left else []
    reason = f"{why}; " + ("cleanup is not complete" if left else "nothing of it is left on its hosts")
    for line in left:
        click.echo(f"left behind: {line}", err=True)
    for line in again:
        click.echo(f"next: {line}", err=True)
    text = json.dumps(msgspec.to_builtins(_answer(folder, reason, left, again)), ensure_ascii=False)
    if not left:
        store.save_answer(folder, text)
    click.echo(text if as_json else reason)
    return code


def _answer(folder: Path, reason: str, left: list[str], again: list[str]) -> RunAnswer:
    files = store.transcripts(folder)
    return RunAnswer(
        run=store.name_of(folder),
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
