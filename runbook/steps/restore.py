"""restore: give back the exact bytes, mode, owner and times of what this run patched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from runbook.hosts.base import RestoreReport
from runbook.model.fields import PatchRef
from runbook.steps.base import Patched, Step, StepContext, StepResult

ALL = "all"
UNDONE = ("restored", "already", "gone")
"""States in which no patch is owed any more. `gone`: somebody gave the file up (`runbook restore --forget`)."""


def not_undone(report: RestoreReport) -> str:
    """What became of a patch that is still there, or may be."""
    what = "was edited by somebody else after the patch" if report.sha256_now else "could not be given back"
    return f"{report.path} {what}" + (f" ({report.note})" if report.note else "")


class Restore(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Undo a patch, or all patches of this run on the host, newest first.

    A file that somebody else edited since is left alone and named; one that was deleted is put back. A patch that never happened has
    nothing to restore: passed. One whose file is away with its folder is named: a folder that was moved carries the patch along.
    """

    TYPE: ClassVar[str] = "restore"
    SHORTHAND: ClassVar[str | None] = "patch"
    RESUME: ClassVar[str] = "recheck"
    ENDS: ClassVar[bool] = True
    RESULTS: ClassVar[dict[str, str]] = {
        "restored": "files that have their original bytes again",
        "already": "files that had them already",
        "conflicts": "files that somebody else edited since, or that are away with their folder: left alone, with their hashes",
    }
    EXAMPLE: ClassVar[str] = "restore: taps"

    patch: Annotated[PatchRef, Meta(description="a patch step's id, or `all`")] = ALL

    def plan(self) -> list[str]:
        """What it would give back."""
        return ["restore every file that this run patched" if self.patch == ALL else f"restore the file that `{self.patch}` patched"]

    def run(self, ctx: StepContext) -> StepResult:
        """Ask the helper, settle what is back, name what is not."""
        patches = [patch for patch in ctx.patches() if self.patch in (ALL, patch.step)]
        if not patches:
            return StepResult(verdict="passed", reason="nothing to restore", fields=_fields([]))
        if ctx.check_mode:
            return StepResult(verdict="passed", reason=f"would restore {', '.join(patch.path for patch in patches)}", fields=_fields([]))
        with ctx.action("restore", ids=[patch.record.id for patch in patches]) as done:
            runs = dict.fromkeys(patch.record.run for patch in reversed(patches))
            ids = {run: [patch.record.id for patch in patches if patch.record.run == run] for run in runs}
            reports = tuple(report for run in runs for report in ctx.host.restore(run, ids[run]))
            done(states=[report.state for report in reports])
        left = _settle(ctx, patches, reports)
        return StepResult(verdict="failed" if left else "passed", reason=_reason(reports, left), fields=_fields(reports, patches))


def _settle(ctx: StepContext, patches: Sequence[Patched], reports: Sequence[RestoreReport]) -> list[str]:
    """Settle the debt of each file that is back; answers a sentence for each that is not."""
    by_id = {report.id: report for report in reports}
    left = []
    for patch in patches:
        report = by_id.get(patch.record.id)
        if report is None:
            left.append(f"{patch.path}: the host has no undo record `{patch.record.id}`")
        elif report.state in UNDONE:
            ctx.settle(f"patch:{patch.step}:{ctx.host.name}", report.state)
        else:
            left.append(f"{not_undone(report)}; left alone; the original lies in {patch.record.folder}")
    return left


def _fields(reports: Sequence[RestoreReport], patches: Sequence[Patched] = ()) -> dict[str, Any]:
    hashes = {patch.record.id: (patch.record.sha256_before, patch.record.sha256_after) for patch in patches}

    def conflict(report: RestoreReport) -> dict[str, Any]:
        before, after = hashes.get(report.id, ("", ""))
        told = {"path": report.path, "state": report.state, "note": report.note}
        return {**told, "sha_before": before, "sha_patched": after, "sha_now": report.sha256_now}

    return {
        "restored": [report.path for report in reports if report.state == "restored"],
        "already": [report.path for report in reports if report.state == "already"],
        "conflicts": [conflict(report) for report in reports if report.state not in UNDONE],
    }


def _reason(reports: Sequence[RestoreReport], left: list[str]) -> str:
    if left:
        return "; ".join(left)
    return "; ".join(f"{report.path} {_told(report)}" for report in reports)


def _told(report: RestoreReport) -> str:
    what = {"restored": "restored", "already": "had its original bytes already", "gone": "was given up"}[report.state]
    return what + (f" ({report.note})" if report.note and report.state != "already" else "")
