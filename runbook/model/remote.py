"""What a host's helper answers: frozen structs, the same on both sides of every transport."""

from __future__ import annotations

from typing import Any

import msgspec

from runbook.model.gpu import GpuSample


class Reply(msgspec.Struct, frozen=True):
    """What the helper answered: plain data and raw bytes."""

    data: dict[str, Any]
    blob: bytes = b""


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The helper's first words. `state_dir` is where runbook keeps files on that host; `clock_offset_s` = host minus controller."""

    hostname: str
    user: str
    uid: int
    pid: int
    python: str
    python_version: str
    boot_id: str
    state_dir: str
    home: str
    cpus: int
    cwd: str
    start: int = 0
    """With `pid` the helper itself, as `ProcessId`."""
    logout: str = ""
    """Why what is started there is killed at logout; empty when it is not, or when that cannot be seen."""
    clock_offset_s: float = 0.0
    clock_error_s: float = 0.0
    scoped: bool = False
    """Only processes below a given one are visible (the lab)."""
    abandoned: tuple[dict[str, str], ...] = ()
    """Patched files whose run has no living keeper: {run, id, path}, or {problem} when the records could not be read. At most 20."""


class ProcessId(msgspec.Struct, frozen=True, order=True):
    """A process, never reused: pid and start time in clock ticks since boot."""

    pid: int
    start: int


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the host's process table.

    `protected` says why it must be left alone: ancestry, pid1, sshd, keeper, other_user, other_run.
    """

    pid: int
    start: int
    ppid: int
    pgid: int
    sid: int
    uid: int
    user: str
    state: str
    comm: str
    argv: tuple[str, ...]
    title: str
    rss: int
    age_s: float
    cwd: str | None = None
    run: str | None = None
    """Run id of the marker in its environment, or that its keeper has on record."""
    launch: str | None = None
    """Of which launch of that run it is, by its environment."""
    gpus: tuple[int, ...] = ()
    """GPU device files that it holds open."""
    protected: str | None = None

    @property
    def id(self) -> ProcessId:
        """Its lasting name."""
        return ProcessId(self.pid, self.start)


class PortOwner(msgspec.Struct, frozen=True, kw_only=True):
    """A listening TCP socket and a process that holds it. pid 0: its owner is not visible."""

    port: int
    address: str
    pid: int
    start: int


class OutputReader(msgspec.Struct, frozen=True, kw_only=True):
    """A process at the other end of an output pipe (`tee`), and the files that it writes."""

    pid: int
    title: str
    written: tuple[str, ...] = ()


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """Where descriptor 1 or 2 of a process leads. `kind`: file, pipe, socket, tty, null, deleted or closed."""

    fd: int
    kind: str
    path: str
    readers: tuple[OutputReader, ...] = ()


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """One process that runs already: what it was started as and where its output goes.

    `run`, `launch`: of the runbook run that started it, else empty. `readable`: whether its open files are ours to see.
    """

    pid: int
    start: int
    sid: int
    ppid: int
    state: str
    title: str
    argv: tuple[str, ...]
    exe: str
    cwd: str
    age_s: float
    run: str
    launch: str
    env: dict[str, str]
    """The variables that were asked for, as they were at exec."""
    readable: bool
    outputs: tuple[Output, ...]
    written: tuple[str, ...]
    """Regular files that it holds open for writing."""


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """A finished command. `stdout`, `stderr`: head and tail, `*_dropped` bytes cut between them.

    `exit` is null when a signal ended it; `timed_out`: the ladder ran; `left_running`: pids of its group still alive.
    """

    exit: int | None
    signal: str | None
    seconds: float
    stdout: bytes
    stderr: bytes
    stdout_dropped: int = 0
    stderr_dropped: int = 0
    timed_out: bool = False
    left_running: tuple[int, ...] = ()
    stdout_held: bool = False
    """A background child kept the output open; it was not waited for."""
    pid: int = 0


class TakenItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item of an evidence bundle. `status`: taken, absent (nothing there), blind (could not look), late or failed; then `reason`."""

    item: str
    status: str
    reason: str = ""
    seconds: float = 0.0
    cut: bool = False
    """Its files were longer than the item's bound."""


class TakenFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of an evidence bundle, in memory."""

    item: str
    name: str
    data: bytes


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """An evidence bundle as the host gave it."""

    items: tuple[TakenItem, ...]
    files: tuple[TakenFile, ...] = ()


class KillReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each target: gone, or left as zombie, D state, not permitted, alive."""

    gone: tuple[ProcessId, ...] = ()
    left: tuple[dict[str, Any], ...] = ()
    signals: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    """Zombies among the gone: they hold nothing, but their parent has not collected them."""


class Mark(msgspec.Struct, frozen=True):
    """Where a log stood: inode and size in bytes. inode 0: the file did not exist."""

    inode: int
    size: int


class FileSlice(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a file from `offset`, with what the file was at that moment."""

    path: str
    inode: int
    size: int
    mode: int
    mtime: float
    offset: int
    data: bytes


class ScanMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A line that matched: its offset, text (≤ 2,000 characters), groups and neighbours."""

    offset: int
    line: str
    groups: dict[str, str | None] = {}
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class ScanReport(msgspec.Struct, frozen=True, kw_only=True):
    """A log window read on the host. `complete` false says which part was not readable, in `gap`."""

    matches: tuple[ScanMatch, ...]
    count: int
    bytes: int
    begin: int
    end: int
    inode: int
    complete: bool
    gap: str = ""
    control_found: bool | None = None
    writers: tuple[int, ...] = ()
    """pids that hold the log open for writing."""


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What the keeper starts: argv, or text for `/bin/sh -c` (bash when there is one). `log` empty: a file in the run's folder."""

    run: str
    id: str
    argv: tuple[str, ...] = ()
    shell: str = ""
    prelude: str = ""
    cwd: str = ""
    env: dict[str, str] = {}
    log: str = ""
    at_end: str = "stop"
    ladder: tuple[str, ...] = ("TERM 15s", "KILL 10s")
    suspend_for_s: float = 7200.0
    kind: str = "launch"
    """launch, or run for a long `run` step."""
    dumps: str = "off"
    """off, auto (no core files) or full (also what lets its stacks and collectives be read)."""
    token: str = ""
    """Asked for again with the same one, it is not started again: the answer is the launch that stands."""


class LaunchState(msgspec.Struct, frozen=True, kw_only=True):
    """A launched process as its keeper knows it. `exit` null while it lives; times are host unix seconds."""

    id: str
    pid: int
    start: int
    sid: int
    log: str
    log_inode: int
    log_offset: int
    argv: tuple[str, ...]
    cwd: str
    interpreter: str
    started: float
    ended: float | None = None
    exit: int | None = None
    signal: str | None = None
    oom_killed: bool = False
    max_rss: int | None = None
    stopped_by: str | None = None
    """What ended it when it was us: kill, expiry, undo."""
    dump_env: dict[str, str] = {}
    """Variables that `dumps: full` added on the host."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Which GPUs of a host (null: all) a run has. `holder` is user@controller; times are host unix seconds.

    `keeper`: whether its run's keeper lives; `stale`: why it does not count any more, empty when it does.
    """

    run: str
    holder: str
    gpus: list[int] | None
    since: float
    renewed: float
    until: float
    keeper: bool = False
    stale: str = ""
    account: str = ""
    """The other account of the host whose lease it is; empty when it is that of our own."""
    by: str = ""
    """The run that uses now what that one kept, when another one does."""

    @property
    def user(self) -> str:
        """The run that has it now."""
        return self.by or self.run


class UndoRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a patch left on the host so that it can be undone. `folder` also holds a text that says how to do it by hand."""

    id: str
    run: str
    path: str
    folder: str
    sha256_before: str
    sha256_after: str
    mode: int
    mtime_ns: int
    undo_after_s: float


class OpenPatch(UndoRecord, frozen=True, kw_only=True):
    """An undo record that is still open, of any run: what its file holds now, and whether its run's keeper lives.

    `state`: patched, original, edited (somebody else's bytes), missing, unreadable. `patched`, `renewed`: host unix seconds.
    """

    state: str
    sha256_now: str
    keeper: bool
    patched: float
    renewed: float


class RestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """`state`: restored, already (the original bytes were there), gone (given up by name), conflict (someone else's edit), missing.

    missing: it is not there, and nor is its folder or the disk that it was patched on.
    """

    id: str
    path: str
    state: str
    sha256_now: str = ""
    note: str = ""


class KeeperState(msgspec.Struct, frozen=True, kw_only=True):
    """A run's keeper on this host."""

    run: str
    pid: int
    start: int
    alive: bool
    renewed: float
    expires: float | None = None
    """Unix time at which a suspended run is cleaned up."""
    launches: tuple[LaunchState, ...] = ()
    undo: tuple[UndoRecord, ...] = ()
    ended: tuple[dict[str, Any], ...] | None = None
    """What it did by itself when no controller came back: t, why, stopped, restored."""


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    """The driver tool's answer: `gpus`, or `blind` with why it could not be asked, or `missing` when there is no tool."""

    gpus: tuple[GpuSample, ...] = ()
    blind: str = ""
    missing: bool = False
    seconds: float = 0.0


class ModuleFile(msgspec.Struct, frozen=True, kw_only=True):
    """Where an interpreter would import a module from. `others`: further copies on its path."""

    path: str
    package_root: str
    interpreter: str
    others: tuple[str, ...] = ()
    git: dict[str, Any] = {}


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one HTTP exchange brought. `outcome`: answer, refused, timeout, reset or error."""

    outcome: str
    latency_s: float
    status: int | None = None
    headers: dict[str, str] = {}
    body: bytes = b""
    error: str = ""
    ttft_s: float | None = None
    events: tuple[str, ...] = ()
    """For a stream: the data of each server-sent event."""
