"""Where patches may still be open, and undoing them there: what `runbook restore` does on each host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from runbook.cli import recorded, store
from runbook.engine.state import RunState, fold, keeper_run
from runbook.hosts.base import CancelToken, Host, HostError, OpenPatch, RestoreReport
from runbook.model.clock import SystemClock
from runbook.model.playbook import Target

LADDER = ("TERM 15s", "KILL 10s")


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    only_list: bool = False
    stop: bool = False
    force: bool = False
    forget: tuple[str, ...] = ()
    """Files (or ids of patches) to give up where they cannot be given back; then only they are meant."""

    def means(self, patch: OpenPatch) -> bool:
        """Whether this patch is meant."""
        return not self.forget or patch.path in self.forget or patch.id in self.forget


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A host to look at: for one run, or for all (`run` null). `live`: why that run counts as going on, when its journal says so.

    `taken`: patches that are on record there under another run, which it has taken over: (run, id).
    """

    target: Target
    run: str | None = None
    cwd: str | None = None
    live: str | None = None
    journal: bool = False
    taken: frozenset[tuple[str, str]] = frozenset()

    def open_patches(self, host: Host) -> list[OpenPatch]:
        """What is still patched there and meant."""
        more = [patch for run in {run for run, _ in self.taken} for patch in host.open_patches(run) if (run, patch.id) in self.taken]
        return [*host.open_patches(self.run), *more]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One patch.

    `state`: restored, already, gone, conflict, missing, refused; only listed: patched, original, edited, missing, unreadable.
    """

    host: str
    run: str
    id: str
    path: str
    folder: str
    age_s: float
    sha_before: str
    sha_patched: str
    sha_now: str
    state: str
    notes: list[str] = []


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """Servers of a run that were ended, in words, and what could not be."""

    ended: list[str] = []
    left: list[str] = []


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a run's things on one host. `given_back`: runs whose lease is over now, since nothing of them is left there."""

    rows: list[Row] = []
    stopped: Stopped = Stopped()
    given_back: list[str] = []


def place_of(host: str, run: str | None) -> Place:
    """A host named on the command line. A run's journal, where there is one here, gives its full id and says whether it goes on."""
    target = Target(target=host)
    if run is None:
        return Place(target=target)
    try:
        known = _of_journal(run)
    except click.UsageError:
        return Place(target=target, run=run)  # somebody else's run: its host knows it
    return Place(target=target, run=known.run, live=known.live, journal=True, taken=known.taken.get(host, frozenset()))


def places_of(run: str) -> list[Place]:
    """The hosts on which a run still owes something, from its journal."""
    known = _of_journal(run)
    if known.heirs and not known.owing:
        raise click.UsageError(f"what {known.run} patched is run {known.heirs[-1]}'s now: `runbook restore {known.heirs[-1]}`")
    about: dict[str, Any] = {"run": known.run, "live": known.live, "cwd": known.cwd, "journal": True}
    return [
        Place(target=target, taken=known.taken.get(target.target, frozenset()), **about)
        for target in known.targets
        if target.target in known.owing
    ]


class _Journal(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    live: str | None
    cwd: str | None
    targets: list[Target]
    owing: set[str]
    heirs: list[str]
    taken: dict[str, frozenset[tuple[str, str]]]


def _of_journal(run: str) -> _Journal:
    folder = store.find_run(run)
    state = fold(store.read_run(folder))
    header = state.header
    if header is None:
        hint = f"`runbook cancel {store.name_of(folder)}` cleans its hosts up, `--host HOST` restores on one"
        raise click.UsageError(f"{folder.name}: {recorded.no_beginning(folder)}; {hint}")
    goes_on = state.ended is None and state.suspended is None and store.is_alive(state.controller)
    pid = state.controller.get("pid")
    targets: dict[str, Any] = {item["target"]: msgspec.convert(item, Target) for items in header.targets.values() for item in items}
    return _Journal(
        run=header.run,
        live=f"it is running (pid {pid}): end it with `runbook cancel {header.run}`, or use --force" if goes_on else None,
        cwd=header.controller.get("cwd"),
        targets=list(targets.values()),
        owing={debt.host for debt in state.owed.values()},
        heirs=list(state.heirs),
        taken=_taken(state, header.run),
    )


def _taken(state: RunState, own: str) -> dict[str, frozenset[tuple[str, str]]]:
    """Patches that it owes and that another run has on record, by their host."""
    found: dict[str, set[tuple[str, str]]] = {}
    for debt in state.owed.values():
        if debt.kind == "patch" and keeper_run(debt, own) != own:
            found.setdefault(debt.host, set()).add((keeper_run(debt, own), debt.step))
    return {host: frozenset(ids) for host, ids in found.items()}


def look_at(place: Place, wish: Wish) -> Look | str:
    """Connect, list, and unless that was all, stop and undo. A sentence when the host was not reached or did not answer."""
    from runbook.hosts.connect import connect

    clock = SystemClock()
    try:
        host = connect(place.target, clock=clock, cancel=CancelToken(), cwd=Path(place.cwd) if place.cwd else None)
    except HostError as problem:
        return f"{problem.summary}; {problem.hint}" if problem.hint else problem.summary
    try:
        now = clock.now() + host.facts.clock_offset_s
        found = [patch for patch in place.open_patches(host) if wish.means(patch)]
        if wish.only_list:
            return Look(rows=[_row(host, patch, now, patch.state, patch.sha256_now, [_timer(patch, now)]) for patch in found])
        return _undo_all(host, place, wish, found, now)
    except HostError as problem:
        return problem.summary
    finally:
        host.close()


def _undo_all(host: Host, place: Place, wish: Wish, found: list[OpenPatch], now: float) -> Look:
    runs = dict.fromkeys(patch.run for patch in found)
    rows: list[Row] = []
    ended: list[str] = []
    left: list[str] = []
    given: list[str] = []
    for run in runs or ([place.run] if place.run and wish.stop else []):
        patches = [patch for patch in found if patch.run == run]
        why = place.live if place.journal else _keeper(host, patches[0], now) if patches else ""
        if why and not wish.force:
            rows += [_row(host, patch, now, "refused", patch.sha256_now, [why]) for patch in patches]
            continue
        stopped = stop(host, run) if wish.stop else Stopped()
        ended, left = ended + stopped.ended, left + stopped.left
        stays = [f"its keeper stays: {_way_out(host, run)} ends it"] if wish.stop and not place.journal else []
        rows += _undo(host, wish, run, patches, [*stopped.left, *stays], now) if patches else []
        over = not stopped.left if stopped.ended else not _servers(host, run)  # its keeper may take note of their end a moment later
        if wish.stop and not why and over and not host.open_patches(run) and host.give_lease_back(run):
            given.append(run)
    return Look(rows=rows, stopped=Stopped(ended=ended, left=left), given_back=given)


def _undo(host: Host, wish: Wish, run: str, patches: list[OpenPatch], notes: list[str], now: float) -> list[Row]:
    reports = {report.id: report for report in host.restore(run, [patch.id for patch in patches], forget=bool(wish.forget))}
    if not wish.stop:
        notes = [f"pid {pid} still runs with what it has loaded" for pid in _servers(host, run)]
    return [_undone(host, patch, now, reports[patch.id], notes) for patch in reversed(patches)]


def _undone(host: Host, patch: OpenPatch, now: float, report: RestoreReport, notes: list[str]) -> Row:
    told = [*([report.note] if report.note else []), *notes]
    return _row(host, patch, now, report.state, report.sha256_now, told)


def _keeper(host: Host, patch: OpenPatch, now: float) -> str:
    """Why a run without a journal here counts as going on; empty when nobody is left."""
    if not patch.keeper:
        return ""
    renewed = f"its keeper lives, last renewed {max(0.0, now - patch.renewed):.0f} s ago"
    return f"{renewed}: {_way_out(host, patch.run)}, or --force"


def _way_out(host: Host, run: str) -> str:
    """What ends a run for good: by its journal, where that is, else by this host."""
    try:
        store.find_run(run)
    except click.UsageError:
        return f"`runbook cancel {run}` where it was started, or `runbook cancel {run} --host {host.name}` here"
    return f"`runbook cancel {run}`"


def _timer(patch: OpenPatch, now: float) -> str:
    if not patch.keeper:
        return "its keeper is gone: nothing gives the file back by itself"
    left = patch.renewed + patch.undo_after_s - now
    return f"its keeper lives and gives the file back in {max(0.0, left):.0f} s, unless a controller renews it or holds it suspended"


def _servers(host: Host, run: str) -> list[int]:
    return [launch.pid for launch in host.keeper(run).launches if launch.ended is None]


def stop(host: Host, run: str, kept: frozenset[str] = frozenset()) -> Stopped:
    """End what the run launched on this host, but for the launches `kept`."""
    from runbook.steps.kill import end, launch_processes, split, tell_keeper, widen

    table = host.processes(run)
    launches = [launch for launch in host.keeper(run).launches if launch.ended is None and launch.id not in kept]
    seeds = [process for launch in launches for process in launch_processes(table, launch.pid, launch.start, launch.sid)]
    targets, _ = split(widen(seeds, table, run, kept), ())
    if not targets:
        return Stopped()
    for launch in launches:
        tell_keeper(host, run, launch.id, targets)
    _, report = end(host, targets, LADDER, run, run, kept)
    stay = {row["pid"] for row in report.left}
    return Stopped(
        ended=[f"`{launch.id}` of run {run} (pid {launch.pid})" for launch in launches if launch.pid not in stay],
        left=[f"pid {row['pid']} could not be ended: {row.get('why', 'alive')}" for row in report.left],
    )


def _row(host: Host, patch: OpenPatch, now: float, state: str, sha_now: str, notes: list[str]) -> Row:
    return Row(
        host=host.name,
        run=patch.run,
        id=patch.id,
        path=patch.path,
        folder=patch.folder,
        age_s=max(0.0, now - patch.patched),
        sha_before=patch.sha256_before,
        sha_patched=patch.sha256_after,
        sha_now=sha_now,
        state=state,
        notes=notes,
    )
