"""What one host has on record of a run, ended without the run's journal: servers, scripts, patches, lease, and its folder there."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import click
import msgspec

from runbook.cli import open_patches, store
from runbook.engine.journal import JournalError, load_events
from runbook.engine.renew import LONGEST_S
from runbook.engine.state import fold
from runbook.hosts.base import CancelToken, Host, RemoteError
from runbook.model.clock import Clock, SystemClock
from runbook.model.playbook import Target
from runbook.steps.restore import UNDONE, not_undone

SILENT_S = 2 * LONGEST_S
"""A controller that lives renews its keepers well within it."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `known`: whether the host knew the run at all; `goes_on`: why it was left alone: a controller may have it."""

    known: bool = True
    left: list[str] = []
    goes_on: str = ""


def check_names(names: tuple[str, ...]) -> None:
    """A name that cannot be a host's is a usage error."""
    from runbook.hosts.base import ResolveFailed
    from runbook.hosts.inventory import load
    from runbook.hosts.ssh_config import split_target

    for name in names:
        try:
            if name not in load(None, os.environ).known:
                split_target(name)
        except ResolveFailed as problem:
            raise click.UsageError(f"--host: {problem.summary}; {problem.hint}") from problem


def end(name: str, run: str, cwd: Path | None, *, quietly: bool) -> Found:
    """End on this host what the run left there. Raises HostError. `quietly`: only when no controller was heard of for a while."""
    from runbook.hosts.connect import connect

    clock = SystemClock()
    host = connect(Target(target=name), clock=clock, cancel=CancelToken(), cwd=cwd)
    with contextlib.closing(host):
        leases = [lease for lease in host.leases() if not lease.account]
        heir = next((lease.by for lease in leases if lease.run == run and lease.by), "")
        if heir:
            return Found(left=[f"what it kept is run {heir}'s now: `runbook cancel {heir} --host {name}`, where its journal is gone too"])
        goes_on = _goes_on(host, run, clock) if quietly else ""
        if goes_on:
            return Found(goes_on=goes_on)
        parts = [_ended(host, owner, run) for owner in (run, *(lease.run for lease in leases if lease.by == run))]
        return Found(known=any(part.known for part in parts), left=[line for part in parts for line in part.left])


def _goes_on(host: Host, run: str, clock: Clock) -> str:
    try:
        keeper = host.keeper(run)
    except RemoteError as problem:
        if problem.code != "not_found":
            raise
        return ""
    silent = max(0.0, clock.now() + host.facts.clock_offset_s - keeper.renewed)
    if not keeper.alive or keeper.expires is not None or silent > SILENT_S:
        return ""
    return (
        f"a controller elsewhere may go on with it, since it was renewed {silent:.0f} s ago: "
        f"cancel it there; if that has died, try again in {SILENT_S - silent:.0f} s"
    )


def _ended(host: Host, owner: str, run: str) -> Found:
    """End what is on record under `owner`: the run itself, or one whose things it has taken over, but for what that one still owes."""
    kept = frozenset() if owner == run else _still_owed(owner, host.name)
    try:
        left = open_patches.stop(host, owner, kept).left
        ids = [patch.id for patch in host.open_patches(owner) if patch.id not in kept]
        left += [not_undone(report) for report in host.restore(owner, ids) if report.state not in UNDONE]
        if kept and not left:
            host.renew(owner, by=owner)
        return Found(left=[*left, *(host.retire(owner) if not left and not kept else ())])
    except RemoteError as problem:
        if problem.code != "not_found":
            raise
        return Found(known=False)


def _still_owed(owner: str, host: str) -> frozenset[str]:
    """Steps of another run whose server or patch on this host nobody took over, as far as its journal is here."""
    try:
        state = fold(load_events(store.find_run(owner)))
    except (JournalError, click.UsageError):
        return frozenset()
    return frozenset(debt.step for debt in state.owed.values() if debt.host == host and debt.kind != "keeper")
