"""Scenes for the hung rules: a tree that stands still, looked at every two seconds, with a full look every ten.

Each scene is a Story in which one thing is told otherwise: what a thread waits for, who is at the other end, what the log says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from runbook.model.profile import Profile
from runbook.model.sample import Absent, IoSample, LockSample, PipeSample, ProcessSample, Seen, SocketSample, ThreadSample
from runbook.model.waits import CallSample, StackSample, WaitSample
from tests.diagnose.stories import GENERIC, Story, process

FULL_EVERY_S = 10
FUTEX, PIPE_READ, PIPE_WRITE, RECV, LOOP, SLEEP, WAIT4 = (
    "futex_do_wait",
    "pipe_read",
    "pipe_write",
    "wait_woken",
    "ep_poll",
    "hrtimer_nanosleep",
    "do_wait",
)
Tell = Callable[[float], dict[str, Any]]


def thread(
    tid: int = 100, wchan: str = FUTEX, *, run_s: float = 1.0, wait_s: float = 0.0, switches: int = 50, state: str = "S"
) -> ThreadSample:
    """A thread that has run so long and switched so often."""
    return ThreadSample(tid=tid, state=state, run_ns=int(run_s * 1e9), wait_ns=int(wait_s * 1e9), switches=switches, wchan=wchan)


def proc(pid: int = 100, wchan: str = FUTEX, *, others: tuple[ThreadSample, ...] = (), **more: Any) -> ProcessSample:
    """A process of which everything was read; its main thread stands at `wchan` unless `run_s` and `switches` go on."""
    times = {name: more.pop(name) for name in ("run_s", "wait_s", "switches") if name in more}
    main = thread(pid, wchan, state=more.get("state", "S"), **times)
    more.setdefault("io", Seen(IoSample(rchar=more.pop("read_so_far", 0), read_bytes=0, wchar=0)))
    more.setdefault("mapped_weights", Absent())
    more.setdefault("pipes", Seen(()))
    more.setdefault("files", Seen(()))
    more.setdefault("stdin", "null")
    more.setdefault("age_s", 600.0)
    more.setdefault("faults", 1000)
    return process(pid, title=more.pop("title", "python"), threads=(main, *others), **more)


def scene(tell: Tell, *, seconds: float = 60.0, every: float = 2.0, profile: Profile = GENERIC, begin: float = 0.0) -> Story:
    """`tell(second)` gives the sources of each look: `processes`, `log`, and those of a full look, which is taken every ten seconds."""
    story = Story(profile)
    second, full_at = begin, -1e9
    while second <= seconds:
        sources = tell(second)
        if second - full_at >= FULL_EVERY_S:
            full_at = second
            for name in ("sockets", "locks", "folders", "peers", "kernel"):
                sources.setdefault(name, Seen(()))
        else:
            for name in ("sockets", "locks", "folders", "peers", "kernel"):
                sources.pop(name, None)
        story.at(second, **sources)
        second += every
    return story


def stands(*processes: ProcessSample, **sources: Any) -> Tell:
    """The same at every look; without processes, one whose two threads hold each other's locks."""
    if processes:
        return lambda second: {"processes": list(processes), **sources}
    return lambda second: {"processes": [locked()], **locks_at(second), **sources}


def locked(*more: ThreadSample, **options: Any) -> ProcessSample:
    """A process whose main thread and thread 150 stand at a lock."""
    return proc(others=(thread(150), *more), **options)


def locks_at(
    second: float,
    pid: int = 100,
    main: str = "take_second (app.py:30)",
    first: float = 4.0,
    more: tuple[WaitSample, ...] = (),
    beside: tuple[StackSample, ...] = (),
) -> dict[str, Any]:
    """Their stacks, by whose source each holds what the other waits for, and system calls. `beside`: stacks of others."""
    other = StackSample(pid=pid, tid=150, rank=None, source="py-spy", frames=("take_first (app.py:12)",), wants="first", holds=("second",))
    mine = msgspec.structs.replace(stack(pid, main), wants="second", holds=("first",))
    waits = calls_at(second, waiting(pid, futex(pid), futex(150, at=8), caught=(15,)), *more, first=first)
    return {**stacks_at(second, mine, other, *beside, first=first, again=first + 10.0), **waits}


def futex(tid: int = 100, *, at: int = 7, private: bool = True, timed: bool = False, owner: int | None = None) -> CallSample:
    """A thread at a futex."""
    return CallSample(tid=tid, call="futex", at=at, private=private, timed=timed, owner=owner)


def reads(*peers: int, tid: int = 100, known: bool = True) -> CallSample:
    """A thread that reads what these could send."""
    return CallSample(tid=tid, call="read", peers=peers, peers_known=known)


def waiting(pid: int, *calls: CallSample, caught: tuple[int, ...] | None = (), **more: Any) -> WaitSample:
    """The waits of a process without timers or shared memory; of its main thread at a futex unless told otherwise."""
    more = {"alarm": False, "shared": (), **more}
    return WaitSample(pid=pid, start=1000 + pid, caught=caught, threads=calls or (futex(pid),), **more)


def beats(tid: int, pid: int = 100, loop: str = "closed") -> StackSample:
    """A thread that sleeps in a loop which by its source only tells that it lives, unless told otherwise."""
    return StackSample(pid=pid, tid=tid, rank=None, source="py-spy", frames=("run (metrics.py:7)",), loop=loop)


def calls_at(second: float, *waits: WaitSample, first: float = 4.0) -> dict[str, Any]:
    """Read once."""
    return {"calls": Seen(waits)} if second == first else {}


def stack(pid: int, *frames: str, look: int = 1, rank: int | None = None, source: str = "py-spy") -> StackSample:
    """The stack of a main thread, innermost frame first."""
    return StackSample(pid=pid, tid=pid, rank=rank, source=source, frames=frames, main=True, look=look)


def stacks_at(second: float, *taken: StackSample, first: float = 14.0, again: float = 24.0) -> dict[str, Any]:
    """Stacks taken twice, ten seconds apart."""
    if second == first:
        return {"stacks": Seen(taken)}
    return {"stacks": Seen(tuple(_second(one) for one in taken))} if second == again else {}


def _second(one: StackSample) -> StackSample:
    return msgspec.structs.replace(one, look=2)


def pipe(fd: int, end: str, *, peers: tuple[int, ...] = (), fill: int = 0, known: bool = True) -> PipeSample:
    """An end of a pipe with a capacity of 64 KiB."""
    return PipeSample(fd=fd, end=end, name="pipe:[77]", fill=fill, capacity=65536, peers=peers, peers_known=known)


def connection(
    pid: int = 100, *, peer_pid: int | None = None, received: int | None = 5000, state: str = "ESTAB", peer: str = "10.0.0.7:443"
) -> SocketSample:
    """A TCP connection of the tree."""
    return SocketSample(pid=pid, local="10.0.0.5:41000", peer=peer, state=state, received=received, sent=100, peer_pid=peer_pid)


def lock_file(
    path: str = "/cache/torch_extensions/rotary/lock", *, age_s: float = 90_000.0, holder: int | None = None, **more: Any
) -> LockSample:
    """A lock by existence, on a disk of this host."""
    return LockSample(path=path, kind="file", holder=holder, holder_known=True, age_s=age_s, **{"elsewhere": False, **more})
