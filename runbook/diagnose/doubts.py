"""What keeps a suspicion from being a verdict, in words: who could still end the waits that were seen."""

from __future__ import annotations

from collections.abc import Iterator

from runbook.diagnose.calls import FAR_ENDED, at_calls, has_timer, waits_here
from runbook.diagnose.circles import locked_out
from runbook.diagnose.enders import enders
from runbook.diagnose.family import accused
from runbook.diagnose.stale_locks import which_lock
from runbook.diagnose.standstill import standstill
from runbook.diagnose.turning import goes_round, spin_doubt, standing
from runbook.diagnose.view import View


def doubts(view: View) -> tuple[str, ...]:
    """Each once."""
    return tuple(dict.fromkeys([*_spins(view), *_limits(view), *_alarms(view), *_locks(view), *_rounds(view), *which_lock(view)]))


def _spins(view: View) -> Iterator[str]:
    yield from (text for run in view.once(standstill).spinning if (text := spin_doubt(view, run)))


def _limits(view: View) -> Iterator[str]:
    yield from (call.doubt for call in view.once(at_calls).values() if call.doubt)


def _alarms(view: View) -> Iterator[str]:
    yield from enders(view, [run.process.pid for run in view.once(accused)])
    for (pid, _), call in view.once(at_calls).items():
        ends = [call.child] if call.call == "child" and call.child is not None else list(call.peers) if call.call in FAR_ENDED else []
        for other in ends:
            if other != pid and has_timer(view, other):
                yield f"a timer of its own may end pid {other}, for which pid {pid} waits"


def _locks(view: View) -> Iterator[str]:
    """Main threads at a lock of which nobody knows who holds it."""
    held, locked = view.once(at_calls), view.once(locked_out)
    for run in view.once(accused):
        tid = (run.process.pid, run.process.pid)
        if waits_here(held.get(tid)) and tid not in locked:
            yield f"who holds what pid {tid[0]} waits for, neither the source of its lines nor a mutex tells"


def _rounds(view: View) -> Iterator[str]:
    if view.log.repeats and standing(view) and not goes_round(view):
        yield "whether it looks at what others may write, its source does not tell"
