"""The lab's `nvidia-smi`: two GPUs whose memory is what the lab's living processes say they hold, in `gpus/` of its home.

Installed as a script in the lab's bin/; stdlib and the engine's `gpu` module only. Knows the query forms that tools use, the list
and the table; utilisation is 100 while a forward pass ran within the last second.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

NAME = "NVIDIA H200 (lab)"
DRIVER = "570.00.00"
MIB = 1 << 20
Row = dict[str, Any]
BUSY_S = 1.0


def gpus(engine: Any, folder: Path, now: float) -> list[Row]:
    """One row per GPU; `apps` are the processes on it."""
    entries = engine.entries(folder)
    rows = []
    for index in range(engine.COUNT):
        apps = [entry for entry in entries if entry["gpu"] == index]
        rows.append(
            {
                "index": index,
                "apps": apps,
                "used": sum(app["bytes"] for app in apps),
                "total": engine.TOTAL,
                "busy": _busy(folder, apps, now),
            }
        )
    return rows


def _busy(folder: Path, apps: Sequence[Row], now: float) -> bool:
    def touched(app: Row) -> float:
        try:
            return (folder / f"{app['pid']}.json").stat().st_mtime
        except OSError:
            return 0.0  # it ended between two looks

    return any(now - touched(app) < BUSY_S for app in apps)


def uuid(index: int) -> str:
    """Stable names of the two GPUs."""
    return f"GPU-1ab00000-0000-4000-8000-{index:012d}"


Field = tuple[Callable[[Row], Any], str]
"""How to read a field from a row, and its unit."""

GPU_FIELDS: dict[str, Field] = {
    "index": (lambda g: g["index"], ""),
    "count": (lambda g: g["count"], ""),
    "uuid": (lambda g: uuid(g["index"]), ""),
    "gpu_uuid": (lambda g: uuid(g["index"]), ""),
    "name": (lambda g: NAME, ""),
    "gpu_name": (lambda g: NAME, ""),
    "driver_version": (lambda g: DRIVER, ""),
    "pci.bus_id": (lambda g: f"00000000:{g['index'] + 1:02X}:00.0", ""),
    "memory.used": (lambda g: g["used"] // MIB, "MiB"),
    "memory.free": (lambda g: (g["total"] - g["used"]) // MIB, "MiB"),
    "memory.total": (lambda g: g["total"] // MIB, "MiB"),
    "utilization.gpu": (lambda g: 100 if g["busy"] else 0, "%"),
    "utilization.memory": (lambda g: "[N/A]", "%"),
    "temperature.gpu": (lambda g: "[N/A]", ""),
    "power.draw": (lambda g: "[N/A]", "W"),
    "power.limit": (lambda g: "[N/A]", "W"),
    "clocks_throttle_reasons.active": (lambda g: "0x0000000000000000" if g["busy"] else "0x0000000000000001", ""),
    "mig.mode.current": (lambda g: "Disabled", ""),
    "ecc.errors.uncorrected.volatile.total": (lambda g: 0, ""),
}
APP_FIELDS: dict[str, Field] = {
    "gpu_uuid": (lambda a: uuid(a["gpu"]), ""),
    "gpu_name": (lambda a: NAME, ""),
    "pid": (lambda a: a["pid"], ""),
    "process_name": (lambda a: _program(a["pid"]), ""),
    "name": (lambda a: _program(a["pid"]), ""),
    "used_memory": (lambda a: a["bytes"] // MIB, "MiB"),
    "used_gpu_memory": (lambda a: a["bytes"] // MIB, "MiB"),
}


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")[0].decode(errors="replace") or "[Not Found]"
    except OSError:
        return "[Not Found]"


def query(rows: Sequence[Row], fields: Sequence[str], table: dict[str, Field], style: Sequence[str]) -> str:
    """Rows as csv; KeyError names a field that does not exist."""
    chosen = [(name, *table[name]) for name in fields]
    lines = [] if "noheader" in style else [", ".join(f"{name} [{unit}]" if unit else name for name, _, unit in chosen)]
    for row in rows:
        values = [(read(row), unit if "nounits" not in style else "") for _, read, unit in chosen]
        lines.append(", ".join(f"{value} {unit}" if unit and value != "[N/A]" else str(value) for value, unit in values))
    return "".join(f"{line}\n" for line in lines)


def listing(rows: Sequence[Row]) -> str:
    """As `nvidia-smi -L`."""
    return "".join(f"GPU {row['index']}: {NAME} (UUID: {uuid(row['index'])})\n" for row in rows)


def table(rows: Sequence[Row]) -> str:
    """For people."""
    rule = "+" + "-" * 77 + "+"

    def line(text: str) -> str:
        return f"| {text:<75} |"

    lines = [rule, line(f"NVIDIA-SMI (lab stand-in)   Driver Version: {DRIVER}"), rule]
    for row in rows:
        memory = f"{row['used'] // MIB:>6}MiB / {row['total'] // MIB}MiB"
        lines.append(line(f"{row['index']}  {NAME:<24} {memory:<24} {100 if row['busy'] else 0:>3}%"))
    lines += [rule, line("Processes:   GPU       PID   Process name                       GPU Memory"), rule]
    apps = [app for row in rows for app in row["apps"]]
    for app in apps:
        memory = f"{app['bytes'] // MIB:>8}MiB"
        lines.append(line(f"             {app['gpu']:>3}  {app['pid']:>8}   {_program(app['pid']):<32} {memory}"))
    lines += [] if apps else [line("No running processes found")]
    return "\n".join([*lines, rule]) + "\n"


def answer(argv: Sequence[str], engine: Any, folder: Path, now: float) -> tuple[int, str]:
    """Exit status and text for a command line."""
    parser = argparse.ArgumentParser(prog="nvidia-smi", allow_abbrev=False)
    parser.add_argument("--query-gpu", default="")
    parser.add_argument("--query-compute-apps", default="")
    parser.add_argument("--format", default="csv")
    parser.add_argument("-i", "--id", default="")
    parser.add_argument("-L", "--list-gpus", action="store_true")
    args = parser.parse_args(argv)
    rows = gpus(engine, folder, now)
    if args.id:
        rows = [row for row in rows if {str(row["index"]), uuid(row["index"])} & set(args.id.split(","))]
        if not rows:
            return 6, "No devices were found\n"
    for row in rows:
        row["count"] = engine.COUNT
    style = args.format.split(",")
    try:
        if args.query_gpu:
            return 0, query(rows, _names(args.query_gpu), GPU_FIELDS, style)
        if args.query_compute_apps:
            return 0, query([app for row in rows for app in row["apps"]], _names(args.query_compute_apps), APP_FIELDS, style)
    except KeyError as error:
        return 2, f'Field "{error.args[0]}" is not a valid field to query.\n'
    return 0, listing(rows) if args.list_gpus else table(rows)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def main() -> int:
    """Run as <home>/bin/smi.py."""
    home = Path(__file__).resolve().parents[1]
    sys.path.insert(0, str(home))
    from lab_engine import gpu  # type: ignore[import-not-found]

    status, text = answer(sys.argv[1:], gpu, home / "gpus", time.time())
    sys.stdout.write(text)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
