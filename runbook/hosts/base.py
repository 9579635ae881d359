"""A host as steps and engine see it: typed calls over one transport to the on-host helper.

One call is one round trip. `Host` is the same for `local`, SSH, the lab and the fake; only the `Transport` below it differs.

Errors, by who is to blame and when:

    HostError
    ├── Unreachable          the host could not be reached or was lost; says nothing about the server
    │   ├── ResolveFailed    name or ssh_config
    │   ├── ConnectFailed    tcp, banner or key exchange (`stage`)
    │   ├── HostKeyRefused   unknown under a strict policy, changed, or revoked
    │   ├── AuthRefused      no key, key refused, too many tries
    │   ├── NoPython         no python3 ≥ 3.8 behind `via:`/`python:`
    │   └── LinkLost         an open connection died
    ├── RemoteError          the helper answered that an operation failed (`code` is stable)
    ├── CallTimeout          the helper did not answer in time; the link may still be alive
    └── Cancelled            the caller's cancel token was set
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from runbook.model.sample import GpuSample, ListenerSample, Sample
from runbook.model.units import Rung


class HostError(Exception):
    """Base of all that can go wrong with a host. `hint` says what to try next."""

    def __init__(self, summary: str, hint: str = "") -> None:
        super().__init__(summary)
        self.summary = summary
        self.hint = hint


class Unreachable(HostError):
    """`stage` is lab, resolve, tcp, banner, key exchange, host key, auth, channel, helper or link."""

    stage = "link"


class ResolveFailed(Unreachable):
    """The name means nothing to ssh_config, the inventory or DNS."""

    stage = "resolve"


class ConnectFailed(Unreachable):
    """No usable SSH server answered."""

    def __init__(self, summary: str, hint: str = "", stage: str = "tcp") -> None:
        super().__init__(summary, hint)
        self.stage = stage


class HostKeyRefused(Unreachable):
    """The host's key is not the one that known_hosts has, or is revoked, or unknown under a strict policy."""

    stage = "host key"


class AuthRefused(Unreachable):
    """The server took none of our keys."""

    stage = "auth"


class NoPython(Unreachable):
    """There is no usable python3 on the host."""

    stage = "helper"


class LinkLost(Unreachable):
    """An open connection died: closed by the peer, or keepalives went unanswered."""

    stage = "link"


class RemoteError(HostError):
    """An operation failed on the host.

    Codes: not_found, permission, exists, conflict, changed, not_unique, busy, protected, unsupported, bad_request, failed.
    `data` is what the helper adds, plain.
    """

    def __init__(self, code: str, summary: str, hint: str = "", data: dict[str, Any] | None = None) -> None:
        super().__init__(summary, hint)
        self.code = code
        self.data = data or {}


class CallTimeout(HostError):
    """No answer from the helper within the call's bound."""


class Cancelled(HostError):
    """The run was interrupted while this call waited."""


class CancelToken:
    """Set once, by a signal handler; every waiting call under it raises Cancelled."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.RLock()  # re-entrant: the handler may interrupt `on_set` in the same thread

    def set(self) -> None:
        """Cancel. Safe from a signal handler, as far as the callbacks are."""
        self.event.set()
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        """Whether it was cancelled."""
        return self.event.is_set()

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when set (at once if it already is). Returns a function that takes it back."""
        with self._lock:
            self._callbacks.append(callback)
        if self.event.is_set() and self._drop(callback):
            callback()

        def take_back() -> None:
            self._drop(callback)

        return take_back

    def _drop(self, callback: Callable[[], None]) -> bool:
        with self._lock:
            if callback not in self._callbacks:
                return False
            self._callbacks.remove(callback)
            return True


class Reply(msgspec.Struct, frozen=True):
    """What the helper answered: plain data and raw bytes."""

    data: dict[str, Any]
    blob: bytes = b""


class Transport(Protocol):
    """A started helper on a host. Thread safe: calls run side by side over one channel."""

    def call(
        self,
        op: str,
        args: dict[str, Any],
        blob: bytes = b"",
        *,
        timeout_s: float,
        cancel: CancelToken | None = None,
        on_event: Callable[[dict[str, Any], bytes], None] | None = None,
    ) -> Reply:
        """One request, one reply. `on_event` gets what the helper streams before it. Raises HostError.

        When `cancel` fires or the time is over, the helper is told to stop the operation before this returns.
        """
        ...

    def close(self) -> None:
        """End the helper and the connection. Idempotent."""
        ...


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
    clock_offset_s: float = 0.0
    clock_error_s: float = 0.0
    scoped: bool = False
    """Only processes below a given one are visible (the lab)."""


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
    gpus: tuple[int, ...] = ()
    """GPU device files that it holds open."""
    protected: str | None = None

    @property
    def id(self) -> ProcessId:
        """Its lasting name."""
        return ProcessId(self.pid, self.start)


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


class RestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """`state`: restored, already (the original bytes were there), conflict (someone else's edit), missing."""

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


class HttpClient(Protocol):
    """HTTP from inside the host's network namespace, without environment proxies."""

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: dict[str, str] | None = None,
        content: bytes | None = None,
        timeout_s: float,
        stream: bool = False,
        cancel: CancelToken | None = None,
    ) -> HttpAnswer:
        """One exchange over a fresh connection; never raises for what the server does. Raises Unreachable for the host."""
        ...


class Host:
    """One target, connected. Every method is one round trip and raises HostError; `cancel` applies to all calls."""

    def __init__(
        self, name: str, address: str, transport: Transport, facts: HostFacts, http: HttpClient, gpus: list[int] | None = None
    ) -> None:
        self.name = name
        self.address = address
        self.transport = transport
        self.facts = facts
        self.http = http
        self.gpu_indices = gpus
        self.cancel: CancelToken | None = None

    def call(
        self,
        op: str,
        /,
        *,
        timeout_s: float = 30.0,
        blob: bytes = b"",
        on_event: Callable[[dict[str, Any], bytes], None] | None = None,
        **args: Any,
    ) -> Reply:
        """A raw operation of the helper (docs/reference/helper.md)."""
        return self.transport.call(op, args, blob, timeout_s=timeout_s, cancel=self.cancel, on_event=on_event)

    def _typed(self, kind: Any, op: str, /, *, timeout_s: float = 30.0, **args: Any) -> Any:
        return msgspec.convert(self.call(op, timeout_s=timeout_s, **args).data, kind)

    def close(self) -> None:
        """End the helper and the connection."""
        self.transport.close()

    # processes ---------------------------------------------------------------------------------------------------

    def run(
        self,
        argv: Sequence[str] = (),
        *,
        shell: str = "",
        env: dict[str, str] | None = None,
        cwd: str = "",
        stdin: bytes = b"",
        timeout_s: float = 120.0,
        ladder: Sequence[str] = ("TERM 5s", "KILL 5s"),
        keep_bytes: int = 256 * 1024,
        on_output: Callable[[str, bytes], None] | None = None,
        marker: str = "",
    ) -> Completed:
        """Run argv, or `shell` as a script over stdin of bash (else sh), in a process group of its own.

        When `timeout_s` is over the helper climbs `ladder` on the group and says what is left. `on_output` gets (stream, bytes)
        as they come. `marker` is put into its environment as RUNBOOK_RUN.
        """

        def event(data: dict[str, Any], blob: bytes) -> None:
            if on_output is not None:
                on_output(data["stream"], blob)

        grace = 15.0 + sum(Rung.parse(rung).wait_s for rung in ladder)
        reply = self.call(
            "run",
            argv=list(argv),
            shell=shell,
            env=env or {},
            cwd=cwd,
            limit_s=timeout_s,
            ladder=list(ladder),
            keep=keep_bytes,
            live=on_output is not None,
            marker=marker,
            blob=stdin,
            timeout_s=timeout_s + grace,
            on_event=event,
        )
        out_len = reply.data.pop("stdout_len")
        return msgspec.convert({**reply.data, "stdout": reply.blob[:out_len], "stderr": reply.blob[out_len:]}, Completed)

    def processes(self, run: str = "") -> tuple[Process, ...]:
        """The visible process table. `run` is our own run id, so that its processes are not `protected`."""
        return self._typed(tuple[Process, ...], "processes", run=run)

    def kill(self, targets: Sequence[ProcessId], ladder: Sequence[str], timeout_s: float = 60.0) -> KillReport:
        """Climb the ladder on exactly these processes and prove absence; a reused pid is never signalled."""
        return self._typed(KillReport, "kill", targets=[[t.pid, t.start] for t in targets], ladder=list(ladder), timeout_s=timeout_s)

    def listeners(self, port: int, tree: ProcessId | None = None) -> tuple[ListenerSample, ...]:
        """Who listens on a TCP port; `ours` is set for the tree and session of `tree`."""
        return self._typed(tuple[ListenerSample, ...], "listeners", port=port, tree=[tree.pid, tree.start] if tree else None)

    def gpus(self, indices: Sequence[int] | None = None, limit_s: float = 60.0) -> GpuReport:
        """Memory, holders and faults of each GPU by the driver's tool, never two copies of it at once."""
        return self._typed(
            GpuReport, "gpus", indices=list(indices) if indices is not None else None, limit_s=limit_s, timeout_s=limit_s + 10
        )

    def sample(self, spec: dict[str, Any], timeout_s: float = 30.0) -> Sample:
        """One observation of a launched server.

        spec: {run, server, pid, start, log: {path, inode, offset}, port, gpus: bool, threads: bool}; each key optional. The check
        is not part of it: the engine fills `check`, `t` and `link`.
        """
        return self._typed(Sample, "sample", timeout_s=timeout_s, **spec)

    # files -------------------------------------------------------------------------------------------------------

    def marks(self, paths: Sequence[str]) -> dict[str, Mark]:
        """Inode and size of each log; inode 0 where there is none yet."""
        return self._typed(dict[str, Mark], "marks", paths=list(paths))

    def scan(
        self,
        path: str,
        pattern: str,
        *,
        begin: Mark | None = None,
        end: Mark | None = None,
        control: str = "",
        context: int = 0,
        most: int = 100,
        timeout_s: float = 60.0,
    ) -> ScanReport:
        """Search a log window on the host, split on \\r and \\n; follows a rotation inside the window by inode."""
        return self._typed(
            ScanReport,
            "scan",
            path=path,
            pattern=pattern,
            begin=[begin.inode, begin.size] if begin else None,
            end=[end.inode, end.size] if end else None,
            control=control,
            context=context,
            most=most,
            timeout_s=timeout_s,
        )

    def read(self, path: str, offset: int = 0, limit: int = 1 << 20) -> FileSlice:
        """Bytes of a file; a negative offset counts from its end."""
        reply = self.call("read", path=path, offset=offset, limit=limit)
        return msgspec.convert({**reply.data, "data": reply.blob}, FileSlice)

    def glob(self, pattern: str) -> tuple[str, ...]:
        """Files that match, sorted."""
        return self._typed(tuple[str, ...], "glob", pattern=pattern)

    def hash(self, path: str) -> dict[str, Any]:
        """{sha256, size, mode, mtime_ns} of a file."""
        return self.call("hash", path=path, timeout_s=600.0).data

    def write(self, path: str, data: bytes, mode: int | None = None) -> None:
        """Write a file atomically (temporary file in the same folder, sync, rename); an existing file keeps mode and owner."""
        self.call("write", path=path, mode=mode, blob=data, timeout_s=120.0)

    def remove(self, path: str) -> None:
        """Remove a file or a folder that runbook made; absence is fine. Refused (`protected`) outside runbook's state folder."""
        self.call("remove", path=path)

    # the run's keeper --------------------------------------------------------------------------------------------

    def ensure_keeper(self, run: str, suspend_for_s: float = 7200.0) -> KeeperState:
        """Start this run's keeper if it is not there, and renew it."""
        return self._typed(KeeperState, "keeper_ensure", run=run, suspend_for_s=suspend_for_s)

    def keeper(self, run: str) -> KeeperState:
        """State of a run's keeper, its launches and open undo records, from its files; works when it is dead."""
        return self._typed(KeeperState, "keeper_state", run=run)

    def renew(self, run: str) -> None:
        """The controller is alive: undo timers and expiries count from now."""
        self.call("keeper_renew", run=run)

    def suspend(self, run: str, expires: float) -> None:
        """Hand the run to its keeper until `expires` (host unix time): then it stops launches and restores patches."""
        self.call("keeper_suspend", run=run, expires=expires)

    def retire(self, run: str) -> list[str]:
        """End the keeper and remove the run's folder; answers what had to stay, as paths and processes."""
        return list(self.call("keeper_retire", run=run, timeout_s=60.0).data["left"])

    def launch(self, spec: LaunchSpec, timeout_s: float = 60.0) -> LaunchState:
        """Start a process under the keeper: own session, stdin from null, output appended to its log."""
        return self._typed(LaunchState, "launch", timeout_s=timeout_s, **msgspec.to_builtins(spec))

    def launch_state(self, run: str, id: str) -> LaunchState:
        """A launch as its keeper knows it."""
        return self._typed(LaunchState, "launch_state", run=run, id=id)

    def note_kill(self, run: str, id: str, by: str = "kill") -> None:
        """Tell the keeper, before the kill, that we end this launch: then its end is not taken for a crash."""
        self.call("keeper_note_kill", run=run, id=id, by=by)

    # patches -----------------------------------------------------------------------------------------------------

    def find_module(
        self,
        module: str,
        *,
        interpreter: str = "",
        prelude: str = "",
        cwd: str = "",
        env: dict[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> ModuleFile:
        """Resolve a module as that interpreter would, without importing parents. Empty interpreter: `python` on its PATH."""
        return self._typed(
            ModuleFile, "find_module", module=module, interpreter=interpreter, prelude=prelude, cwd=cwd, env=env or {}, timeout_s=timeout_s
        )

    def patch(self, *, run: str, id: str, path: str, expect_sha256: str, data: bytes, undo_after_s: float) -> UndoRecord:
        """Undo record first (synced), then an atomic replace that keeps mode and owner; stale bytecode is removed.

        RemoteError: changed (the file is not the one that was read), busy (another run's patch is in it), permission.
        """
        reply = self.call("patch", run=run, id=id, path=path, expect_sha256=expect_sha256, undo_after_s=undo_after_s, blob=data)
        return msgspec.convert(reply.data, UndoRecord)

    def restore(self, run: str, ids: Sequence[str] | None = None) -> tuple[RestoreReport, ...]:
        """Give back the original bytes, mode, owner and times of these patches, or of all of the run, newest first."""
        return self._typed(tuple[RestoreReport, ...], "restore", run=run, ids=list(ids) if ids is not None else None)
