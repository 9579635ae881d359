"""A server's evidence bundle, from the host into the run's folder: its files, and an index that says what is missing and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from runbook.hosts.base import Host, Taken
from runbook.model.units import format_size
from runbook.steps.base import Launched

ITEMS = (
    "stacks", "processes", "gpu", "kernel", "log", "sockets", "shared_memory", "disk", "packages", "environment", "flight_recorder", "ras",
)  # fmt: skip
"""All items, in the order of the index."""
OF_THE_HOST = ("gpu", "kernel", "shared_memory", "disk")
"""Items that need no server."""
LIMIT_S = 20.0
Save = Callable[[str, bytes, str], str]
"""Saves a file among the run's evidence: name, content, what it is; answers its path in the run folder."""


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken. `files`: item, file (in the run folder), bytes; `index`: item, status, reason, seconds of each item."""

    files: list[dict[str, Any]] = []
    index: list[dict[str, Any]] = []

    def summary(self) -> str:
        """One line: how much there is, and what could not be had; what is simply not there is not a loss."""
        taken = sum(row["status"] == "taken" for row in self.index)
        size = format_size(sum(row["bytes"] for row in self.files if row["item"] != "index"))
        lost = [row["item"] for row in self.index if row["status"] not in ("taken", "absent")]
        return f"{taken} of {len(self.index)} items, {size}" + (f"; not taken: {', '.join(lost)}" if lost else "")


def spec_of(launched: Launched, run: str) -> dict[str, Any]:
    """How the host is told which server is meant."""
    state = launched.state
    return {
        "run": run if launched.run is None else launched.run,
        "server": state.id,
        "pid": state.pid,
        "start": state.start,
        "log": state.log,
        "log_offset": state.log_offset,
        "interpreter": state.interpreter,
    }


def take(
    host: Host, launched: Launched | None, run: str, save: Save, *, what: Sequence[str] = ITEMS, limit_s: float = LIMIT_S, prefix: str = ""
) -> Bundle:
    """Take it and write it down. Without a server: what belongs to the host. Raises Unreachable; all else is told in the index."""
    wanted = [item for item in ITEMS if item in what and (launched is not None or item in OF_THE_HOST)]
    taken = host.collect(spec_of(launched, run) if launched else {}, wanted, limit_s)
    return write(taken, save, prefix, _about(host, launched))


def _about(host: Host, launched: Launched | None) -> dict[str, Any]:
    who = {"server": launched.step, "pid": launched.state.pid, "start": launched.state.start} if launched else {}
    return {"host": host.name, **who}


def write(taken: Taken, save: Save, prefix: str, about: dict[str, Any]) -> Bundle:
    """Every file, then the index of them."""
    order = {item: at for at, item in enumerate(ITEMS)}
    files = []
    for file in sorted(taken.files, key=lambda file: order.get(file.item, len(order))):
        path = save(prefix + file.name, file.data, f"evidence of `{about.get('server', about['host'])}`: {file.item.replace('_', ' ')}")
        files.append({"item": file.item, "file": path, "bytes": len(file.data)})
    rows = sorted(taken.items, key=lambda item: order.get(item.item, len(order)))
    index = [{**msgspec.to_builtins(item), "files": [row["file"] for row in files if row["item"] == item.item]} for item in rows]
    document = msgspec.json.format(msgspec.json.encode({**about, "items": index}), indent=1)
    bundle = Bundle(files=files, index=index)
    path = save(prefix + "index.json", document + b"\n", f"evidence bundle: {bundle.summary()}")
    return Bundle(files=[*files, {"item": "index", "file": path, "bytes": len(document) + 1}], index=index)
