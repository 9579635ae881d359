"""A command whose link was lost: its helper stayed with it on the host, and the next connection asks how it ended."""

from __future__ import annotations

from collections.abc import Callable

from runbook.hosts.base import Completed, HostFacts, LinkLost, ProcessId, RemoteError
from runbook.steps.base import StepContext

GRACE_S = 30.0
"""A command ends itself at its limit, and its ladder may take a while."""


class Unknowable(Exception):
    """Nobody can tell how a command ended, or whether it began. It is not run again. `process`: what it was, when that is on record."""

    def __init__(self, text: str, process: ProcessId | None) -> None:
        super().__init__(text)
        self.process = process


def take_over(
    ctx: StepContext, lost: LinkLost | None, before: HostFacts | None, show: Callable[[str, bytes], None], target: str
) -> Completed | None:
    """How the command of this attempt ended; None when it is certain that it never began.

    `before`: the facts of the helper that it was given to, on `target`. Without `lost`: an earlier controller had begun it. Raises
    Unreachable when the host does not come back within the box.
    """
    ctx.owe(f"keeper:{target}", "keeper")
    while True:
        fate = ctx.reach(lost, before) if lost is not None else "told"
        try:
            ctx.host.ensure_keeper(ctx.run.id, ctx.run.suspend_for_s)
            limit_s = max(1.0, ctx.remaining_s()) + GRACE_S
            done = ctx.host.run_held(ctx.run.id, ctx.once, timeout_s=limit_s, on_output=show)
        except LinkLost as again:
            lost = again
        except RemoteError as problem:
            if problem.code == "not_found" and fate == "told":
                return None
            known = problem.data.get("process")
            raise Unknowable(_why(fate), ProcessId(*known) if known else None) from problem
        else:
            why = f"the link was lost ({lost.summary})" if lost is not None else "its controller died"
            ctx.find("taken_over", f"step `{ctx.step}`: {why} while it ran; it went on, and its end was collected")
            return done


def _why(fate: str) -> str:
    if fate == "rebooted":
        return "the host was started again while it ran: whether it came to its end is not known, and it is not run again"
    return "the link was lost, and the helper that ran it is gone: whether it came to its end is not known, and it is not run again"
