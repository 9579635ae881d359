"""`runbook cancel`: end a run from anywhere: its `always`, then what is still owed. The controller of a running one does it itself."""

from __future__ import annotations

import functools
from pathlib import Path

import click

from runbook.cli import recorded, store
from runbook.cli.params import DURATION
from runbook.engine import lock
from runbook.engine.journal import EVENTS
from runbook.engine.lock import Held
from runbook.model.clock import SystemClock
from runbook.model.verdict import EXIT_CODES
from runbook.render.story import Story, tell


@click.command()
@click.argument("run")
@click.option("--for", "for_s", type=DURATION, default="10m", show_default=True, help="Wait at most this long for a running one's cleanup.")
@click.option("--host", "hosts", multiple=True, metavar="TARGET", help="Where it was too, when its journal does not tell; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(run: str, for_s: float, hosts: tuple[str, ...], as_json: bool) -> int:
    """End RUN (an id, its beginning, `last`, or a folder): running, suspended, or without a controller; or what it kept (`run --keep`).

    Its `always` steps run, then launches are stopped and patches undone. A running one is asked to do so itself: exit 75 when its cleanup
    takes longer than --for, 8 when its controller does not hear. Of one whose journal was emptied, damaged or removed, its hosts tell what
    it left; where nothing of it is on this machine, it takes the whole id and --host.
    """
    from runbook.cli import host_record, live, perform
    from runbook.cli.ask import ask_to_cancel
    from runbook.cli.finish import finish
    from runbook.engine.journal import JournalError, load_events, repair_torn_line
    from runbook.engine.resume import cancel
    from runbook.engine.state import fold

    if hosts:
        host_record.check_names(hosts)
    folder = recorded.last_open() if run == "last" else _find(run, hosts)
    try:
        events = load_events(folder)
    except JournalError as problem:
        why = str(problem) if folder.is_dir() else f"it is not in {store.runs_folder()}"
        return _untold(folder, why, hosts, for_s, as_json)
    state = fold(events)
    header = state.header
    if header is None:
        return _untold(folder, recorded.no_beginning(folder), hosts, for_s, as_json)
    if hosts:
        raise click.UsageError(f"--host: the journal of {header.run} tells its hosts; leave it out")
    kept = state.ended is not None and bool(state.owed)
    if state.ended is not None and not kept:
        click.echo(f"{header.run} has ended already: {state.ended.verdict}", err=True)
        for heir in state.heirs:
            click.echo(f"what it kept is run {heir}'s now: `runbook cancel {heir}` ends that", err=True)
        return finish(folder, as_json)
    if not kept and state.suspended is None and store.is_alive(state.controller):
        code = ask_to_cancel(folder, tell(events), SystemClock(), for_s=for_s, as_json=as_json)
        if code is not None:
            return code
        events = store.read_run(folder)
    repair_torn_line(folder)
    clock = SystemClock()
    known, unset = recorded.secrets_of(folder, header)
    for name in unset:
        click.echo(f"the secret {name} is not set now, so it cannot be masked: the server's log is not fetched", err=True)
    options = recorded.options(folder, header, header.overrides, unset, no_suspend=True, keep=False)
    playbook = recorded.rebuild(header)
    runtime = perform.runtime(playbook, options, known, clock, first=len(events), cwd=header.controller.get("cwd"))
    try:
        with store.hold(folder, perform.controller(), events=len(events)), live.follower(clock, quiet=False) as follower:
            runtime.journal.follow(follower.follow)
            ended = cancel(runtime, events, functools.partial(perform.leave, options, as_json))
    except Held as held:
        click.echo(f"{header.run}: {held}", err=True)
        return EXIT_CODES["refused"]
    finish(folder, as_json, () if header.check or "--no-post" in header.argv else playbook.post, ended)
    return EXIT_CODES["passed"] if ended.cleanup != "failed" else ended.exit_code


def _find(run: str, hosts: tuple[str, ...]) -> Path:
    """The folder of a run; where it is gone, the place at which it was, when its hosts are named or something is left there."""
    place = store.runs_folder() / run
    begins = any(folder.name.startswith(run) for folder in store.run_folders())
    if run and "/" not in run and not begins and not Path(run, EVENTS).is_file() and (hosts or place.is_dir()):
        return place
    return store.find_run(run)


def _untold(folder: Path, why: str, hosts: tuple[str, ...], for_s: float, as_json: bool) -> int:
    """End a run of which its journal tells too little: by its controller, when that lives, else by its hosts."""
    from runbook.cli import by_hosts
    from runbook.cli.ask import ask_to_cancel

    holder = lock.last_holder(folder)
    if holder and store.is_alive(holder):
        code = ask_to_cancel(folder, Story(controller=holder), SystemClock(), for_s=for_s, as_json=as_json)
        if code is not None:
            return code
    return by_hosts.cancel(folder, why, hosts, as_json=as_json)
