"""The doctor's answer for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from runbook.model.health import Health
from runbook.model.units import format_size
from runbook.render.inert import one_line

WIDE = 14


def text(health: Health) -> str:
    """All lines: how it got in, what it is, what can be seen, what to do."""
    return "\n".join([*_way_in(health), *_host(health), *_findings(health)]) + "\n"


def _line(name: str, said: str) -> str:
    return f"{name:<{WIDE}} {one_line(said)}"


def _way_in(health: Health) -> Iterator[str]:
    yield _line(health.host, health.address or "not reached")
    for stage in health.stages:
        yield _line(f"  {stage.stage}", f"FAILED: {stage.problem}" if stage.problem else f"{stage.seconds * 1000:.0f} ms")
    if health.ssh:
        yield _line("ssh_config", ", ".join(f"{key} {value}" for key, value in health.ssh.items()))
    for note in health.not_honoured:
        yield _line("", f"note: {note}")


def _host(health: Health) -> Iterator[str]:
    one = health.examined
    if one is None:
        return
    yield _line("account", health.account)
    yield _line("python", health.python)
    yield _line("clock", f"{health.clock_offset_s:+.3f} s ± {health.clock_error_s:.3f} s")
    sees = {"Python stacks": one.ptrace or ("" if one.py_spy else "no py-spy"), "kernel log": one.kernel_log, "other accounts": one.others}
    yield _line("sees", ", ".join(f"{what}: {'no' if why else 'yes'}" for what, why in sees.items()))
    yield _line("gpus", health.gpu_problem or "; ".join(health.gpus) or "none")
    yield _line("state", f"{one.state.path}, {format_size(one.state.free)} free of {format_size(one.state.total)}")
    kept = [run.run for run in one.runs if run.keeper]
    yield _line("runs", f"{len(kept)} kept" + (f" ({', '.join(kept)})" if kept else "") + f", {len(one.leases)} leases")


def _findings(health: Health) -> Iterator[str]:
    yield ""
    for found in health.findings:
        yield f"{'BREAKS' if found.breaks else 'note  '} {found.code}: {one_line(found.text)}"
        yield f"       fix: {one_line(found.fix)}"
    count = sum(found.breaks for found in health.findings)
    ends = {
        "healthy": "HEALTHY: a run will get through",
        "findings": f"{count} finding{'s' if count != 1 else ''} will break a run",
        "unreachable": "UNREACHABLE",
    }
    yield f"{ends[health.state]} (exit {health.exit_code})"
