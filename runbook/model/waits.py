"""What the threads of a server wait for: looked at on suspicion only, some of it twice.

Units and what null means are those of runbook.model.sample.
"""

from __future__ import annotations

import msgspec


class StackSample(msgspec.Struct, frozen=True, kw_only=True):
    """One thread's stack, innermost frame first, each `function (file:line)`.

    `source`: py-spy, faulthandler or wchan (then one frame, the kernel's wait channel, or "running"). `main`: the process's main
    thread. `look`: 1 or 2, the two looks that are compared. `note`: why no better source was had, on a main thread's wchan.

    By the source of its lines, where that says so for certain: `wants`, the lock that it waits for, `holds`, those that it holds, under
    names that mean the same lock in all threads of the process; `loop`, what goes round at its line: closed (for ever, and only computes,
    sleeps and logs), looks (until a value in memory changes), open (anything else), none, or empty where the source was not read; of a main
    thread `interrupts`, whether it goes on after SIGINT: a frame catches that, or a file sets a handler for it.

    `lock_file`: the one lock file that the objects of its innermost frames name, where it looks for such a file; `lock_class`: the class of
    the object that looks.
    """

    pid: int
    tid: int
    rank: int | None
    source: str
    frames: tuple[str, ...]
    thread: str = ""
    main: bool = False
    look: int = 1
    note: str = ""
    wants: str = ""
    holds: tuple[str, ...] = ()
    loop: str = ""
    interrupts: bool = False
    lock_file: str = ""
    lock_class: str = ""


class CallSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The system call in which a thread waits.

    `call`: futex, read, write, poll (until one of several can be read), child, lock, or empty for any other and for none. `timed`: it comes
    back by itself, or may, for the reason in `doubt`. `private`, `at`: of a futex, whether only threads of the same process can wake it,
    and its address. `owner`: the thread that holds the C library's mutex at which it waits. `child`: the one child that is waited for, null
    for any. `peers`: the processes that could send what is read, or read what is written, all of them where `peers_known`. `terminal`: what
    is read is one.

    `carries`: the name of a thread of the collectives' own library, which only carries what the processes in `peers` send.
    """

    tid: int
    call: str = ""
    timed: bool = False
    private: bool = False
    at: int = 0
    child: int | None = None
    peers: tuple[int, ...] = ()
    peers_known: bool = False
    owner: int | None = None
    doubt: str = ""
    terminal: bool = False
    carries: str = ""


class SharedSample(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that a process shares. `pids`: who else has it mapped or open; `known`: nobody but those can ever write it."""

    name: str
    pids: tuple[int, ...] = ()
    known: bool = False


class WaitSample(msgspec.Struct, frozen=True, kw_only=True):
    """The waits of one process's threads, all of them. `caught`: signals for which it has a handler, without the
    interrupt that every Python handles; null when that was not read.

    `alarm`: whether a timer of its own may send it a signal, null where that cannot be seen. `shared`: null where it was not read.
    """

    pid: int
    start: int
    caught: tuple[int, ...] | None
    threads: tuple[CallSample, ...]
    alarm: bool | None = None
    shared: tuple[SharedSample, ...] | None = None


class CollectiveSample(msgspec.Struct, frozen=True, kw_only=True):
    """What a communicator says of one rank: the operation it is in and its sequence number (NCCL RAS or torch's flight recorder).

    `state`: started, completed, unresponsive, dead, initialising or empty. `look`: 1 or 2. Of flight: the last collective that the rank
    entered, completed when it has left it. Of RAS: `sequence` is how many operations the rank has launched, `operation` how many of each
    kind, `state` empty while it answers.
    """

    group: str
    rank: int
    source: str
    """ras, flight or log."""
    sequence: int | None = None
    operation: str = ""
    state: str = ""
    look: int = 1
