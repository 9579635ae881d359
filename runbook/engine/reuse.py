"""`run --reuse RUN`: what that run kept becomes this run's, step by step, or is ended where this run does it anew.

The journal of the other run is told of each thing at once: what was taken from it is not its debt any more, so that its `cancel` cannot
end what this run uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from runbook.engine.state import RunState, keeper_run
from runbook.hosts.base import Host, RemoteError
from runbook.model.event import Event, Owed, Registered, Settled
from runbook.model.units import enc_hook
from runbook.steps.base import Launched, Patched
from runbook.steps.kill import end, launch_processes, others, split, tell_keeper, widen
from runbook.steps.restore import UNDONE, not_undone

LADDER = ("TERM 15s", "KILL 10s")

Tell = Callable[[list[Event]], None]
"""Appends events to the other run's journal."""


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """The run that is reused: its id, what it knew at its end, and the way into its journal."""

    run: str
    state: RunState
    tell: Tell


def owners(earlier: Earlier) -> frozenset[str]:
    """The runs whose keepers hold what can be taken over: the other run, and those that it had taken things over from."""
    return frozenset({earlier.run, *(keeper_run(debt, earlier.run) for debt in earlier.state.owed.values())})


class Emits(Protocol):
    """Where this run's own journal is written."""

    def emit(self, event: Event) -> None:
        """Write an event."""
        ...


class Reuse:
    """The other run as a step on one host sees it."""

    def __init__(self, earlier: Earlier, runtime: Emits, own: str, step: str, host: Host) -> None:
        self.run = earlier.run
        self._own = own
        self.runs = owners(earlier)
        self._earlier = earlier
        self._runtime = runtime
        self._step = step
        self._host = host

    @property
    def launch(self) -> Launched | None:
        """What the other run launched by a step of this name on this host, and still owes."""
        return self._earlier.state.launches.get((self._step, self._host.name)) if self._owes("launch", self._step) else None

    @property
    def patch(self) -> Patched | None:
        """What it patched by a step of this name on this host, and still owes."""
        return self._earlier.state.patches.get((self._step, self._host.name)) if self._owes("patch", self._step) else None

    def loaded(self, launch: Launched) -> list[str]:
        """Its patches that this server may have loaded and that it still owes: nobody has taken them over."""
        mine = [
            patch for patch in self._earlier.state.patches.values() if patch.host == launch.host and patch.launch in (None, launch.step)
        ]
        return [patch.step for patch in mine if self._owes("patch", patch.step)]

    def take(self, thing: Launched | Patched) -> None:
        """It is this run's from now on; its keeper stays the other one's, and is renewed with ours."""
        kind = "launch" if isinstance(thing, Launched) else "patch"
        run = (thing.run or self.run) if isinstance(thing, Launched) else thing.record.run
        owner: dict[str, Any] = {"step": self._step, "host": self._host.name}
        self._own_keeper(run)
        self._runtime.emit(Owed(id=f"{kind}:{self._step}:{self._host.name}", kind=kind, **owner, detail={"run": run}))
        self._runtime.emit(Registered(kind=kind, **owner, data=msgspec.to_builtins(thing, enc_hook=enc_hook)))
        self._settle(kind, "taken over", self._own)

    def stop(self, launch: Launched) -> None:
        """End its server: this run starts one of its own. Raises HostError."""
        run = launch.run or self.run
        self._own_keeper(run)
        table, spare = self._host.processes(run), others(self._host, run, {launch.state.id})
        seeds = launch_processes(table, launch.state.pid, launch.state.start, launch.state.sid)
        targets, _ = split(widen(seeds, table, run, spare), ())
        if targets:
            tell_keeper(self._host, run, launch.step, targets)
            end(self._host, targets, LADDER, run, run, spare)
        self._settle("launch", "stopped")

    def restore(self, patch: Patched) -> None:
        """Give its file back: this run patches it in another way. Raises HostError."""
        run = patch.record.run
        self._own_keeper(run)
        reports = self._host.restore(run, [patch.record.id])
        left = [report for report in reports if report.state not in UNDONE]
        if left:
            raise RemoteError("conflict", not_undone(left[0]), f"look at `runbook restore {run}`")
        self._settle("patch", "restored")

    def _own_keeper(self, run: str) -> None:
        """Its keeper is renewed with ours from now on, and retired with ours at the end. None is left where that run was cleaned up."""
        owner: dict[str, Any] = {"step": self._step, "host": self._host.name}
        try:
            self._host.renew(run, by=self._own)
        except RemoteError as problem:
            if problem.code != "not_found":
                raise
            return
        self._runtime.emit(Owed(id=f"keeper:{run}:{self._host.name}", kind="keeper", **owner, detail={"run": run}))

    def _id(self, kind: str, step: str) -> str:
        return f"{kind}:{step}:{self._host.name}"

    def _owes(self, kind: str, step: str) -> bool:
        return self._id(kind, step) in self._earlier.state.owed

    def _settle(self, kind: str, how: str, by: str = "") -> None:
        id = self._id(kind, self._step)
        events: list[Event] = [Settled(id=id, how=how, by=by)]
        self._earlier.state.owed.pop(id, None)
        rest = [debt for debt in self._earlier.state.owed.values() if debt.host == self._host.name]
        if all(debt.kind == "keeper" for debt in rest):  # the keeper goes with the last of its things
            events += [Settled(id=debt.id, how=how) for debt in rest]
            for debt in rest:
                self._earlier.state.owed.pop(debt.id)
        ended = self._earlier.state.ended
        if ended is not None and all(debt.kind == "keeper" for debt in self._earlier.state.owed.values()):
            next = [f"runbook cancel {self._own}  # it has what this run kept"]
            events.append(msgspec.structs.replace(ended, t=0.0, n=-1, left_behind=[], next=next, kept_until=None))
        self._earlier.tell(events)
