"""A host as steps and engine see it: typed calls over one transport to the on-host helper.

One call is one round trip. `Host` is the same for `local`, SSH, the lab and the fake; only the `Transport` below it differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from runbook.hosts.closely import Closely
from runbook.hosts.commands import Commands
from runbook.hosts.errors import (
    AuthRefused,
    CallTimeout,
    Cancelled,
    CancelToken,
    ConnectFailed,
    HostError,
    HostKeyRefused,
    LinkLost,
    NoPython,
    PlaceEnded,
    RemoteError,
    ResolveFailed,
    Unreachable,
)
from runbook.hosts.looks import Looks, OutOfStep, chain_of
from runbook.hosts.transport import REPEATABLE, HttpClient, Transport
from runbook.model.health import Examined
from runbook.model.remote import (
    Completed,
    Described,
    FileSlice,
    GpuReport,
    HostFacts,
    HttpAnswer,
    KeeperState,
    KillReport,
    LaunchSpec,
    LaunchState,
    Lease,
    Mark,
    ModuleFile,
    OpenPatch,
    PortOwner,
    Process,
    ProcessId,
    Reply,
    RestoreReport,
    ScanMatch,
    ScanReport,
    Taken,
    TakenFile,
    TakenItem,
    UndoRecord,
)
from runbook.model.sample import ListenerSample, Sample

__all__ = [
    "REPEATABLE",
    "AuthRefused",
    "CallTimeout",
    "CancelToken",
    "Cancelled",
    "Completed",
    "ConnectFailed",
    "Described",
    "FileSlice",
    "GpuReport",
    "Host",
    "HostError",
    "HostFacts",
    "HostKeyRefused",
    "HttpAnswer",
    "HttpClient",
    "KeeperState",
    "KillReport",
    "LaunchSpec",
    "LaunchState",
    "Lease",
    "LinkLost",
    "Mark",
    "ModuleFile",
    "NoPython",
    "PlaceEnded",
    "OpenPatch",
    "PortOwner",
    "Process",
    "ProcessId",
    "RemoteError",
    "Reply",
    "ResolveFailed",
    "RestoreReport",
    "ScanMatch",
    "ScanReport",
    "Taken",
    "TakenFile",
    "TakenItem",
    "Transport",
    "UndoRecord",
    "Unreachable",
]
"""The host's whole vocabulary: steps and engine need no other module of this package."""


class Host(Closely, Commands):
    """One target, connected. Every method is one round trip and raises HostError; `cancel` applies to all calls."""

    def __init__(
        self,
        name: str,
        address: str,
        transport: Transport,
        facts: HostFacts,
        http: HttpClient,
        gpus: list[int] | None = None,
        *,
        ends_with_link: str = "",
    ) -> None:
        """`ends_with_link`: why nothing that is started here outlives the connection; empty when it does."""
        self.name = name
        self.address = address
        self.transport = transport
        self.facts = facts
        self.http = http
        self.gpu_indices = gpus
        self.ends_with_link = ends_with_link
        self._looks = Looks()

    def close(self) -> None:
        """End the helper and the connection."""
        self.transport.close()

    # processes ---------------------------------------------------------------------------------------------------

    def processes(self, run: str = "") -> tuple[Process, ...]:
        """The visible process table. `run` is our own run id, so that its processes are not `protected`."""
        return self._typed(tuple[Process, ...], "processes", run=run)

    def kill(self, targets: Sequence[ProcessId], ladder: Sequence[str], timeout_s: float = 60.0) -> KillReport:
        """Climb the ladder on exactly these processes and prove absence; a reused pid is never signalled."""
        return self._typed(KillReport, "kill", targets=[[t.pid, t.start] for t in targets], ladder=list(ladder), timeout_s=timeout_s)

    def listeners(self, port: int, tree: ProcessId | None = None) -> tuple[ListenerSample, ...]:
        """Who listens on a TCP port; `ours` is set for the tree and session of `tree`."""
        return self._typed(tuple[ListenerSample, ...], "listeners", port=port, tree=[tree.pid, tree.start] if tree else None)

    def ports(self) -> tuple[PortOwner, ...]:
        """Every listening TCP socket with the processes that hold it."""
        return self._typed(tuple[PortOwner, ...], "ports")

    def describe(self, pid: int, env: Sequence[str] = ()) -> Described:
        """A process that runs already, where its output goes, and these variables. RemoteError: not_found when there is none."""
        return self._typed(Described, "describe", pid=pid, env=list(env))

    def gpus(self, indices: Sequence[int] | None = None, limit_s: float = 60.0) -> GpuReport:
        """Memory, holders and faults of each GPU by the driver's tool, never two copies of it at once."""
        return self._typed(
            GpuReport, "gpus", indices=list(indices) if indices is not None else None, limit_s=limit_s, timeout_s=limit_s + 10
        )

    def sample(self, spec: dict[str, Any], timeout_s: float = 30.0) -> Sample:
        """One observation of a server.

        spec: {run, server, pid, start, log: {path, inode, offset}, port, gpus: bool, threads: bool, full: bool, folders: [path],
        calls: bool, kernel: bool}; each key optional. The check is not part of it: the engine fills `check`, `t` and `link`.
        """
        chain = chain_of(spec)
        for has in (self._looks.has(chain), 0):
            answer = self.call("sample", timeout_s=timeout_s, **spec, chain=chain, has=has)
            try:
                return msgspec.convert(self._looks.take(chain, answer.data, answer.blob), Sample)
            except OutOfStep:
                continue  # another thread has taken a look of this chain meanwhile
        raise AssertionError("a look that builds on nothing cannot be out of step")

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

    def renew(self, run: str, by: str = "") -> bool:
        """The controller is alive: undo timers and expiries count from now. True when the keeper had died and was replaced.

        `by`: the run that uses from now on what this one kept.
        """
        return bool(self._field("replaced", bool, "keeper_renew", run=run, by=by))

    def suspend(self, run: str, expires: float) -> None:
        """Hand the run to its keeper until `expires` (host unix time): then it stops launches and restores patches."""
        self.call("keeper_suspend", run=run, expires=expires)

    def retire(self, run: str) -> list[str]:
        """End the keeper and remove the run's folder; answers what had to stay, as paths and processes."""
        return list(self._field("left", list[str], "keeper_retire", run=run, timeout_s=60.0))

    def launch(self, spec: LaunchSpec, timeout_s: float = 60.0) -> LaunchState:
        """Start a process under the keeper: own session, stdin from null, output appended to its log."""
        return self._typed(LaunchState, "launch", timeout_s=timeout_s, **msgspec.to_builtins(spec))

    def launch_state(self, run: str, id: str) -> LaunchState:
        """A launch as its keeper knows it."""
        return self._typed(LaunchState, "launch_state", run=run, id=id)

    def note_kill(self, run: str, id: str, by: str = "kill") -> None:
        """Tell the keeper, before the kill, that we end this launch: then its end is not taken for a crash."""
        self.call("keeper_note_kill", run=run, id=id, by=by)

    # leases ------------------------------------------------------------------------------------------------------

    def take_lease(self, run: str, holder: str, hold_s: float, reuse: Sequence[str] = ()) -> tuple[Lease, ...]:
        """Take this target's GPUs for the run, or refresh that; answers the leases of dead runs that were taken over.

        RemoteError busy: another run has one of them; its lease stands in `data["lease"]`.
        """
        taken: tuple[Lease, ...] = self._field(
            "taken_over", tuple[Lease, ...], "lease_take", run=run, holder=holder, hold_s=hold_s, gpus=self.gpu_indices, reuse=list(reuse)
        )
        return taken

    def leases(self) -> tuple[Lease, ...]:
        """All leases on the host: those of this account, oldest first, then what other accounts say."""
        return self._typed(tuple[Lease, ...], "lease_list")

    def give_lease_back(self, run: str) -> bool:
        """What the run does with its GPUs is over, while its keeper stays; answers whether it had them. Giving back twice does no harm."""
        return self._field("given", bool, "lease_give_back", run=run)

    def examine(self) -> Examined:
        """What this account may see there and what earlier runs left; for the doctor."""
        examined: Examined = self._typed(Examined, "examine")
        return examined

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

    def restore(self, run: str, ids: Sequence[str] | None = None, *, forget: bool = False) -> tuple[RestoreReport, ...]:
        """Give back the original bytes, mode, owner and times of these patches, or of all of the run, newest first.

        `forget`: where that cannot be done, the file is left as it is and its record closed.
        """
        more = {"forget": True} if forget else {}
        return self._typed(tuple[RestoreReport, ...], "restore", run=run, ids=list(ids) if ids is not None else None, **more)

    def open_patches(self, run: str | None = None) -> tuple[OpenPatch, ...]:
        """Patches that are not undone yet, of one run or of all runs of this account, oldest first."""
        return self._typed(tuple[OpenPatch, ...], "undo_list", run=run)
