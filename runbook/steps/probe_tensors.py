"""Tensors that probes saved on the host, into the run's evidence: whole files, bounded in all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from runbook.hosts.base import RemoteError
from runbook.model.units import format_size
from runbook.probes.reading import Hit
from runbook.steps.base import StepContext

PIECE = 4 << 20


def fetch_tensors(ctx: StepContext, hits: Sequence[Hit], most: int) -> list[dict[str, Any]]:
    """One mapping a tensor: name, file (in the run folder; null when it was not fetched), on_host, shape, dtype, bytes, probe, pid, rank,
    seq, and `note` with the reason where something is missing."""
    rows, files, used = [], {}, 0
    for hit in hits:
        for saved in hit.saved:
            path = saved.get("file")
            row = {"name": saved.get("name"), "file": None, "on_host": path, **{key: saved.get(key) for key in ("shape", "dtype", "bytes")}}
            row.update(probe=hit.probe, pid=hit.pid, rank=hit.rank, seq=hit.seq)
            if path is None:
                row["note"] = saved.get("error", "not saved")
            else:
                if path not in files:
                    files[path] = _fetch(ctx, path, most - used)
                    used += files[path][2]
                row["file"], row["note"], _ = files[path]
            rows.append({key: value for key, value in row.items() if key != "note" or value})
    return rows


def _fetch(ctx: StepContext, path: str, room: int) -> tuple[str | None, str, int]:
    """(file in the run folder, why there is none, bytes)."""
    data = b""
    try:
        while True:
            piece = ctx.host.read(path, len(data), PIECE)
            if piece.size > room:
                return None, f"not fetched: {format_size(piece.size)} would be more than `fetch:` allows in all", 0
            data += piece.data
            if not piece.data or len(data) >= piece.size:
                break
    except RemoteError as problem:
        return None, f"not fetched: {problem.summary}", 0
    name = f"{re.sub(r'[^A-Za-z0-9._-]', '_', ctx.host.name)}-{path.rsplit('/', 1)[-1]}"  # several hosts may have the same pid
    return ctx.evidence(name, data, f"tensors of {path}"), "", len(data)
