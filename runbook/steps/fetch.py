"""fetch: files of the host into the run's folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Union

from msgspec import Meta

from runbook.hosts.base import RemoteError
from runbook.model.units import Size, format_size
from runbook.steps.base import Step, StepContext, StepResult

PIECE = 4 * 2**20
SAY_ABOVE = 64 * 2**20


class Fetch(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fetch files from the host into the run's evidence/, hash-checked. A pattern that matches nothing is a failure."""

    TYPE: ClassVar[str] = "fetch"
    SHORTHAND: ClassVar[str | None] = "path"
    TIMEOUT: ClassVar[str] = "30m"
    RESULTS: ClassVar[dict[str, str]] = {"files": "path, file (in the run folder), bytes, sha256 and cut of each"}
    EXAMPLE: ClassVar[str] = "fetch: {path: /tmp/trace-*.json, max: 64MiB}"

    path: Annotated[Union[str, list[str]], Meta(description="absolute path or glob pattern, or a list of them")]
    max: Annotated[Size, Meta(description="refuse a larger file, unless `head` or `tail` cut it")] = Size(256 * 2**20)
    head: Annotated[Size | None, Meta(description="only this much from the beginning")] = None
    tail: Annotated[Size | None, Meta(description="only this much from the end")] = None

    def problems(self) -> list[tuple[str, str, str]]:
        """One cut, not two."""
        return [("tail", "`head` and `tail` exclude each other", "keep one of them")] if self.head and self.tail else []

    def plan(self) -> list[str]:
        """One line a pattern."""
        return [f"fetch {pattern}" for pattern in self._patterns()]

    def _patterns(self) -> list[str]:
        return self.path if isinstance(self.path, list) else [self.path]

    def run(self, ctx: StepContext) -> StepResult:
        """Each pattern, each file."""
        files: list[dict[str, Any]] = []
        for pattern in self._patterns():
            paths = ctx.host.glob(pattern)
            if not paths:
                return StepResult(verdict="failed", reason=f"`{pattern}` matches no file on {ctx.host.name}", fields={"files": files})
            for path in paths:
                try:
                    files.append(self._fetch(ctx, path, len(files)))
                except (RemoteError, _TooLarge) as problem:
                    return StepResult(verdict="failed", reason=str(problem), fields={"files": files})
        total = format_size(sum(row["bytes"] for row in files))
        return StepResult(verdict="passed", reason=f"{len(files)} files, {total}", fields={"files": files})

    def _fetch(self, ctx: StepContext, path: str, index: int) -> dict[str, Any]:
        told = ctx.host.hash(path)
        size = int(told["size"])
        cut = self.head or self.tail
        wanted = min(size, cut) if cut else size
        if wanted > self.max:
            raise _TooLarge(f"{path} has {format_size(size)}, more than `max: {self.max}`; raise it or use `tail:`")
        taking = _Taking(ctx, path, size - wanted if self.tail else 0, wanted)
        file = ctx.evidence(f"{index:02d}-{path.rsplit('/', 1)[-1]}", taking.pieces(), path)
        digest = taking.digest.hexdigest()
        if not cut and digest != told["sha256"]:
            ctx.find("changed_while_fetched", f"{path} changed while it was fetched: the copy may mix two states")
        return {"path": path, "file": file, "bytes": taking.bytes, "sha256": digest, "cut": wanted != size}


class _Taking:
    """A file on its way here, never more than a piece of it in memory."""

    def __init__(self, ctx: StepContext, path: str, begin: int, wanted: int) -> None:
        self._ctx, self._path, self._begin, self._wanted = ctx, path, begin, wanted
        self.digest = hashlib.sha256()
        self.bytes = 0

    def pieces(self) -> Iterator[bytes]:
        """Its bytes, in order; less than wanted where it became shorter meanwhile."""
        while self.bytes < self._wanted:
            piece = self._ctx.host.read(self._path, self._begin + self.bytes, min(PIECE, self._wanted - self.bytes)).data
            if not piece:
                return
            self.digest.update(piece)
            self.bytes += len(piece)
            if self._wanted > SAY_ABOVE:
                self._ctx.progress(f"fetched {format_size(self.bytes)} of {format_size(self._wanted)} of {self._path}")
            yield piece


class _TooLarge(Exception):
    """A file over the step's limit."""
