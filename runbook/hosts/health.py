"""What the doctor makes of what it saw: findings, each with its fix, those that break a run first. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from runbook.model import extras
from runbook.model.health import Examined, Finding, Health
from runbook.model.units import format_size

LEAST_FREE = 64 << 20
"""A run's records and a server's log need some room; below this a patch's undo record may not fit."""
MOST_OFFSET_S = 1.0
"""Beyond it, times of host and controller are told apart only with care; order across hosts counts beyond the measured error."""
BIN = "runbook"


class Seen(NamedTuple):
    """What was looked at."""

    examined: Examined
    target: str
    offset_s: float
    error_s: float
    gpu_problem: str


def findings(seen: Seen) -> tuple[Finding, ...]:
    """In the order of their weight."""
    found = [*_state(seen), *_left(seen), *_gpus(seen), *_leases(seen), *_clock(seen), *_sight(seen)]
    return tuple(sorted(found, key=lambda one: not one.breaks))


def _state(seen: Seen) -> Iterator[Finding]:
    state = seen.examined.state
    fix = "give this target another: `via: env XDG_STATE_HOME=/a/folder/of/yours`"
    if state.problem:
        yield Finding(code="state_folder", breaks=True, text=f"{state.path} cannot be used: {state.problem}", fix=fix)
    elif state.free < LEAST_FREE or state.free_inodes == 0:
        what = f"{format_size(state.free)} and {state.free_inodes} inodes" if state.free_inodes == 0 else format_size(state.free)
        yield Finding(code="disk_full", breaks=True, text=f"the disk of {state.path} has only {what} left", fix=f"make room, or {fix}")


def _left(seen: Seen) -> Iterator[Finding]:
    for run in seen.examined.runs:
        if run.problem:
            yield Finding(
                code="unreadable_run", breaks=False, text=f"{run.path} cannot be read: {run.problem}", fix="look at it, then remove it"
            )
        if run.keeper:
            continue
        if run.patched:
            text = f"{', '.join(run.patched)} still carries the patch of run {run.run}, whose keeper is gone"
            yield Finding(code="leftover_patch", breaks=True, text=text, fix=f"`{BIN} restore {run.run} --host {seen.target}`")
        for launch in run.live:
            text = f"pid {launch.pid} ({launch.title}) is `{launch.id}` of run {run.run}, and nobody keeps it"
            fix = f"`{BIN} cancel {run.run}` where it was started, or a step `kill: {{pid: {launch.pid}}}`"
            yield Finding(code="orphan", breaks=True, text=text, fix=fix)


def _gpus(seen: Seen) -> Iterator[Finding]:
    one = seen.examined
    if one.gpu_tool and seen.gpu_problem:
        text = f"{one.gpu_tool} gave no answer: {seen.gpu_problem}"
        yield Finding(
            code="gpu_tool", breaks=True, text=text, fix="run it by hand; a process in D state needs the driver reset, or a reboot"
        )
    elif one.gpu_devices and not one.gpu_tool:
        text = f"there are {one.gpu_devices} GPU devices and no nvidia-smi on the account's PATH"
        yield Finding(
            code="gpu_tool", breaks=True, text=text, fix="add its folder to PATH in the account's shell files, or by `via: env PATH=…`"
        )
    elif not one.gpu_tool:
        text = "no nvidia-smi: `wait_gpu_free` and `kill: {match: {gpu: any}}` cannot see GPUs here"
        yield Finding(code="no_gpu", breaks=False, text=text, fix="nothing to do on a host without GPUs")


def _leases(seen: Seen) -> Iterator[Finding]:
    for lease in seen.examined.leases:
        what = "all GPUs" if lease.gpus is None else f"GPU {', '.join(map(str, lease.gpus))}"
        if lease.stale:
            text = f"{what}: the lease of run {lease.run} ({lease.holder}) does not count any more: {lease.stale}"
            yield Finding(code="stale_lease", breaks=False, text=text, fix="nothing to do: the next run takes it over")
        else:
            whose = f"{lease.holder} (account {lease.account})" if lease.account else lease.holder
            text = f"{what}: leased by {whose}, run {lease.user}; a run that changes the host is refused meanwhile"
            yield Finding(code="leased", breaks=False, text=text, fix="wait with `--wait-lease 10m`, or share the host by `gpus:`")
    if seen.examined.leases_alone:
        text = f"runs of other accounts here cannot be seen, nor ours by them: {seen.examined.leases_alone}"
        yield Finding(
            code="leases_alone", breaks=False, text=text, fix="`via: env RUNBOOK_LEASES=…`: a folder of root with mode 1777, for all"
        )


def _clock(seen: Seen) -> Iterator[Finding]:
    if abs(seen.offset_s) > MOST_OFFSET_S + seen.error_s:
        text = f"its clock is {abs(seen.offset_s):.1f} s {'ahead' if seen.offset_s > 0 else 'behind'} (± {seen.error_s:.2f} s)"
        yield Finding(
            code="clock", breaks=False, text=text, fix="let both keep time by NTP (`timedatectl`); runbook allows for it meanwhile"
        )


def _sight(seen: Seen) -> Iterator[Finding]:
    one = seen.examined
    if one.ptrace:
        text = f"stacks of servers cannot be read: {one.ptrace}"
        yield Finding(code="no_stacks", breaks=False, text=text, fix="`sysctl kernel.yama.ptrace_scope=0`, or launch with `dumps: full`")
    elif not one.py_spy:
        text = "no py-spy there: Python stacks are read only where this machine can lend one"
        yield Finding(code="no_py_spy", breaks=False, text=text, fix=f"py-spy there; or here, {extras.how('pyspy')}")
    if one.kernel_log:
        text = "the kernel's log cannot be read: an OOM kill or a GPU fault (Xid) is not seen in it"
        yield Finding(code="no_kernel_log", breaks=False, text=text, fix="`sysctl kernel.dmesg_restrict=0`, or `via: sudo -n`")
    if one.others:
        text = f"processes of other accounts cannot be looked into: {one.others}"
        yield Finding(code="no_others", breaks=False, text=text, fix="log in as the server's account, or `via: sudo -n`")


def concluded(health: Health) -> Health:
    """With its state and exit code."""
    if any(stage.problem for stage in health.stages):
        return replace(health, state="unreachable", exit_code=6)
    breaks = any(one.breaks for one in health.findings)
    return replace(health, state="findings" if breaks else "healthy", exit_code=1 if breaks else 0)
