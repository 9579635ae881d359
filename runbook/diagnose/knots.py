"""A knot: threads that can never go on, since each waits without a limit of time and only others of them could end its wait.

wait              who could end it
private futex     the threads of the same process; one that other processes share: anybody
read, poll        whoever holds the other end of the pipe or connection, of any of them, if all of those are known
write             of a pipe, which is full then: the same
child             that child, else any living one
file lock         its holder, what that has forked, and whoever else has the file open, if all of those are known
any of them       a signal that the process handles; of another process, a timer of its own that may end it

So no live program is in a knot. A join of a thread that sleeps has the sleeper outside, an event that a signal sets has its handler, a
semaphore in shared memory is no private futex; a poll for anything else, a timer, a FIFO, a terminal, another host are no such waits, nor
is a receive at a socket with a limit of time. A thread that goes round and only logs ends no process and frees no file; but it is outside
of what its own process's threads wait for, since a handler of logs, or what stands in place of the output, may wake one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from runbook.diagnose.actors import tree
from runbook.diagnose.calls import FAR_ENDED, Tid, at_calls, has_timer, looks_of, woken_by_signals
from runbook.diagnose.loops import closed
from runbook.diagnose.view import View
from runbook.model.sample import LockSample, ProcessSample, Seen
from runbook.model.waits import CallSample


def knot(view: View) -> frozenset[Tid]:
    """The threads of the tree and of its peers that can never go on, or only go round."""
    return _bound(view, frozenset()) | _rounds(view)


def may_act(view: View, pids: Iterable[int], given: frozenset[Tid]) -> bool:
    """Whether one of these processes may ever do something again, or cannot be seen. `given`: threads that cannot, for another reason."""
    bound, everyone = _bound(view, given), view.once(_everyone)
    return any(pid not in everyone or any((pid, one.tid) not in bound for one in everyone[pid].threads) for pid in pids)


def waiting_for_end(view: View, pid: int) -> frozenset[Tid]:
    """Threads that wait, without a limit, for nothing but the end of this child of theirs."""
    child, awake = process_of(view, pid), woken_by_signals(view)
    found = view.once(at_calls).items() if child is not None else ()
    parent = child.ppid if child is not None else 0
    return frozenset(tid for tid, call in found if call.call == "child" and call.child == pid and tid[0] == parent and parent not in awake)


def _bound(view: View, given: frozenset[Tid]) -> frozenset[Tid]:
    calls, everyone = view.once(at_calls), view.once(_everyone)
    awake, rounds = woken_by_signals(view), _rounds(view)
    left = {tid for tid in calls if tid[0] not in awake} - given
    while True:
        free = {tid for tid in left if not _is_closed(view, tid, calls[tid], left | given, rounds, everyone)}
        if not free:
            return given | left
        left -= free


def _rounds(view: View) -> frozenset[Tid]:
    return frozenset(tid for tid in view.once(closed) if tid[0] not in woken_by_signals(view))


def process_of(view: View, pid: int) -> ProcessSample | None:
    """A living process of the tree or of its peers."""
    return view.once(_everyone).get(pid)


def _everyone(view: View) -> Mapping[int, ProcessSample]:
    """The processes that live now, of the tree and of its peers, by pid."""
    peers = view.newest("peers")
    newest = [*tree(view), *(peers.value if isinstance(peers, Seen) else ())]
    looks = view.once(looks_of)
    return {one.pid: looks[one.pid, one.start][0][1] for one in newest if one.state not in "ZX" and (one.pid, one.start) in looks}


def _is_closed(view: View, tid: Tid, call: CallSample, left: Set[Tid], rounds: Set[Tid], everyone: Mapping[int, ProcessSample]) -> bool:
    wakers = None if call.timed else _wakers(view, tid[0], call, everyone)
    if wakers is None or any(pid != tid[0] and has_timer(view, pid) for pid in wakers):
        return False
    idle = left | rounds if call.call in ("child", "lock") else left
    for pid in wakers:
        process = everyone.get(pid)
        if process is None or any((pid, one.tid) not in idle for one in process.threads if (pid, one.tid) != tid):
            return False
    return True


def _wakers(view: View, pid: int, call: CallSample, everyone: Mapping[int, ProcessSample]) -> Set[int] | None:
    """Processes whose threads could end the wait; None when not all of them are known."""
    if call.call == "futex":
        return {pid} if call.private else None
    if call.call in FAR_ENDED:
        return set(call.peers) if call.peers_known and call.peers else None
    if view.last is None or view.last.left_out or all(one.pid != pid for one in tree(view)):
        return None  # not all that is below it is known
    if call.call == "child":
        children = {one.pid for one in everyone.values() if one.ppid == pid}
        return (children & {call.child} if call.child is not None else children) or None
    if call.call == "lock":
        lock = _lock(view, pid)
        if lock is None or lock.holder is None or not lock.opened_known:
            return None
        return {lock.holder, *lock.opened_by, *_below(lock.holder, everyone)}
    return None


def _lock(view: View, pid: int) -> LockSample | None:
    """The one file lock that it waits for."""
    locks = view.newest("locks")
    mine = [lock for lock in (locks.value if isinstance(locks, Seen) else ()) if pid in lock.waiters]
    return mine[0] if len(mine) == 1 else None


def _below(pid: int, everyone: Mapping[int, ProcessSample]) -> set[int]:
    found: set[int] = set()
    queue = [pid]
    while queue:
        parent = queue.pop()
        queue += [one.pid for one in everyone.values() if one.ppid == parent and one.pid not in found]
        found.update(queue)
    return found
