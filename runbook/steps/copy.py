"""copy: a local file to the host, atomically and only when it differs."""

from __future__ import annotations

import difflib
import hashlib
import stat
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from runbook.hosts.base import RemoteError
from runbook.model.units import Size, format_size
from runbook.steps.base import Step, StepContext, StepResult

LONGEST_TEXT = 64 * 2**10
"""Bytes of a text whose change is shown."""


class Copy(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Copy a local file to the host: written beside its place, synced, renamed; skipped when equal."""

    TYPE: ClassVar[str] = "copy"
    TIMEOUT: ClassVar[str] = "30m"
    RESUME: ClassVar[str] = "unknown"
    RESULTS: ClassVar[dict[str, str]] = {
        "path": "where it lies on the host",
        "sha256": "of the file",
        "bytes": "its size",
        "changed": "false when the host had it already",
        "diff": "with `--diff`: the change of a text; empty for what is none, or too long to read",
    }
    EXAMPLE: ClassVar[str] = "copy: {from: prompts.jsonl, to: /tmp/prompts.jsonl}"

    from_: Annotated[str, Meta(description="local file; relative paths count from the working directory")] = msgspec.field(name="from")
    to: Annotated[str, Meta(description="absolute path on the host")]
    mode: Annotated[
        Annotated[str, Meta(pattern="^0?[0-7]{3}$")] | None, Meta(description="octal, as in '0644'; the local file's when left out")
    ] = None
    max: Annotated[Size, Meta(description="refuse a larger file")] = Size(256 * 2**20)

    @classmethod
    def disturbs(cls, body: dict[str, Any]) -> str:
        """What others on the host would notice."""
        return "writes a file"

    def plan(self) -> list[str]:
        """One line."""
        return [f"copy {self.from_} to {self.to}, if it differs"]

    def run(self, ctx: StepContext) -> StepResult:
        """Compare, then write."""
        source = Path(self.from_).expanduser()
        try:
            found = source.stat()
            if not stat.S_ISREG(found.st_mode):
                return StepResult(verdict="failed", reason=f"{source} is no regular file: name the file itself")
            size = found.st_size
            if size > self.max:
                return StepResult(verdict="failed", reason=f"{source} has {format_size(size)}, more than `max: {self.max}`")
            data = source.read_bytes()
        except OSError as problem:
            return StepResult(verdict="failed", reason=f"cannot read {source}: {problem.strerror}")
        wanted = hashlib.sha256(data).hexdigest()
        fields = {"path": self.to, "sha256": wanted, "bytes": len(data), "changed": False, "diff": ""}
        if self._there(ctx) == wanted:
            return StepResult(verdict="passed", reason="the host has it already", fields=fields)
        if ctx.diff:
            fields["diff"] = self._diff(ctx, data)
        if ctx.check_mode:
            return StepResult(verdict="passed", reason=f"would {self.plan()[0]}", fields={"diff": fields["diff"]})
        mode = int(self.mode, 8) if self.mode else source.stat().st_mode & 0o777
        try:
            with ctx.action("copy", path=self.to, bytes=len(data)):
                ctx.host.write(self.to, data, mode)
        except RemoteError as problem:
            return StepResult(verdict="failed", reason=problem.summary)
        if self._there(ctx) != wanted:
            return StepResult(verdict="failed", reason=f"{self.to} does not have the bytes that were sent")
        return StepResult(verdict="passed", reason=f"{format_size(len(data))} written", fields={**fields, "changed": True})

    def _diff(self, ctx: StepContext, data: bytes) -> str:
        try:
            before = ctx.host.read(self.to, 0, LONGEST_TEXT + 1).data
        except RemoteError:
            before = b""  # no such file yet; for anything else the copy itself says what is wrong
        if max(len(before), len(data)) > LONGEST_TEXT:
            return ""
        try:
            old, new = (text.decode().splitlines(keepends=True) for text in (before, data))
        except UnicodeDecodeError:
            return ""
        lines = difflib.unified_diff(old, new, f"a{self.to}", f"b{self.to}")
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    def _there(self, ctx: StepContext) -> str | None:
        try:
            return str(ctx.host.hash(self.to)["sha256"])
        except RemoteError as problem:
            if problem.code == "not_found":
                return None
            raise
