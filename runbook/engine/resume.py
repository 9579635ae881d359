"""Going on with a run whose controller is gone: reach its hosts, hear what their keepers did meanwhile, close what was in flight.

hosts reached ─ keepers renewed ─ `resumed` ─ ends for what was in flight ─ the playbook from its first step, with the ends on record
      └── a keeper has cleaned up: the run ends as what it was, and nothing is done again
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from runbook.engine.execute import Execution, Leave
from runbook.engine.past import Flight, Past
from runbook.engine.runtime import Runtime, walk
from runbook.engine.state import fold, keeper_run
from runbook.engine.watch import pause
from runbook.hosts.base import Host, HostFacts, RemoteError
from runbook.model.event import ActionEnded, ActionStarted, AnyEvent, Owed, Resumed, RunEnded, RunSuspended, StepEnded
from runbook.model.playbook import Playbook

CLEANING_S = 120.0
"""A keeper that is just cleaning up is waited for so long."""
DIED = "its controller died here"


def resume(runtime: Runtime, events: Sequence[AnyEvent], past: Past, leave: Leave, controller: dict[str, Any]) -> RunEnded | RunSuspended:
    """Go on with a run. Raises HostError, with nothing changed, when a host on which it has something cannot be reached."""
    _take_up(runtime, events, past)
    try:
        undone = _reach(runtime)
    except BaseException:
        runtime.close()
        raise
    flying = [_name(flight) for flight in runtime.past.flights.values()]
    runtime.emit(Resumed(controller=controller, in_flight=flying, redo=sorted(past.redo), skip=sorted(past.skip)))
    _close(runtime)
    return Execution(runtime, leave).resume(undone)


def cancel(runtime: Runtime, events: list[AnyEvent], leave: Leave) -> RunEnded:
    """Clean a run up that is suspended or has lost its controller: its `always`, then what is owed. Of one that has ended: what it kept."""
    _take_up(runtime, events, past_of(runtime.playbook, events))
    if runtime.state.ended is not None:
        return Execution(runtime, leave).release()
    _close(runtime)
    return Execution(runtime, leave).cancel()


def past_of(playbook: Playbook, events: Sequence[AnyEvent], redo: Sequence[str] = (), skip: Sequence[str] = ()) -> Past:
    """What was done before, by the order of the playbook's steps."""
    return Past(events, walk((*playbook.steps, *playbook.always)), redo, skip)


def _take_up(runtime: Runtime, events: Sequence[AnyEvent], past: Past) -> None:
    """The state and the past of the run so far."""
    runtime.state = fold(list(events))
    runtime.journal.follow(runtime.state.apply)
    runtime.past = past
    runtime.count_actions(sum(isinstance(event, ActionStarted) for event in events))
    for connected in runtime.state.hosts.values():
        runtime.remember(connected.host, msgspec.convert(connected.facts, HostFacts))
    for note in runtime.state.marks:
        for path in note.marks:
            runtime.watch_log(note.host, path)


def _reach(runtime: Runtime) -> list[str]:
    """Connect to every host with a keeper of this run, and renew it; answers what keepers had undone before."""
    own = runtime.options.run
    keepers = dict.fromkeys((debt.host, keeper_run(debt, own)) for debt in runtime.state.owed.values() if debt.kind == "keeper")
    return [f"{name}: {text}" for name, run in keepers for text in _renewed(runtime, runtime.host(name), run)]


def _renewed(runtime: Runtime, host: Host, run: str) -> list[str]:
    """What this keeper did on its own. Raises RemoteError when it is still cleaning up after two minutes."""
    deadline = runtime.clock.monotonic() + CLEANING_S
    while True:
        try:
            if host.renew(run):
                runtime.find("keeper_replaced", f"{host.name}: this run's keeper had died; another one took over")
            return [text for act in host.keeper(run).ended or () if (text := _told(act))]
        except RemoteError as problem:
            if problem.code == "not_found":
                return []  # it had not begun to act here, or is cleaned up
            if problem.code != "busy" or runtime.clock.monotonic() > deadline:
                raise
            pause(runtime.clock, runtime.cancel, 0.5)


def _told(act: dict[str, Any]) -> str:
    """One act of a keeper in words; empty when there was nothing to undo."""
    stopped = [f"stopped `{one['id']}` (pid {one['pid']})" for one in act.get("stopped", ())]
    restored = [f"{one['state']} {one['path']}" for one in act.get("restored", ())]
    return ", ".join([*stopped, *restored])


def _name(flight: Flight) -> str:
    key = flight.key
    return key.step + (f" on {key.host}" if key.host else "") + (f" item {key.item + 1}" if key.item is not None else "")


def _close(runtime: Runtime) -> None:
    """Every step and every action has one end: these are the ones that their controller could not write."""
    for action in runtime.past.open_actions.values():
        runtime.emit(ActionEnded(id=action.id, step=action.step, host=action.host, action=action.action, ok=False, error=DIED))
    for flight in runtime.past.flights.values():
        start = flight.start
        same = {
            "step": start.step,
            "type": start.type,
            "host": start.host,
            "attempt": start.attempt,
            "item": start.item,
            "part": start.part,
        }
        if runtime.table[start.type].HOLDS and f"keeper:{start.host}" not in runtime.state.owed:
            runtime.emit(Owed(id=f"keeper:{start.host}", kind="keeper", step=start.step, host=start.host))  # its command may have gone on
        if not flight.closed:
            runtime.emit(StepEnded(**same, status="failed", verdict="interrupted", reason=DIED, seconds=0.0))  # type: ignore[arg-type]
