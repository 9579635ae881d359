"""collect: the evidence bundle of a server, without touching it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Union

from msgspec import Meta

from runbook.model.fields import LaunchRef
from runbook.model.units import Duration
from runbook.steps.base import Launched, Step, StepContext, StepResult
from runbook.steps.bundle import ITEMS, OF_THE_HOST, Bundle, take

Word = Literal[
    "stacks",
    "processes",
    "gpu",
    "kernel",
    "log",
    "sockets",
    "shared_memory",
    "disk",
    "packages",
    "environment",
    "flight_recorder",
    "ras",
]


class Collect(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take the evidence bundle: stacks, processes, GPUs, kernel lines, log, sockets, shared memory, disks, packages, environment, ranks.

    Nothing is paused, signalled or changed. Each item has its own bound in time and size and fails alone; `index.json` says what
    could not be had and why. Without `server` the servers of this run on the host are meant; where there is none, the host alone.
    """

    TYPE: ClassVar[str] = "collect"
    SHORTHAND: ClassVar[str | None] = "server"
    TIMEOUT: ClassVar[str] = "2m"
    RESULTS: ClassVar[dict[str, str]] = {
        "files": "item, file (in the run folder) and bytes of each file",
        "index": "item, status (taken, absent, blind, late, failed), reason, seconds, files of each item; `server` if there are several",
    }
    EXAMPLE: ClassVar[str] = "collect: {server: server, what: [stacks, log, gpu]}"

    server: Annotated[LaunchRef | None, Meta(description="id of the launch or attach step")] = None
    what: Annotated[
        Union[Literal["auto"], Annotated[list[Word], Meta(min_length=1)]],
        Meta(description="`auto`: all items; else a list of `stacks`, `processes`, `gpu`, …"),
    ] = "auto"
    limit: Annotated[Duration, Meta(description="how long the bundle of one server may take")] = Duration(20)

    def _items(self) -> tuple[str, ...]:
        return ITEMS if self.what == "auto" else tuple(self.what)

    def plan(self) -> list[str]:
        """What is taken."""
        of = f"server `{self.server}`" if self.server else "the run's servers on this host"
        return [f"collect {', '.join(self._items())} of {of}, changing nothing"]

    def run(self, ctx: StepContext) -> StepResult:
        """One bundle a server."""
        if ctx.check_mode:
            return StepResult(verdict="passed", reason=f"would {self.plan()[0]}")
        servers: tuple[Launched | None, ...] = ctx.launches()
        if self.server is not None:
            launched = ctx.launched(self.server)
            if launched is None:
                return StepResult(verdict="undecided", reason=f"`{self.server}` was not launched on this host")
            servers = (launched,)
        if not servers and not set(self._items()) & set(OF_THE_HOST):
            return StepResult(verdict="undecided", reason="this run has no server on this host, and each item that is asked for needs one")
        return self._take(ctx, servers or (None,))

    def _take(self, ctx: StepContext, servers: tuple[Launched | None, ...]) -> StepResult:
        files: list[dict[str, Any]] = []
        index: list[dict[str, Any]] = []
        told = []
        for launched in servers:
            several = launched is not None and len(servers) > 1
            limit_s = min(float(self.limit), max(1.0, ctx.remaining_s() - 1.0))
            prefix = f"{launched.step}-" if launched is not None and several else ""
            one: Bundle = take(ctx.host, launched, ctx.run.id, ctx.evidence, what=self._items(), limit_s=limit_s, prefix=prefix)
            files += one.files
            index += [{"server": launched.step, **row} if launched is not None and several else row for row in one.index]
            told.append(prefix.replace("-", ": ") + one.summary())
        if not any(row["status"] == "taken" for row in index):
            reasons = "; ".join(f"{row['item']}: {row['reason']}" for row in index)
            return StepResult(verdict="undecided", reason=f"nothing could be taken: {reasons}", fields={"files": files, "index": index})
        return StepResult(verdict="passed", reason="; ".join(told), fields={"files": files, "index": index})
