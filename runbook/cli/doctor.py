"""`runbook doctor`: can this host be worked on, and what will be missing? Looks only; nothing is left there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import msgspec

from runbook.model.clock import Clock, SystemClock
from runbook.model.gpu import GpuSample
from runbook.model.health import Finding, Health, Stage
from runbook.model.units import format_size

GPU_LIMIT_S = 20.0


@click.command()
@click.argument("host")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(host: str, as_json: bool) -> int:
    """Examine HOST (a name of hosts.yaml, an ssh alias, user@host:port, `local` or `lab`) before a run does.

    Tells how long each stage of getting in takes, which ssh settings are used and which cannot be honoured, what evidence this account
    may see, and what earlier runs left. Each finding comes with its fix. Exit 0: healthy; 1: something will break a run; 6: unreachable.
    """
    from runbook.playbook.top import FORM, target_fault
    from runbook.render.doctor import text

    fault = target_fault(host)
    if fault:
        raise click.UsageError(f"{fault}: {FORM}")
    health = examine(host, SystemClock())
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(health), ensure_ascii=False))
    else:
        click.echo(text(health), nl=False)
    return health.exit_code


class Stages:
    """When each stage of getting in began; the next one ends it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun: list[tuple[str, float]] = []

    def begin(self, stage: str) -> None:
        """A stage begins; a second try of all starts anew."""
        if stage in {name for name, _ in self._begun}:
            self._begun = self._begun[: [name for name, _ in self._begun].index(stage)]
        self._begun.append((stage, self._clock.monotonic()))

    def ended(self, problem: str = "", at: str = "") -> tuple[Stage, ...]:
        """All so far; the last one ends now, with its problem, which may name its stage more exactly."""
        ends = [*(begun for _, begun in self._begun), self._clock.monotonic()][1:]
        rows = [Stage(stage=name, seconds=end - begun) for (name, begun), end in zip(self._begun, ends, strict=True)]
        if problem:
            last = rows.pop() if rows else Stage(stage=at, seconds=0.0)
            rows.append(msgspec.structs.replace(last, stage=at or last.stage, problem=problem))
        return tuple(rows)


def examine(name: str, clock: Clock) -> Health:
    """Connect, look, judge. Never raises for what the host does."""
    from runbook.hosts.base import HostError, Unreachable
    from runbook.hosts.connect import connect
    from runbook.hosts.health import Seen, concluded, findings
    from runbook.model.playbook import Target

    stages, notes = Stages(clock), list[str]()
    if name != "local":
        _load()
    health = Health(host=name)
    try:
        host = connect(Target(target=name), clock=clock, note=notes.append, trace=stages.begin)
    except Unreachable as problem:
        failed = stages.ended(problem.summary, problem.stage)
        health = msgspec.structs.replace(health, ssh=_ssh(name))
        fix = Finding(code="unreachable", breaks=True, text=f"{problem.stage}: {problem.summary}", fix=problem.hint or "see above")
        return concluded(msgspec.structs.replace(health, stages=failed, not_honoured=tuple(notes), findings=(fix,)))
    got_in = stages.ended()
    facts = host.facts
    health = msgspec.structs.replace(
        health,
        address=host.address,
        ssh=_ssh(name),
        stages=got_in,
        not_honoured=tuple(notes),
        account=f"{facts.user} (uid {facts.uid}) on {facts.hostname}, {facts.cpus} CPUs",
        python=f"{facts.python_version} ({facts.python})",
        clock_offset_s=facts.clock_offset_s,
        clock_error_s=facts.clock_error_s,
    )
    try:
        examined = host.examine()
        report = host.gpus(limit_s=GPU_LIMIT_S) if examined.gpu_tool else None
    except HostError as problem:
        stage = Stage(stage="look", seconds=0.0, problem=problem.summary)
        return concluded(msgspec.structs.replace(health, stages=(*got_in, stage)))
    finally:
        host.close()
    gpus: tuple[str, ...] = tuple(_gpu(row) for row in report.gpus) if report is not None else ()
    blind = report.blind if report is not None else ""
    seen = Seen(examined, name, facts.clock_offset_s, facts.clock_error_s, blind)
    return concluded(msgspec.structs.replace(health, examined=examined, gpus=gpus, gpu_problem=blind, findings=findings(seen)))


def _load() -> None:
    """What every connection needs, before the clock runs: loading it is no matter of the host."""
    import runbook.hosts.ssh
    from runbook.hosts.bundle import prepare

    assert runbook.hosts.ssh
    prepare()


def _gpu(row: GpuSample) -> str:
    return f"{row.index} {row.name}: {format_size(row.used)} of {format_size(row.total)} used"


def _ssh(name: str) -> dict[str, str]:
    """The settings that are used, for a target that is reached by ssh; what is wrong with them is told by the connection."""
    from runbook.hosts.base import ResolveFailed
    from runbook.hosts.connect import CONFIG_VARIABLE
    from runbook.hosts.inventory import load
    from runbook.hosts.ssh_config import resolve
    from runbook.model.playbook import Target

    try:
        place = load().place(Target(target=name))
        if place.kind != "ssh":
            return {}
        found = resolve(place.ssh, os.environ.get(CONFIG_VARIABLE, ""))
    except ResolveFailed:
        return {}
    keys = [path for path in found.identity_files if Path(path).exists()]
    told = {
        "HostName": found.host,
        "Port": str(found.port),
        "User": found.user,
        "IdentityFile": " ".join(keys),
        "IdentitiesOnly": "yes" if found.identities_only else "",
        "IdentityAgent": found.identity_agent,
        "ProxyJump": ",".join(found.proxy_jump),
        "ProxyCommand": found.proxy_command,
        "StrictHostKeyChecking": found.strict,
        "UserKnownHostsFile": " ".join(found.user_known_hosts),
    }
    return {key: value for key, value in told.items() if value}
