"""`runbook diagnose`: is my server hung, or loading? Looks at one that runs already; no playbook is needed."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from runbook.cli import candidates, store
from runbook.hosts.base import CancelToken, HostError, Unreachable
from runbook.model.clock import SystemClock
from runbook.model.event import AnyEvent, RunEnded, RunSuspended, StepEnded
from runbook.model.fields import url_fault
from runbook.model.playbook import Target
from runbook.model.units import TimeBox, UnitError
from runbook.model.verdict import EXIT_CODES, Diagnosis

ON_A_TERMINAL, ELSEWHERE, WATCHING = "60s", "30s", "24h"
"""How long it looks when `--for` does not say; a program that calls it may have a limit of its own."""


@click.command()
@click.argument("target")
@click.option("--port", type=click.IntRange(1, 65535), help="The server that listens on this TCP port, or will by its command.")
@click.option("--pid", type=click.IntRange(1), help="The server's main process.")
@click.option("--match", metavar="REGEX", help="Searched in command lines and titles; one server must match.")
@click.option("--log", metavar="PATH", help="Its log on the host [from its open files].")
@click.option("--url", help="Its health address as seen from the host [the profile's path on its port].")
@click.option("--profile", metavar="NAME", help="Engine profile [guessed from its command].")
@click.option("--for", "box", metavar="DURATION", help="How long to look [60s; 30s when stdout is no terminal].")
@click.option("--stall-after", metavar="DURATION", help="Time without progress before a hang is possible [the phase's budget].")
@click.option("--watch", is_flag=True, help="Go on until it is certain, or until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder of what was seen [a new one in the state folder].")
def command(
    target: str,
    port: int | None,
    pid: int | None,
    match: str | None,
    log: str | None,
    url: str | None,
    profile: str | None,
    box: str | None,
    stall_after: str | None,
    watch: bool,
    as_json: bool,
    out: Path | None,
) -> int:
    """Say whether a server on TARGET serves, loads or hangs, with the evidence, and what could not be seen.

    TARGET is `local`, `lab`, a name of hosts.yaml, an ssh alias or an address. Without --port, --pid or --match the only server is
    taken; of several the candidates are listed, with exit code 2. Nothing is stopped or changed on the host.
    """
    wish = candidates.Wish(port=port, pid=pid, match=match, profile=profile)
    wish.check()
    box_text = _duration("--for", box) or (WATCHING if watch else ON_A_TERMINAL if sys.stdout.isatty() else ELSEWHERE)
    stall = _duration("--stall-after", stall_after) or "auto"
    if url is not None and (fault := url_fault(url)):
        raise click.UsageError("--url: " + ": ".join(fault))
    clock = SystemClock()
    from runbook.cli import perform

    try:
        host = perform.connect(clock, None, Target(target=target), CancelToken(), lambda text: click.echo(text, err=True))
    except Unreachable as problem:
        return _unreachable(target, problem, as_json)
    try:
        found = candidates.choose(host, wish)
        if log is not None:
            host.read(log, 0, 1)
    except candidates.Unclear as unclear:
        host.close()
        return unclear.tell(target, as_json)
    except HostError as problem:
        host.close()
        raise click.UsageError(f"{target}: {problem.summary}" + (f"; {problem.hint}" if problem.hint else "")) from problem
    click.echo(f"{target}: pid {found.pid} {found.command or found.title}", err=True)
    where = {"pid": found.pid, **({"port": port} if port else {}), "profile": profile or found.profile, **({"log": log} if log else {})}
    text = _playbook(target, where, url, box_text, stall)
    return _run(text, host, clock, out, as_json)


def _duration(option: str, text: str | None) -> str | None:
    if text is None:
        return None
    try:
        TimeBox.parse(text)
    except UnitError as problem:
        raise click.UsageError(f"{option}: {problem}; {problem.hint or 'write for example `60s`'}") from problem
    return text


def _playbook(target: str, where: dict[str, Any], url: str | None, box: str, stall: str) -> str:
    """The two steps that are run, as a playbook: it stands in the journal, and says how to do the same again."""
    look = {"server": "server", "timeout": box, "stall_after": stall, **({"url": url} if url else {})}
    steps = [{"id": "server", "attach": where}, {"id": "state", "diagnose": look}]
    lines = ["runbook: 1", f"name: {json.dumps('diagnose ' + target)}", f"hosts: {json.dumps({'box': target})}", "steps:"]
    return "\n".join([*lines, *(f"  - {json.dumps(step, ensure_ascii=False)}" for step in steps), ""]).replace("${{", "$${{")


def _run(text: str, host: Any, clock: SystemClock, out: Path | None, as_json: bool) -> int:
    from runbook.cli import live, perform
    from runbook.cli.profiles import profiles
    from runbook.engine.execute import execute
    from runbook.engine.journal import load_events
    from runbook.engine.runtime import Options
    from runbook.playbook.build import load_playbook
    from runbook.steps import TABLE

    playbook, problems = load_playbook(text.encode(), "diagnose.yaml", table=TABLE, profiles=profiles().names(), read=lambda _: b"")
    if playbook is None:
        host.close()
        raise click.UsageError("; ".join(f"{problem.summary}" for problem in problems))
    run = store.fresh_id(clock.now())
    folder = (out or store.runs_folder() / run).absolute()
    if (folder / "events.jsonl").exists():
        raise click.UsageError(f"{folder} holds a run already: name another folder")
    options = Options(run=run, dir=str(folder), no_suspend=True, argv=sys.argv[1:])
    runtime = perform.runtime(playbook, options, {}, clock)
    runtime.adopt(host)
    with live.follower(clock, quiet=False) as follower:
        runtime.journal.follow(lambda event: None if isinstance(event, RunEnded) else follower.follow(event))  # it is told on stdout
        ended = execute(runtime, functools.partial(perform.leave, options, False), perform.controller())
    from runbook.cli.finish import write  # it was loaded meanwhile

    events = load_events(folder)
    write(folder, events)
    diagnosis, so_far = of_run(events, ended), _so_far(events) if ended.verdict == "interrupted" else None
    if as_json:
        more = {"so_far": as_object(so_far)} if so_far is not None else {}
        place = {"run": run, "transcript": str(folder / "transcript.html")}
        click.echo(json.dumps({**as_object(diagnosis), **more, **place}, ensure_ascii=False))
    else:
        from runbook.render.diagnosis import as_text

        click.echo(as_text(diagnosis) if so_far is None else f"interrupted; so far:\n{as_text(so_far)}", nl=False)
        click.echo(f"how it came about: runbook judge {run} --rules\ntranscript: {folder / 'transcript.html'}")
    return ended.exit_code


def of_run(events: list[AnyEvent], ended: RunEnded | RunSuspended) -> Diagnosis:
    """The diagnosis that the run ended with; of one that never came to look, its verdict and reason."""
    ends = [event for event in events if isinstance(event, StepEnded)]
    if ends and ends[-1].diagnosis is not None and ended.verdict in (ends[-1].verdict, "passed"):
        return ends[-1].diagnosis
    return Diagnosis(verdict=ended.verdict, rule="not_looked", reason=ended.reason, kind=ended.kind, next=tuple(ended.next))


def _so_far(events: list[AnyEvent]) -> Diagnosis | None:
    """What the samples of a look that was cut short say."""
    from runbook.engine.replay import judge_again, waits

    found = waits(events)
    return judge_again(found[-1]).diagnosis if found else None


def as_object(diagnosis: Diagnosis) -> dict[str, Any]:
    """The JSON form."""
    plain: dict[str, Any] = msgspec.to_builtins(diagnosis)
    return plain


def _unreachable(target: str, problem: Unreachable, as_json: bool) -> int:
    reason = f"{target} was not reached: {problem.summary}"
    hints = (problem.hint,) if problem.hint else ()
    diagnosis = Diagnosis(verdict="unreachable", rule="unreachable", reason=f"{reason}; nothing is said about the server", next=hints)
    if as_json:
        click.echo(json.dumps(as_object(diagnosis), ensure_ascii=False))
    click.echo("; ".join([reason, *hints]), err=True)
    return EXIT_CODES["unreachable"]
