"""The evidence that a tree stands still, by independent classes, and whether it suffices to call it hung.

Hung needs a spent budget, two classes of evidence and nobody who works. Classes: execution (nothing executed, or a spin with no
counter moving), data (no byte, page or token anywhere, and the sources were readable), place (stacks or wait channel the same twice
and of a waiting kind), coordination (locks, sockets, ranks, pipes), device. Time alone convicts nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from runbook.diagnose import words
from runbook.diagnose.actors import Unseen, actors, in_flight, unseen, waits_spinning
from runbook.diagnose.enders import starters
from runbook.diagnose.execution import APART_S, HOLD_S, WORKS, Run, execution
from runbook.diagnose.family import accused, name, rank_of
from runbook.diagnose.places import NOWHERE, places
from runbook.diagnose.stall import Stall, stall
from runbook.diagnose.view import View
from runbook.model.sample import ProcessSample, Seen
from runbook.model.units import format_duration
from runbook.model.verdict import Culprit, Diagnosis, Evidence

BYTE_SIGNALS = frozenset({"read", "written", "offsets", "faults", "weights", "rss", "locked", "shared", "folder"})
"""Weak motion in these is still motion of data. TCP chatter is not: a store that is polled for a missing rank moves 8 KiB/s."""
TWICE = 2.0
SLACK_S = 3.0
"""A look may come that much later than what it sees."""
SOFT = frozenset({"sleeper", "poller"})
"""What may be left unseen when the budget is spent twice: threads and processes that come back by themselves and have moved nothing."""


class Proof(NamedTuple):
    """One class of hang evidence with what was seen."""

    kind: str
    signal: str
    value: object
    text: str
    window_s: float


class Standstill(NamedTuple):
    """`frozen`: accused that executed nothing; `spinning`: that wait at full speed. `proofs`: execution, data and place, where had."""

    clock: Stall
    frozen: tuple[Run, ...]
    spinning: tuple[Run, ...]
    proofs: tuple[Proof, ...]
    actors: tuple[str, ...]
    unseen: tuple[Unseen, ...]

    def has(self, kind: str) -> bool:
        """Whether a class of evidence was seen."""
        return any(proof.kind == kind for proof in self.proofs)


def standstill(view: View) -> Standstill:
    """The evidence of the newest stretch without strong progress."""
    clock = view.once(stall)
    all_accused = view.once(accused)
    frozen = tuple(run for run in all_accused if run.frozen)
    spinning = tuple(run for run in all_accused if waits_spinning(view, run))
    proofs = [*_execution(view, all_accused, frozen, spinning), *_data(view, clock), *_place(view, frozen + spinning)]
    return Standstill(clock, frozen, spinning, tuple(proofs), view.once(actors), view.once(unseen))


def _execution(view: View, everyone: Sequence[Run], frozen: Sequence[Run], spinning: Sequence[Run]) -> list[Proof]:
    if not everyone or len(frozen) + len(spinning) < len(everyone) or view.once(actors):
        return []
    clock = view.once(stall)
    long_enough = (min(HOLD_S, clock.budget_s) if clock.overridden else HOLD_S) - SLACK_S
    if any(run.frozen_s < long_enough for run in frozen) or any(_worked(view, run) for run in view.once(execution).runs):
        return []
    seconds = min((run.frozen_s for run in frozen), default=min(run.seconds for run in everyone))
    if spinning:
        text = f"{len(spinning)} of {len(everyone)} main threads run at full speed and no counter moves"
        return [Proof("execution", "spinning_threads", len(spinning), text, seconds)]
    text = f"{_main_threads(len(frozen))} executed nothing for {format_duration(seconds)}: run time and switches unchanged"
    return [Proof("execution", "frozen_threads", len(frozen), text, seconds)]


def _worked(view: View, run: Run) -> bool:
    """Whether it did something in the last 40 s, though not in the last ten."""
    return run.demand_long >= WORKS and not waits_spinning(view, run)


def _main_threads(count: int) -> str:
    return "the main thread" if count == 1 else f"all {count} main threads"


def _data(view: View, clock: Stall) -> list[Proof]:
    """Nothing moved, and whatever could have moved was read."""
    since = clock.since
    if any(motion.t > since and (motion.strong or motion.signal in BYTE_SIGNALS) for motion in view.motions):
        return []
    if view.once(execution).seconds < APART_S or any(one.kind == "unread" for one in view.once(unseen)):
        return []
    text = f"no byte, page or token moved for {format_duration(view.now - since)}"
    return [Proof("data", "bytes_moved", 0, text, view.now - since)]


def _place(view: View, stuck: Sequence[Run]) -> list[Proof]:
    table = view.once(places)
    found = [(run, table[run.key]) for run in stuck if run.key in table and (table[run.key].blocked or waits_spinning(view, run))]
    if not found:
        return []
    run, place = found[0]
    text = f"{name(view, run.process)} waits in {words.quote(place.text)} ({place.source}), the same at two looks"
    return [Proof("place", "place", place.text, text, max(run.seconds, run.frozen_s))]


def at_rest(view: View) -> bool:
    """Nobody is seen to work, nothing excuses it, and no source of progress was hidden: what even decisive evidence needs."""
    return not view.once(actors) and not excused(view) and not any(one.kind == "unread" for one in view.once(unseen))


def excused(view: View) -> str:
    """Why nothing here may be called hung, in words; empty when nothing excuses it."""
    answer = _answers(view)
    if answer:
        return answer
    if in_flight(view):
        return ""
    if view.course.ready_at is not None or _listens_idle(view):
        return "it is up and no request is known to be open"
    return ""


def _answers(view: View) -> str:
    """A good answer since it stands still is life, unless tokens stand while requests are open: then the front alone answers."""
    since = max(view.once(stall).since, view.now - 60.0)
    for t, check in reversed(view.checks):
        if t < since:
            break
        if check.outcome == "answer" and (check.matched or (check.status or 500) < 500) and not view.once(tokens_stand):
            return f"it answered {words.answer(check)}"
    return ""


def tokens_stand(view: View) -> bool:
    """Requests run by the engine's own word, and its tokens did not move over two looks."""
    found = [(sample.t, sample.engine.value) for sample in view.samples if isinstance(sample.engine, Seen)]
    found = [(t, one) for t, one in found if t >= view.once(stall).since]
    if len(found) < 2 or found[-1][0] - found[0][0] < APART_S:
        return False
    first, last = found[0][1], found[-1][1]
    busy = all((one.running or 0) + (one.waiting or 0) > 0 for _, one in found)
    return busy and last.tokens is not None and last.tokens == first.tokens


def _listens_idle(view: View) -> bool:
    """It listens, and its main thread waits for whatever comes."""
    listeners = view.listeners()
    ours = listeners and any(one.ours for one in listeners[-1][1])
    table, main = view.once(places), view.main
    return bool(ours) and main is not None and table.get((main.pid, main.start), NOWHERE).kind == "loop"


def verdict(
    view: View, kind: str, rule: str, why: str, *, accuse: ProcessSample | None, note: str = "", proofs: Sequence[Proof] = (),
    confidence: str = "strong", next_looks: Sequence[str] = (),
) -> Diagnosis:  # fmt: skip
    """Hung of a kind, with everything that speaks for it."""
    stand = view.once(standstill)
    shown = (*proofs, *(proof for proof in stand.proofs if proof.kind not in {one.kind for one in proofs}))
    phase = view.course.current
    where = f" in phase `{phase}`" if phase else ""
    said = "; ".join(proof.text for proof in shown)
    pressed = f"; its budget was doubled: {'; '.join(stand.clock.notes)}" if stand.clock.notes and not stand.clock.overridden else ""
    return Diagnosis(
        verdict="hung",
        kind=kind,
        confidence=confidence,
        rule=rule,
        reason=f"{why}{where}: {said}{pressed}" if said else f"{why}{where}{pressed}",
        phase=phase,
        quiet_s=view.quiet_s,
        culprit=_culprit(view, accuse, note),
        evidence=(
            *(Evidence(signal=one.signal, value=one.value, window_s=round(one.window_s, 3), points_to="hung") for one in shown),
            Evidence(signal="stall_clock", value=round(_spent_s(stand.clock), 1), unit="s", window_s=round(stand.clock.budget_s, 1)),
        ),
        blind=view.blind(),
        next=tuple(next_looks) or ((words.RESTART,) if stand.has("place") else (words.STACKS,)),
    )


def _spent_s(clock: Stall) -> float:
    """What was held against the budget: the halved time, or the whole one where heartbeats do not count."""
    return clock.spent_s if clock.over() else clock.wall_s


def _culprit(view: View, process: ProcessSample | None, note: str) -> Culprit | None:
    if process is None:
        return None
    host = view.last.host if view.last else ""
    return Culprit(host=host, pid=process.pid, rank=rank_of(view, (process.pid, process.start)), title=process.title, note=note)


def proven(view: View, extra: Sequence[Proof] = ()) -> str | None:
    """The confidence with which the evidence convicts, or None.

    strong: budget spent, two classes, nobody works or could work unseen. likely: the same where a place could not be looked at, or one
    class alone, after twice the budget; never where who started it may end it, nor where a process on another host or an unknown wait could
    be the one that works.
    """
    stand = view.once(standstill)
    if stand.actors or excused(view) or any(starters(view, [run.process.pid for run in view.once(accused)])):
        return None
    classes = {proof.kind for proof in (*stand.proofs, *extra)}
    if len(classes) >= 2 and not stand.unseen and _spent(stand):
        return "strong"
    if len(classes) >= 2 and all(one.kind in SOFT for one in stand.unseen) and _spent(stand, TWICE):
        return "likely"
    return None


def _spent(stand: Standstill, times: float = 1.0) -> bool:
    """Whether the budget is spent. A thread that prints heartbeats beside a main thread which stands at the same place, with no byte
    moving, shows nothing but itself: then the time counts in full."""
    if stand.spinning or not stand.has("execution"):
        return stand.clock.over(times)
    return stand.clock.over_frozen(times, plain=stand.has("place") and stand.has("data"))


def missing_s(stand: Standstill) -> float:
    """Seconds until the budget is spent, if nothing changes."""
    clock = stand.clock
    if stand.spinning or not stand.has("execution"):
        return max(0.0, clock.budget_s - clock.spent_s)
    plain = stand.has("place") and stand.has("data")
    return max(0.0, clock.frozen_budget_s - (clock.wall_s if plain else clock.spent_s))
