"""`runbook restore`: give patched files back, without their run: by its journal, or by what the host has on record."""

from __future__ import annotations

import json
import shlex
from typing import Any

import click
import msgspec

from runbook.cli import store
from runbook.cli.host_record import check_names
from runbook.cli.open_patches import Look, Place, Row, Wish, look_at, place_of, places_of
from runbook.model.units import format_duration
from runbook.model.verdict import EXIT_CODES

EXIT_CONFLICT = EXIT_CODES["failed"]
EXIT_UNREACHABLE = EXIT_CODES["unreachable"]
EXIT_REFUSED = EXIT_CODES["refused"]


@click.command()
@click.argument("run", required=False)
@click.option(
    "--host", metavar="TARGET", help="All that is still patched on this host; with RUN, only that run's, also without its journal."
)
@click.option("--list", "only_list", is_flag=True, help="Show what is still patched; change nothing.")
@click.option("--stop", is_flag=True, help="End the servers of RUN first.")
@click.option("--force", is_flag=True, help="Also under a run that still goes on.")
@click.option(
    "--forget",
    multiple=True,
    metavar="FILE",
    help="Give up a file of RUN that cannot be restored: leave it, and close its record.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(run: str | None, host: str | None, only_list: bool, stop: bool, force: bool, forget: tuple[str, ...], as_json: bool) -> int:
    """Undo the patches of RUN (an id, its beginning, `last`, or a folder), or all open ones on a host.

    Works at once and without waiting for `undo_after`, also when the run's controller and keeper are gone. Servers are left alone: what
    they have loaded they keep until they end; with --stop they are ended, named, and the run's lease is given back where nothing of it is
    left. A file that somebody edited since is left alone and named, and so is one whose folder is away: moved back, it is restored by the
    next try. Exit 1: such a conflict, or a server that does not end; 6: a host was not reached; 8: a run still goes on.
    """
    if run is None and host is None:
        raise click.UsageError("name a run (`runbook runs` lists them), or a host: `runbook restore --host TARGET --list`")
    if stop and run is None:
        raise click.UsageError("--stop ends the servers of one run: name it")
    if forget and (run is None or only_list):
        raise click.UsageError("--forget gives up a file of one run: name the run, and leave out --list")
    if host is not None:
        check_names((host,))
    wish = Wish(only_list=only_list, stop=stop, force=force, forget=forget)
    places = [place_of(host, run)] if host is not None else places_of(run or "")
    answers = [look_at(place, wish) for place in places]
    looks = [(place.target.target, answer) for place, answer in zip(places, answers, strict=True) if isinstance(answer, Look)]
    rows = [row for _, look in looks for row in look.rows]
    lost = [(place.target.target, answer) for place, answer in zip(places, answers, strict=True) if isinstance(answer, str)]
    if forget and not rows and not lost:
        raise click.UsageError(f"--forget: {run} has no open patch of {', '.join(forget)}: `runbook restore {run} --list` shows them")
    code = _code(rows, lost, any(look.stopped.left for _, look in looks))
    if as_json:
        answer = _object(rows, lost, code)
        click.echo(json.dumps({**answer, **({"stopped": _stopped(looks)} if stop else {})}, ensure_ascii=False))
        return code
    for name, look in looks:
        for line in _stop_lines(look):
            click.echo(f"{name}: {line}")
    for row in rows:
        for line in _lines(row):
            click.echo(line)
    for name, why in lost:
        click.echo(f"{name}: not reached: {why}", err=True)
    if not rows and not lost and not any(look.stopped.ended or look.stopped.left for _, look in looks):
        click.echo(_nothing(places, run, stop))
    return code


def _stop_lines(look: Look) -> list[str]:
    """What --stop ended, what it could not, and whose lease is over."""
    given = [f"the lease of run {run} was given back" for run in look.given_back]
    return [*(f"ended {server}" for server in look.stopped.ended), *look.stopped.left, *given]


def _stopped(looks: list[tuple[str, Look]]) -> list[dict[str, Any]]:
    return [{"host": name, **msgspec.to_builtins(look.stopped), "leases_given_back": look.given_back} for name, look in looks]


def _code(rows: list[Row], lost: list[tuple[str, str]], unended: bool) -> int:
    if lost:
        return EXIT_UNREACHABLE
    states = {row.state for row in rows}
    return EXIT_CONFLICT if unended or states & {"conflict", "missing"} else EXIT_REFUSED if "refused" in states else EXIT_CODES["passed"]


def _object(rows: list[Row], lost: list[tuple[str, str]], code: int) -> dict[str, Any]:
    return {
        "patches": [msgspec.to_builtins(row) for row in rows],
        "unreachable": [{"host": name, "reason": why} for name, why in lost],
        "exit_code": code,
    }


def _lines(row: Row) -> list[str]:
    """One patch: what became of it, and for one that is left, what there is to know."""
    what = f"patch `{row.id}` of run {row.run}, {format_duration(row.age_s)} old"
    hashes = f"    original {_short(row.sha_before)}, patched {_short(row.sha_patched)}, now {_short(row.sha_now) or 'nothing'}"
    lines = [f"{row.host}: {row.state:8} {row.path} ({what})", *(f"    {note}" for note in row.notes)]
    if row.state in ("restored", "already", "gone"):
        return lines
    lines.insert(1, hashes)
    if row.state in ("conflict", "edited"):
        sides = " ".join(shlex.quote(part) for part in (row.path, f"{row.folder}/patched", f"{row.folder}/original"))
        lines.append(f"    what they wrote, without the patch: diff3 -m {sides}")
    elif row.state != "patched":
        lines.append(f"    the original lies in {row.folder}")
    return lines


def _short(sha: str) -> str:
    return sha[:12]


def _nothing(places: list[Place], run: str | None, stop: bool) -> str:
    names = ", ".join(place.target.target for place in places)
    known = places[0].run if places else store.name_of(store.find_run(run or ""))
    whose = f"of run {known}" if known else "of any run"
    return f"nothing {whose} is patched" + (" or runs" if stop else "") + (f" on {names}" if names else ": its journal owes nothing")
