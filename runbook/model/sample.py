"""Observations of a server on a host. Each source answers Seen, Absent or Blind: blind is never empty.

Absent means "looked, and it is not there". Blind means "could not look", with the reason. Nothing here has a default that
could pass for a reading. Units: times s (unix), *_s seconds, *_ns nanoseconds, sizes bytes, `start` clock ticks since boot
(/proc/PID/stat field 22).
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, Union

import msgspec

from runbook.model.gpu import GpuSample, ToolSample
from runbook.model.waits import CollectiveSample, StackSample, WaitSample

T = TypeVar("T")


class Seen(msgspec.Struct, Generic[T], frozen=True, tag="seen"):
    """The source answered, and this is what it said."""

    value: T


class Absent(msgspec.Struct, frozen=True, tag="absent"):
    """The source answered that there is nothing."""

    reason: str = ""


class Blind(msgspec.Struct, frozen=True, tag="blind"):
    """The source could not be read; says nothing about the thing itself."""

    reason: str


class IoSample(msgspec.Struct, frozen=True, kw_only=True):
    """/proc/PID/io, bytes."""

    rchar: int
    read_bytes: int
    wchar: int


class ThreadSample(msgspec.Struct, frozen=True, kw_only=True):
    """One thread: state letter, run and wait time, how often it was put on a CPU, kernel wait channel.

    All of schedstat; a kernel without it gives run time in clock ticks, no wait time, and switches of both kinds.
    """

    tid: int
    state: str
    run_ns: int
    wait_ns: int
    switches: int
    wchan: str = ""


class FileSample(msgspec.Struct, frozen=True, kw_only=True):
    """An open regular file: its path, the descriptor's offset (0 for mapped files, still for `pread`) and the file's size, bytes.

    The log and what a process writes its output to are left out. `writing`: it is open for writing.
    """

    path: str
    offset: int
    size: int
    writing: bool = False


class PipeSample(msgspec.Struct, frozen=True, kw_only=True):
    """An open end of a pipe or FIFO; an empty pipe from a process to itself is left out.

    `fill` and `capacity` in bytes, null when they could not be asked.

    `peers`: visible processes that hold another end; empty with `peers_known`: nobody does.
    """

    fd: int
    end: str
    """read or write."""
    name: str
    """pipe:[inode] or the FIFO's path."""
    fill: int | None = None
    capacity: int | None = None
    peers: tuple[int, ...] = ()
    peers_known: bool = False


class SocketSample(msgspec.Struct, frozen=True, kw_only=True):
    """A TCP socket of the tree, in state LISTEN too. `received`, `sent`: bytes since it was opened, null where the kernel was not asked.

    `local` and `peer` are address:port; `state` as in ss (ESTAB, SYN-SENT, CLOSE-WAIT, …); `quiet_s`: since the last byte came.
    `peer_pid`: the process at the other end when it is on this host and visible. Beyond 200 all others are one row of state MORE.
    """

    pid: int
    local: str
    peer: str
    state: str
    received: int | None = None
    sent: int | None = None
    quiet_s: float | None = None
    unread: int | None = None
    unsent: int | None = None
    peer_pid: int | None = None


class LockSample(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that a process of the tree waits for or holds, or a lock file that it polls.

    `kind`: flock or posix (from /proc/locks), file (a `*.lock` by existence only). `holder`: pid, null when it is not visible or,
    for kind file, when nobody has it open. `age_s`: of a lock file, since its last change. `opened_by`: the processes that have the
    file open now, all of them where `opened_known`; whoever shares the holder's description may release it. Of kind file: `maker`, the pid
    that stands in it, `maker_gone`, that no process of this host has it any more; `elsewhere`, that its file system may be used by
    processes which cannot be seen here, null where that is not known.
    """

    path: str
    kind: str
    waiters: tuple[int, ...] = ()
    holder: int | None = None
    holder_known: bool = False
    opened_by: tuple[int, ...] = ()
    opened_known: bool = False
    age_s: float | None = None
    maker: int | None = None
    maker_gone: bool = False
    elsewhere: bool | None = None


class FolderSample(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that grows while something is compiled or downloaded: number of files, their bytes, age of the newest change.

    One that is too large to be walked has no row; one that is not there yet has no files.
    """

    path: str
    files: int
    bytes: int
    newest_s: float | None = None


class DiskSample(msgspec.Struct, frozen=True, kw_only=True):
    """A file system that the server writes to: free and total bytes, free inodes (null where it has none)."""

    path: str
    free: int
    total: int
    free_inodes: int | None = None


class ProcessSample(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the server's tree. `rank` is read from its title or environment, else null."""

    pid: int
    start: int
    ppid: int
    state: str
    title: str
    rss: int
    threads: tuple[ThreadSample, ...] = ()
    rank: int | None = None
    world: int | None = None
    """WORLD_SIZE of its environment: how many ranks its group has; null where that does not say."""
    io: Union[Seen[IoSample], Absent, Blind] = Blind("not sampled")
    mapped_weights: Union[Seen[int], Absent, Blind] = Blind("not sampled")
    """Resident bytes of mapped weight files (.safetensors, .gguf, .bin, .pt)."""
    locked: int | None = None
    """VmLck, bytes; null when it was not read. `shared` is RssShmem."""
    shared: int | None = None
    faults: int | None = None
    """Page faults so far, minor and major."""
    stdin: str = ""
    """What descriptor 0 is: null, file, pipe, tty, socket, closed; empty when it was not read."""
    files: Union[Seen[tuple[FileSample, ...]], Absent, Blind] = Blind("not sampled")
    pipes: Union[Seen[tuple[PipeSample, ...]], Absent, Blind] = Blind("not sampled")
    exit_code: int | None = None
    """Of a zombie whose status can be read; null else."""
    age_s: float | None = None
    """Seconds since its start, by the host's own clock."""


class LogSample(msgspec.Struct, frozen=True, kw_only=True):
    """What the log gained since the sample before: whole lines, split on \\r and \\n, at most 200 of them, each ≤ 2,000 characters.

    `offset` is where `lines` begin, `end` where the next sample begins; `skipped` counts lines left out of the middle.
    """

    path: str
    inode: int
    size: int
    offset: int
    end: int
    lines: tuple[str, ...] = ()
    skipped: int = 0
    rotated: bool = False


class CheckSample(msgspec.Struct, frozen=True, kw_only=True):
    """One health check. `outcome` is answer, refused, timeout, reset or error.

    `matched` says whether the step's expectation held; `mismatch` names the part that did not: status, body, json, info.
    """

    url: str
    outcome: str
    latency_s: float
    status: int | None = None
    body_bytes: int | None = None
    body_head: str = ""
    headers: dict[str, str] = {}
    matched: bool = False
    mismatch: str = ""
    error: str = ""


class ListenerSample(msgspec.Struct, frozen=True, kw_only=True):
    """A process that listens on the server's port; `ours` when it belongs to the launched tree. pid 0: owner not visible."""

    pid: int
    start: int
    title: str
    ours: bool
    address: str = ""
    age_s: float | None = None


class ExitSample(msgspec.Struct, frozen=True, kw_only=True):
    """How the server's main process ended, as its parent saw it. `lived_s` counts from exec.

    `oom_killed`: the kernel's out-of-memory killer ended it, or a process below it; `oom_source` says who says so.
    """

    code: int | None
    signal: str | None
    lived_s: float
    oom_killed: bool = False
    oom_source: str = ""
    killed_by_us: bool = False


class PressureSample(msgspec.Struct, frozen=True, kw_only=True):
    """/proc/pressure: share of the last 10 s in which some task waited, in percent."""

    cpu: float
    io: float
    memory: float


class EngineSample(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's own counters, from a path without side effects. `running`, `waiting`: requests now; the rest only ever grow."""

    tokens: int | None = None
    """Prompt and generated tokens together: a long prefill moves the first, decoding the second."""
    steps: int | None = None
    running: int | None = None
    waiting: int | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """All that was seen at one moment about one server (or about the GPUs of one host).

    `t` is controller time, `host_t` host time. Sources that the question does not need stay Blind("not asked").
    """

    t: float
    host: str
    host_t: float
    boot_id: str
    server: str = ""
    processes: Union[Seen[tuple[ProcessSample, ...]], Absent, Blind] = Blind("not asked")
    left_out: int = 0
    """Processes of the tree that were not looked at, since it has more than 500; the oldest are."""
    exit: Union[Seen[ExitSample], Absent, Blind] = Blind("not asked")
    log: Union[Seen[LogSample], Absent, Blind] = Blind("not asked")
    check: Union[Seen[CheckSample], Absent, Blind] = Blind("not asked")
    listeners: Union[Seen[tuple[ListenerSample, ...]], Absent, Blind] = Blind("not asked")
    gpus: Union[Seen[tuple[GpuSample, ...]], Absent, Blind] = Blind("not asked")
    pressure: Union[Seen[PressureSample], Absent, Blind] = Blind("not asked")
    sockets: Union[Seen[tuple[SocketSample, ...]], Absent, Blind] = Blind("not asked")
    locks: Union[Seen[tuple[LockSample, ...]], Absent, Blind] = Blind("not asked")
    folders: Union[Seen[tuple[FolderSample, ...]], Absent, Blind] = Blind("not asked")
    disks: Union[Seen[tuple[DiskSample, ...]], Absent, Blind] = Blind("not asked")
    kernel: Union[Seen[tuple[str, ...]], Absent, Blind] = Blind("not asked")
    """Lines of the kernel log about GPUs (Xid), blocked tasks and killed processes, since the server's start."""
    stacks: Union[Seen[tuple[StackSample, ...]], Absent, Blind] = Blind("not asked")
    """Taken on suspicion only."""
    calls: Union[Seen[tuple[WaitSample, ...]], Absent, Blind] = Blind("not asked")
    """Of the tree and of the peers. Asked on suspicion only."""
    collectives: Union[Seen[tuple[CollectiveSample, ...]], Absent, Blind] = Blind("not asked")
    """Asked on suspicion only."""
    peers: Union[Seen[tuple[ProcessSample, ...]], Absent, Blind] = Blind("not asked")
    """Processes of this host outside the tree that it may wait for: at the other end of a socket or pipe, or holding a lock."""
    engine: Union[Seen[EngineSample], Absent, Blind] = Blind("not asked")
    gpu_tool: Union[Seen[ToolSample], Absent, Blind] = Blind("not asked")
    """Absent when none is under way."""
    clock_error_s: float | None = None
    """Half the round trip of the clock's comparison: order across hosts counts only beyond it."""
    link: Union[Seen[float], Absent, Blind] = Blind("not asked")
    """Round trip to the host in seconds; Absent when the host could not be reached."""


Outcome = Union[Seen[Any], Absent, Blind]
