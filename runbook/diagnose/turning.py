"""hung/spin and hung/livelock: it runs, and nothing comes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from runbook.diagnose.actors import actors, gpus_busy, tree
from runbook.diagnose.calls import READS, Tid, at_calls, waits_of, woken_by_signals
from runbook.diagnose.circles import nobody_acts
from runbook.diagnose.enders import enders, may_be_ended
from runbook.diagnose.execution import APART_S, WORKS, Run
from runbook.diagnose.family import accused, name
from runbook.diagnose.knots import may_act
from runbook.diagnose.loops import CLOSED, LOOKS, NATIVE, loop_of
from runbook.diagnose.places import NOWHERE, places, wchan_kind
from runbook.diagnose.stall import stall
from runbook.diagnose.standstill import Proof, excused, proven, standstill, tokens_stand, verdict
from runbook.diagnose.view import View
from runbook.diagnose.words import quote
from runbook.model.sample import Seen
from runbook.model.verdict import Diagnosis

LEAST_S = 60.0
"""The time counts in full, since the lines that go on are what is held against it: but it is at least this long. An estimate."""
REPEATS = 5
"""So many lines without news, before they count as going round."""


def spin(view: View) -> Diagnosis | None:
    """hung/spin: when the stall budget is spent, a main thread demands a whole core at one place that waits by its name or its source, the
    same to the line at four looks of its stack, takes no memory, and no counter moves; by its source its loop asks neither for the time nor
    for anything outside; every other thread of it stands for ever or only tells that it lives; and nobody who may still act shares memory
    with it. Native code, of which nobody reads the loop, stays undecided.

    its live twins: a long computation in one native call, a native wait with a limit of time, a compiler inside the process, a consumer
    whose producer computes or sleeps, be that another process with which it shares memory or another thread; a wait at full speed that ends
    at a given time, or by a signal.
    """
    stand = view.once(standstill)
    confidence = proven(view) if stand.spinning and not all_in_collective(view) else None
    if confidence is None or not stand.has("execution") or any(spin_doubt(view, run) for run in stand.spinning):
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


def spin_doubt(view: View, run: Run) -> str:
    """Why what it looks at may still change, in words; empty when nothing is left that could change it."""
    pid = run.process.pid
    if loop_of(view, pid, pid) == NATIVE:
        return f"the code in which pid {pid} spins is native and cannot be read: it may look at the time, or compute"
    if loop_of(view, pid, pid) not in (LOOKS, CLOSED):
        return f"what the loop of pid {pid} looks at, its source does not tell"
    if pid in woken_by_signals(view) or not nobody_acts(view, {pid}, frozenset({(pid, pid)})):
        return f"another thread of pid {pid}, or a signal, may set what it looks at"
    if ended := next(enders(view, {pid}), ""):
        return ended
    waits = waits_of(view, pid)
    if waits is None or waits.shared is None:
        return f"with whom pid {pid} shares memory cannot be seen"
    for memory in waits.shared:
        device = memory.name.startswith("/dev/") and not memory.name.startswith(("/dev/zero", "/dev/shm"))
        if gpus_busy(view) if device else not memory.known or may_act(view, memory.pids, frozenset()):
            return f"pid {pid} shares memory, {memory.name}, with what may still set it"
    return ""


def all_in_collective(view: View) -> bool:
    """Whether all that spins is in a collective: those wait at full speed by design, so it is the group that is stuck, not a loop."""
    table = view.once(places)
    return all(table.get(run.key, NOWHERE).kind == "collective" for run in view.once(standstill).spinning)


def livelock(view: View) -> Diagnosis | None:
    """hung/livelock: when the stall budget is spent, the log goes on without news, in changing words, a counter that should move stands, as
    a bar, or tokens do whatever the log says and no thread sleeps, the sources of progress were read and show nothing, and nobody works;
    and by their source all its threads only go round for ever, where tokens do not say it: they compute, sleep and log, look at nothing
    outside, and whoever waits for them hears nothing of that.

    its live twins: a loader that prints heartbeats while a child or a thread works, a log whose counter goes towards its total, one that
    polls for what others do and says each time how far those are, or for a file that another job will write.
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
    if view.once(tokens_stand) and _sleeps(view, runs):
        return None
    if not view.once(tokens_stand) and (len({one.template for one in repeats}) < REPEATS or not goes_round(view)):
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


def _sleeps(view: View, runs: Sequence[Run]) -> bool:
    """Whether a thread has executed nothing in a wait with a limit of time, after which it may bring the tokens."""
    ours = {process.pid for process in tree(view)}
    timed = any(call.timed for (pid, _), call in view.once(at_calls).items() if pid in ours)
    return timed or any(wchan_kind(one) == "timer" for run in runs for one in (*run.others, *([run.wchan] if run.frozen else ())))


def goes_round(view: View) -> bool:
    """Whether by its source nothing in the tree will ever do anything else."""
    pids = [process.pid for process in tree(view)]
    return nobody_acts(view, pids, unheard(view)) and not may_be_ended(view, pids)


def unheard(view: View) -> frozenset[Tid]:
    """Threads that wait, without a limit, for what only the tree sends, and that none of its lines has woken.

    A launcher waits so for its ranks to say ready. One that reads their output may count their lines.
    """
    ours = {process.pid for process in tree(view)}
    told = any(repeat.t > view.now - APART_S for repeat in view.log.repeats)
    reads = [(tid, call) for tid, call in view.once(at_calls).items() if told and call.call in READS and not call.timed]
    return frozenset(
        tid for tid, call in reads if call.peers_known and set(call.peers) <= ours and not _hears_lines(view, tid[0], set(call.peers))
    )


def _hears_lines(view: View, pid: int, others: set[int]) -> bool:
    """Whether one of the others may have this process at the end of its output."""
    rows = [process.pipes for process in tree(view) if process.pid in others - {pid}]
    ends = [one for row in rows if isinstance(row, Seen) for one in row.value if one.fd in (1, 2)]
    return any(not isinstance(row, Seen) for row in rows) or any(pid in one.peers or not one.peers_known for one in ends)


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
