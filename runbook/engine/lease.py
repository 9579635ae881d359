"""The lease of a host's GPUs: taken before the first step that changes the host, one round trip; the host gives it back by itself.

A run that has none yet is refused while another one has a GPU of its own, or waits for it as long as it was told to.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from runbook.engine.context import Context
from runbook.engine.reuse import owners
from runbook.engine.runtime import Runtime
from runbook.engine.watch import pause
from runbook.hosts.base import Host, Lease, RemoteError
from runbook.model.units import format_duration
from runbook.steps.base import Step, StepResult

EVERY_S = 2.0
"""Between two tries of a run that waits for a lease."""
SHARED = "share it by `gpus:` (each run's own, as in `gpus: [0, 1]`; `gpus: []` for one that needs none, as on a host without GPUs)"


def secure(runtime: Runtime, step: Step, context: Context) -> StepResult | None:
    """Make sure that this run has the lease of the step's host; a result when it does not get it. Raises HostError, Cancelled."""
    if not step.CHANGES or runtime.options.check:
        return None
    host = context.host
    taken = runtime.leased.get(host.name)
    if taken is not None and taken.facts is host.facts:
        return None
    began = runtime.clock.monotonic()
    while (other := _try(runtime, host, context)) is not None:
        left = runtime.options.wait_lease_s - (runtime.clock.monotonic() - began)
        if left <= 0:
            return StepResult(verdict="refused", reason=_refused(runtime, host, other), fields={})
        context.progress(f"waits {format_duration(max(1.0, left))} at most for the lease of {_whose(other)}")
        pause(runtime.clock, runtime.cancel, min(EVERY_S, left))
        host = context.host  # the connection may have been lost meanwhile
    runtime.leased[host.name] = host
    return None


def _try(runtime: Runtime, host: Host, context: Context) -> Lease | None:
    """The lease that is in the way; None when ours is had."""
    controller = runtime.state.header.controller if runtime.state.header else {}
    holder = f"{controller.get('user', '?')}@{controller.get('host', '?')}"
    try:
        reuse = sorted(owners(runtime.reused)) if runtime.reused is not None else ()
        taken_over = host.take_lease(runtime.options.run, holder, runtime.info.suspend_for_s, reuse)
    except RemoteError as problem:
        if "lease" not in problem.data:
            raise
        return msgspec.convert(problem.data["lease"], Lease)
    for dead in taken_over:
        context.find("lease_taken_over", f"{host.name}: the lease of {_whose(dead)} does not count any more: {dead.stale}")
    return None


def _whose(lease: Lease) -> str:
    account = f"account {lease.account}, " if lease.account else ""
    return f"{lease.holder} ({account}run {lease.user}, {gpus_of(lease)})"


def gpus_of(lease: Lease) -> str:
    """In words."""
    if not lease.gpus:
        return "all GPUs" if lease.gpus is None else "no GPU"
    return f"GPU{'s' if len(lease.gpus) != 1 else ''} {', '.join(map(str, lease.gpus))}"


def _refused(runtime: Runtime, host: Host, lease: Lease) -> str:
    times = (
        f"{word} {_at(runtime, host, at)}" for word, at in (("since", lease.since), ("renewed", lease.renewed), ("until", lease.until))
    )
    waited = f" after {format_duration(runtime.options.wait_lease_s)}" if runtime.options.wait_lease_s else ""
    return (
        f"{host.name} is leased by {_whose(lease)}{waited}: {', '.join(times)}; "
        f"wait with `--wait-lease 10m`, {SHARED}, or `runbook cancel {lease.user}` where that run was started"
    )


def _at(runtime: Runtime, host: Host, at: float) -> str:
    """A time of the host as the controller's clock shows it."""
    here = at - host.facts.clock_offset_s
    form = "%H:%M:%S" if abs(here - runtime.clock.now()) < 43200 else "%Y-%m-%d %H:%M"
    return f"{datetime.fromtimestamp(here):{form}}"
