"""What a wait remembers and what its journal keeps are the same, so a verdict can be derived again."""

import itertools

from runbook.engine.memory import KEEP_S, MOST_OLD, THIN_S, Memory
from runbook.engine.thread_rows import Packer, Unpacker
from runbook.model.sample import Absent, Blind, LogSample, ProcessSample, Sample, Seen, ThreadSample
from runbook.model.waits import StackSample


def at(t, **sources):
    """A cheap sample."""
    return Sample(t=float(t), host="h", host_t=float(t), boot_id="b", **{"exit": Absent(), **sources})


def log(offset, *lines):
    return Seen(LogSample(path="/l", inode=1, size=99, offset=offset, end=offset + 1, lines=lines))


def fed(samples):
    """(memory, what the journal holds at the end of the wait)."""
    memory = Memory()
    written = [settled for sample in samples for settled in memory.add(sample)]
    return memory, written + memory.rest()


def long_wait(seconds):
    """Every two seconds a cheap look with a log line, every ten a full one, stacks once."""
    stacks = Seen((StackSample(pid=1, tid=1, rank=None, source="py-spy", frames=("f",)),))
    for t in range(0, seconds, 2):
        full = {"locks": Seen(()), "disks": Seen(()), "sockets": Seen(())} if t % 10 == 0 else {}
        more = {"stacks": stacks} if t == 334 else {}
        yield at(t, log=log(t, f"line {t}"), **full, **more)


def test_all_of_the_last_two_minutes_and_one_full_look_in_thirty_seconds_before():
    memory, _ = fed(long_wait(1000))
    times = [sample.t for sample in memory.view()]
    assert times[0] == 0.0
    assert [t for t in times if t >= 998 - KEEP_S] == [float(t) for t in range(998 - int(KEEP_S), 1000, 2)]
    old = [t for t in times if t < 998 - KEEP_S and t != 334]
    assert all(b - a >= THIN_S for a, b in itertools.pairwise(old)) and len(old) > 20
    assert all(t % 10 == 0 for t in old), "a full look says more than a cheap one"


def test_stacks_are_never_thinned_out():
    memory, written = fed(long_wait(1000))
    assert any(sample.t == 334 for sample in memory.view()) and any(sample.t == 334 for sample in written)


def test_no_line_of_the_log_is_lost_by_thinning():
    memory, _ = fed(long_wait(1000))
    lines = [line for sample in memory.view() for line in sample.log.value.lines]
    assert lines == [f"line {t}" for t in range(0, 1000, 2)]


def test_the_journal_holds_what_the_judge_saw():
    memory, written = fed(long_wait(1000))
    assert written == memory.view()
    again, _ = fed(written)
    assert again.view() == memory.view(), "feeding the record gives the same view"


def test_a_day_of_watching_does_not_grow_without_end():
    memory = Memory()
    for t in range(0, 86_400, 30):
        memory.add(at(t, locks=Seen(())))
    assert memory.view()[0].t == 0.0 and len(memory.view()) <= MOST_OLD + KEEP_S / 30 + 2


def test_a_look_that_asked_nothing_stands_between_no_two_others():
    """A wait for a line scans the log twice as often as it looks at the server."""
    memory, written = fed([at(0), at(1, exit=Blind("not asked")), at(2)])
    assert [sample.t for sample in memory.view()] == [0.0, 2.0] == [sample.t for sample in written]


def test_but_it_tells_that_a_lost_host_is_back():
    memory, _ = fed([at(0), at(1, link=Absent("gone")), at(2, exit=Blind("not asked"), link=Seen(0.1))])
    assert [sample.t for sample in memory.view()] == [0.0, 1.0, 2.0]


def process(pid, *threads):
    rows = tuple(ThreadSample(tid=tid, state="S", run_ns=ns, wait_ns=0, switches=1) for tid, ns in threads)
    return ProcessSample(pid=pid, start=7, ppid=1, state="S", title="t", rss=1, threads=rows)


def test_threads_that_slept_on_are_left_out_of_the_journal_and_come_back():
    """A server has hundreds of threads, and most of them sleep."""
    looks = [
        at(0, processes=Seen((process(10, *((tid, tid) for tid in range(100))), process(20, (1, 1))))),
        at(2, processes=Seen((process(10, *((tid, tid) for tid in range(100))), process(20, (1, 2))))),
        at(4, processes=Seen((process(10), process(20)))),
        at(6, processes=Seen((process(10, *((tid, tid) for tid in range(1, 100))), process(20, (1, 2), (2, 1))))),
        at(8, processes=Seen((process(20, (2, 1)),))),
    ]
    packer, unpacker = Packer(), Unpacker()
    packed = [packer.pack(sample) for sample in looks]
    assert [unpacker.unpack(sample, gone) for sample, gone in packed] == looks
    assert [sum(len(row.threads) for row in sample.processes.value) for sample, _ in packed] == [101, 1, 0, 1, 0]


def test_a_reused_pid_starts_from_nothing():
    first, second = process(10, (1, 1)), ProcessSample(pid=10, start=8, ppid=1, state="S", title="t", rss=1)
    packer, unpacker = Packer(), Unpacker()
    looks = [at(0, processes=Seen((first,))), at(2, processes=Seen((second,)))]
    assert [unpacker.unpack(*packer.pack(sample)) for sample in looks] == looks
