"""The looks of a suspicion, as a host answers them: stacks, communicators, the evidence bundle. Each is bounded and touches nothing."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Union

import msgspec

from runbook.hosts.calling import Calling
from runbook.hosts.errors import CallTimeout, RemoteError
from runbook.model.remote import ProcessId, Taken, TakenFile, TakenItem
from runbook.model.sample import Absent, Blind, Outcome, Seen
from runbook.model.waits import CollectiveSample, StackSample

StacksFound = Union[Seen[tuple[StackSample, ...]], Absent, Blind]
CollectivesFound = Union[Seen[tuple[CollectiveSample, ...]], Absent, Blind]
UPLOAD_S = 30.0
"""A link that needs longer for three megabytes gets wait channels instead."""


class Closely(Calling):
    """The part of a `Host` that looks closer."""

    def stacks(self, targets: Sequence[tuple[ProcessId, int | None]], look: int = 1, limit_s: float = 8.0) -> Outcome:
        """Stacks of these (process, rank), as `tuple[StackSample, …]`: bounded, side by side, without pausing anything.

        Where the host has no py-spy and this machine has one for it (the extra `pyspy`), it is sent there once. A look that brings
        nothing is Blind, whatever the reason but a lost link. Raises Unreachable.
        """
        args: dict[str, Any] = {"targets": _rows(targets), "look": look, "limit_s": limit_s, "timeout_s": limit_s + 10.0}
        try:
            reply = self.call("stacks", **args)
            if reply.data["wants_py_spy"] and self.put_py_spy(reply.data["machine"]):
                reply = self.call("stacks", **args)
        except (CallTimeout, RemoteError) as problem:
            return Blind(problem.summary)
        found: Outcome = msgspec.convert(reply.data["found"], StacksFound)
        return found

    def put_py_spy(self, machine: str) -> bool:
        """Send this machine's py-spy to the host's state folder; False when there is none for that machine, or it was not taken."""
        from runbook.hosts import py_spy

        packed = py_spy.packed(machine)
        if packed is None:
            return False
        try:
            self.call("put_py_spy", machine=machine, blob=packed, timeout_s=UPLOAD_S)
        except (CallTimeout, RemoteError):
            return False
        return True

    def collectives(self, targets: Sequence[tuple[ProcessId, int | None]], look: int = 1, limit_s: float = 8.0) -> Outcome:
        """What NCCL's RAS and torch's flight recorder say of these (process, rank), as `tuple[CollectiveSample, …]`.

        Absent: no communicator can be asked, or RAS sees no rank that differs. The flight recorder is made to write a dump now: an
        old one is never taken for a look. Raises Unreachable.
        """
        try:
            reply = self.call("collectives", targets=_rows(targets), look=look, limit_s=limit_s, timeout_s=limit_s + 10.0)
        except (CallTimeout, RemoteError) as problem:
            return Blind(problem.summary)
        found: Outcome = msgspec.convert(reply.data, CollectivesFound)
        return found

    def collect(self, spec: dict[str, Any], what: Sequence[str], limit_s: float = 20.0) -> Taken:
        """An evidence bundle: the items of `what`, side by side, each bounded and failing alone. Nothing is paused or signalled.

        spec: {run, server, pid, start, log, log_offset, interpreter}; each key optional. Raises RemoteError for an unknown item.
        """
        taken, wants = self._collect(spec, what, limit_s)
        if wants is None or not self.put_py_spy(wants):
            return taken
        again, _ = self._collect(spec, ["stacks"], 8.0)
        items = tuple(item for item in taken.items if item.item != "stacks") + again.items
        return Taken(items=items, files=tuple(file for file in taken.files if file.item != "stacks") + again.files)

    def _collect(self, spec: dict[str, Any], what: Sequence[str], limit_s: float) -> tuple[Taken, str | None]:
        """(bundle, for which machine py-spy is wanted)."""
        reply = self.call("collect", timeout_s=limit_s + 15.0, what=list(what), limit_s=limit_s, **spec)
        data, at, files = zlib.decompress(reply.blob), 0, []
        for row in reply.data["files"]:
            files.append(TakenFile(item=row["item"], name=row["name"], data=data[at : at + row["bytes"]]))
            at += row["bytes"]
        items = msgspec.convert(reply.data["items"], tuple[TakenItem, ...])
        return Taken(items=items, files=tuple(files)), reply.data["machine"] if reply.data["wants_py_spy"] else None


def _rows(targets: Sequence[tuple[ProcessId, int | None]]) -> list[list[Any]]:
    return [[target.pid, target.start, rank] for target, rank in targets]
