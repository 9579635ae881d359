"""hung/spin and hung/livelock: it runs, and nothing comes of it."""

from __future__ import annotations

from collections import Counter

from runbook.diagnose.actors import actors
from runbook.diagnose.execution import WORKS
from runbook.diagnose.family import accused, name
from runbook.diagnose.places import NOWHERE, places
from runbook.diagnose.stall import stall
from runbook.diagnose.standstill import Proof, excused, proven, standstill, tokens_stand, verdict
from runbook.diagnose.view import View
from runbook.diagnose.words import quote
from runbook.model.verdict import Diagnosis

LEAST_S = 60.0
"""The time counts in full, since the lines that go on are what is held against it: but it is at least this long. An estimate."""
REPEATS = 5
"""So many lines without news, before they count as going round."""


def spin(view: View) -> Diagnosis | None:
    """hung/spin: when the stall budget is spent, a main thread demands a whole core at one place that waits by its name, the same to the
    line at four looks of its stack, takes no memory, and no counter moves; all others stand still.

    its live twins: a long computation in one native call, a compiler inside the process, a consumer whose producer computes, be that
    another process or another thread.
    """
    stand = view.once(standstill)
    confidence = proven(view) if stand.spinning and not all_in_collective(view) else None
    if confidence is None or not stand.has("execution"):
        return None
    run = stand.spinning[0]
    place = view.once(places).get(run.key, NOWHERE)
    return verdict(
        view,
        "spin",
        "spin",
        f"{name(view, run.process)} spins: it demands {run.demand:.1f} cores and only looks at something that does not change",
        accuse=run.process,
        note=f"spins in {place.text}",
        confidence=confidence,
    )


def all_in_collective(view: View) -> bool:
    """Whether all that spins is in a collective: those wait at full speed by design, so it is the group that is stuck, not a loop."""
    table = view.once(places)
    return all(table.get(run.key, NOWHERE).kind == "collective" for run in view.once(standstill).spinning)


def livelock(view: View) -> Diagnosis | None:
    """hung/livelock: when the stall budget is spent, the log goes on without news, in changing words, a counter that should move stands, as
    a bar, or tokens do whatever the log says, the sources of progress were read and show nothing, and nobody works.

    its live twins: a loader that prints heartbeats while a child or a thread works, a log whose counter goes towards its total, one that
    polls for what others do and says each time how far those are.
    """
    clock = view.once(stall)
    least_s = clock.budget_s if clock.overridden else max(LEAST_S, clock.budget_s)
    if clock.wall_s < least_s or view.once(actors) or excused(view):
        return None
    runs = view.once(accused) or ()
    counter = standing(view)
    repeats = [repeat for repeat in view.log.repeats if repeat.t > clock.since]
    stand = view.once(standstill)
    if not counter or len(repeats) < REPEATS or any(run.frozen or run.demand >= WORKS for run in runs):
        return None
    if not view.once(tokens_stand) and len({repeat.template for repeat in repeats}) < REPEATS:
        return None
    if not stand.has("data") or any(one.kind == "stranger" for one in stand.unseen):
        return None
    count = Counter(repeat.template for repeat in repeats).most_common(1)[0][1]
    said = f"{len(repeats)} lines since then say nothing new, the last: {quote(repeats[-1].text)[:120]}"
    main = view.main
    return verdict(
        view,
        "livelock",
        "livelock",
        f"it goes round without coming further: {counter}",
        accuse=main,
        note="goes round",
        proofs=(Proof("execution", "repeated_lines", count, said, clock.wall_s),),
        confidence="strong" if clock.over(2.0) else "likely",
        next_looks=("see what its loop waits for: its stacks, twice",),
    )


def _words(name: str) -> str:
    """The last words of a bar's name, without what was masked in it."""
    return " ".join([word for word in name.split() if "#" not in word][-4:]) or "a counter"


def standing(view: View) -> str:
    """A counter that should move and does not, in words; empty when there is none."""
    since = view.once(stall).since
    if view.once(tokens_stand):
        return "its tokens stand while requests are open"
    short = [(t, bar) for t, bar in view.log.bars.values() if bar.done < bar.total]
    if short:
        t, bar = max(short, key=lambda one: one[0])
        return f"`{_words(bar.name)}` stands at {bar.done}/{bar.total}" if t <= since else ""
    stood = [repeat for repeat in view.log.repeats if repeat.t > since and repeat.text.rpartition(" ")[2].count("/") == 1]
    if stood:
        return f"its counter stands at {stood[-1].text.rpartition(' ')[2]}"
    steps = [(t, text) for t, text in view.log.steps.values() if t <= since]
    return f"its last step was: {quote(max(steps)[1])[:120]}" if steps else ""
