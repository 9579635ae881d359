"""What looks like a hang while a wait goes on. A suspicion is never a verdict and stops nothing; it asks for the looks that decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from runbook.diagnose.actors import DEEP, actors, pipes, sockets
from runbook.diagnose.child_deaths import zombies
from runbook.diagnose.execution import APART_S, SPINS, Run, execution
from runbook.diagnose.family import HELPERS, accused, everyone, name, ranks
from runbook.diagnose.motion import readings
from runbook.diagnose.places import NOWHERE, Place, main_stacks, places, wchan_kind
from runbook.diagnose.stale_locks import lock_files, waiting_ones
from runbook.diagnose.stall import Stall, stall
from runbook.diagnose.standstill import excused
from runbook.diagnose.view import View
from runbook.diagnose.wait_lexicon import LOCK_FILE
from runbook.model.sample import Seen
from runbook.model.units import format_duration

SUSPECT_SHARE = 0.5
"""A tree that does not stand still, but shows nothing either, is suspected after this share of its budget."""
AGAIN_S = 20.0
"""Stacks and counters that decided nothing are taken anew after this time: a spin needs four looks that agree."""
FULL_S = 10.0
KINDS = {
    "lock": "deadlock",
    "flock": "deadlock",
    "waits": "deadlock",
    "collective": "rank_desync",
    "child": "child_dead",
    "io": "io_blocked",
    "pipe_write": "log_pipe",
    "pipe_read": "blocked_peer",
    "tty": "stdin",
    "driver": "driver",
}
"""What a place makes one think of first; anything else is a silent partner."""


class Suspicion(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` as in hung, `since` controller seconds of the last strong progress, `want` the looks that would decide.

    `want` holds full, stacks, collectives, kernel, cheapest first; stacks and collectives are taken twice, 10 s apart.
    """

    kind: str
    text: str
    since: float
    want: tuple[str, ...] = ()


def suspicion(view: View) -> Suspicion | None:
    """The suspicion that the samples raise, or None."""
    if view.question.about == "gpu_free" or not view.samples:
        return None
    clock = view.once(stall)
    if clock.wall_s < APART_S or excused(view):
        return None
    found = next((answer for sign in _SIGNS if (answer := sign(view, clock)) is not None), None)
    if found is None:
        return None
    kind, text = found
    return Suspicion(kind=kind, text=text, since=clock.since, want=tuple(_want(view, clock)))


def _dead_child(view: View, clock: Stall) -> tuple[str, str] | None:
    for process, seconds in zombies(view):
        if seconds >= FULL_S / 2 and not HELPERS.search(process.title):
            return "child_dead", f"a child, pid {process.pid} `{process.title[:60]}`, is dead and not collected"
    return None


def _stopped(view: View, clock: Stall) -> tuple[str, str] | None:
    process = next((one for one in view.once(everyone).values() if one.state == "T"), None)
    return ("stopped", f"{name(view, process)} is stopped") if process is not None else None


def _pipe(view: View, clock: Stall) -> tuple[str, str] | None:
    for run in view.once(execution).runs:
        if any(wchan_kind(channel) == "pipe_write" for channel in (run.wchan, *run.others)):
            return "log_pipe", f"{name(view, run.process)} is in a write to a pipe"
    main = view.main
    process = view.once(everyone).get((main.pid, main.start)) if main is not None else None
    if process is not None and process.stdin in ("pipe", "tty") and any(pipe.fd == 0 for pipe in pipes(process)):
        reader = view.once(execution).of((process.pid, process.start))
        if reader is not None and reader.frozen and wchan_kind(reader.wchan) in ("pipe_read", "tty"):
            return "stdin", f"{name(view, process)} reads its standard input"
    return None


def _ranks(view: View, clock: Stall) -> tuple[str, str] | None:
    wanted, here = view.question.ranks, len(view.once(ranks))
    return ("rank_missing", f"{here} of {wanted} ranks are there") if wanted and 0 < here < wanted and not view.once(actors) else None


def _unreached(view: View, clock: Stall) -> tuple[str, str] | None:
    one = next((one for one in sockets(view) if one.state == "SYN-SENT"), None)
    return ("blocked_peer", f"its attempt to reach {one.peer} has no answer yet") if one is not None and not view.once(actors) else None


def _lock_file(view: View, clock: Stall) -> tuple[str, str] | None:
    """An old lock file may lie about; whether somebody waits for it a stack tells, and before there is one, that it wakes now and then."""
    old = lock_files(view)
    if not old or any(run.demand >= SPINS for run in view.once(execution).runs):
        return None
    table, runs = view.once(places), waiting_ones(view)
    if not any(_may_poll(run, table.get(run.key, NOWHERE)) for run in runs):
        return None
    named = {stack.lock_file for run in runs for stack in view.once(main_stacks).get(run.process.pid, [])}
    path = next((lock.path for lock in old if lock.path in named), old[0].path)
    return "stale_lock", f"an old lock file lies there, {path}, and all it does is to wake and look"


def _may_poll(run: Run, place: Place) -> bool:
    """By the newest stack, else by its wait channel."""
    if place.source != "wchan":
        return any(LOCK_FILE.search(frame) for frame in place.frames[:DEEP])
    return not run.frozen and place.kind in ("timer", "")


def _frozen(view: View, clock: Stall) -> tuple[str, str] | None:
    runs = view.once(accused)
    if not runs or view.once(actors) or not all(run.frozen for run in runs):
        return None
    place = view.once(places).get(runs[0].key, NOWHERE)
    seconds = min(run.seconds for run in runs)
    return KINDS.get(place.kind, "blocked_peer"), f"{name(view, runs[0].process)} executed nothing for {format_duration(seconds)}"


def _spinning(view: View, clock: Stall) -> tuple[str, str] | None:
    run = next((run for run in view.once(execution).runs if run.demand >= SPINS), None)
    if run is None or not clock.over(SUSPECT_SHARE):
        return None
    return "spin", f"{name(view, run.process)} demands {run.demand:.1f} cores and nothing comes of it"


def _silent(view: View, clock: Stall) -> tuple[str, str] | None:
    if not clock.over(SUSPECT_SHARE):
        return None
    return "livelock", f"no progress for {format_duration(clock.wall_s)}, half of its budget of {format_duration(clock.budget_s)} is spent"


_Sign = Callable[[View, Stall], "tuple[str, str] | None"]
_SIGNS: tuple[_Sign, ...] = (_stopped, _dead_child, _pipe, _ranks, _unreached, _frozen, _lock_file, _spinning, _silent)
"""The most telling first."""


def _want(view: View, clock: Stall) -> Iterator[str]:
    """Looks that were not taken since it stands still, or that are old and decided nothing."""
    since = clock.since
    sockets_at = [sample.t for sample, _ in readings(view.samples, "sockets") if sample.t > since]
    if len(sockets_at) < 2 and (not sockets_at or view.now - sockets_at[-1] >= FULL_S):
        yield "full"
    if _due(view, since, "stacks"):
        yield "stacks"
    if len(view.once(ranks)) >= 2 and _due(view, since, "collectives"):
        yield "collectives"
    if any(isinstance(sample.gpus, Seen) for sample in view.samples) and _due(view, since, "kernel", once=True):
        yield "kernel"


def _due(view: View, since: float, source: str, once: bool = False) -> bool:
    """Whether a look is missing: two of them since it stands still, and none too old."""
    taken = []
    for sample, value in readings(view.samples, source):
        if sample.t > since:
            taken += [sample.t] * len({getattr(one, "look", 1) for one in value} or {1})
    return len(taken) < (1 if once else 2) or view.now - taken[-1] >= AGAIN_S
