"""What looking at a server costs its host: 8 processes of 121 threads, cheap and full looks, CPU time and bytes.

    python tests/benchmarks/sampler_cost.py [--processes 8] [--threads 121] [--busy 2] [--rounds 6] [--few-threads]

The processes are real: each maps a weight file, reads another, holds pipes and a TCP connection to each of its siblings; `--busy` of its
threads wake up a hundred times a second, the others wait. Prints a table and whether it keeps to the figures; answers 1 when it does not.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from runbook.onhost import frames, procs, sampler

SERVER = r"""
import mmap, os, socket, sys, threading, time
folder, processes, threads, busy = sys.argv[1], *map(int, sys.argv[2:])
listener = socket.create_server(("127.0.0.1", 0))
children = [pid for pid in (os.fork() for _ in range(0))]
rank = 0
for number in range(1, processes):
    if os.fork() == 0:
        rank = number
        break
shard = open(os.path.join(folder, "model.safetensors"), "rb")
mapped = mmap.mmap(shard.fileno(), 0, access=mmap.ACCESS_READ)
data = open(os.path.join(folder, "data.bin"), "rb", 0)
ends = [os.pipe() for _ in range(4)]
peers = [socket.create_connection(listener.getsockname()) for _ in range(processes)]
stop = threading.Event()

def poll():
    while True:
        time.sleep(0.01)

for number in range(threads - 1):
    threading.Thread(target=poll if number < busy - 1 else stop.wait, daemon=True).start()
if rank == processes - 1:
    print("up", flush=True)
at = 0
while True:
    time.sleep(0.01)
    data.seek(at % (1 << 20))
    data.read(4096)
    at += 4096
    mapped[at % len(mapped)]
"""
CHEAP_MS, FULL_MS, CORE_PERCENT, TICK_BYTES = 10.0, 50.0, 1.0, 3072
CHEAP_EVERY_S, CHEAP_PER_FULL = 2.0, 4


class Watch:
    """One server looked at as a wait does, over one chain of looks for each kind."""

    def __init__(self, folder: str, pid: int, threads: bool) -> None:
        self._ctx: Any = SimpleNamespace(state_dir=folder, scope=None)
        self._args = {"pid": pid, "start": procs.start_ticks(pid), "folders": [folder], "threads": threads}
        self._has: dict[str, int] = {}

    def look(self, kind: str) -> tuple[float, int]:
        """(CPU milliseconds, bytes on the wire) of one look."""
        began = time.process_time()
        args = dict(
            self._args, chain=kind, has=self._has.get(kind, 0), full=kind == "full", threads=kind == "full" or self._args["threads"]
        )
        answer, blob = sampler.sample(self._ctx, args, b"")
        data = frames.encode({"id": 1, "ok": answer}, blob)
        spent = 1000 * (time.process_time() - began)
        self._has[kind] = answer["number"]
        return spent, len(data)


@contextmanager
def server(folder: str, processes: int, threads: int, busy: int) -> Iterator[int]:
    """The processes; answers the pid of the first."""
    (Path(folder) / "model.safetensors").write_bytes(bytes(64 << 20))
    (Path(folder) / "data.bin").write_bytes(bytes(2 << 20))
    argv = [sys.executable, "-c", SERVER, folder, *map(str, (processes, threads, busy))]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"up\n"
            yield process.pid
        finally:
            for stat in procs.process_table().values():
                if stat.sid == process.pid:
                    os.kill(stat.pid, signal.SIGKILL)


def measure(watch: Watch, rounds: int) -> dict[str, list[tuple[float, int]]]:
    """Costs of each kind of look, made as often as a wait makes them; the first of each, which brings everything, apart."""
    found: dict[str, list[tuple[float, int]]] = {
        "first cheap": [watch.look("cheap")],
        "first full": [watch.look("full")],
        "cheap": [],
        "full": [],
    }
    for _ in range(rounds):
        for kind in ["cheap"] * CHEAP_PER_FULL + ["full"]:
            time.sleep(CHEAP_EVERY_S)
            found[kind].append(watch.look(kind))
    return found


def main() -> int:
    """Print the table; answers 1 when a figure is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("processes", 8), ("threads", 121), ("busy", 2), ("rounds", 6)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--few-threads", action="store_true", help="read threads at full looks only")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, server(folder, given.processes, given.threads, given.busy) as pid:
        found = measure(Watch(folder, pid, not given.few_threads), given.rounds)
    for kind, rows in found.items():
        ms, size = [row[0] for row in rows], [row[1] for row in rows]
        line = f"{kind:12} n {len(rows):3}  median {statistics.median(ms):6.1f} ms  max {max(ms):6.1f} ms  mean {statistics.mean(size):8.0f} bytes"
        sys.stdout.write(line + "\n")
    ticks = found["cheap"] + found["full"]
    core = sum(row[0] for row in ticks) / (10 * CHEAP_EVERY_S * len(ticks))
    size = statistics.mean(row[1] for row in ticks)
    figures = [
        ("cheap, ms", statistics.median(row[0] for row in found["cheap"]), CHEAP_MS),
        ("full, ms", statistics.median(row[0] for row in found["full"]), FULL_MS),
        ("of one core, %", core, CORE_PERCENT),
        ("bytes a tick", size, TICK_BYTES),
    ]
    for name, value, limit in figures:
        sys.stdout.write(f"{'ok  ' if value <= limit else 'MISS'} {name:16} {value:8.2f}  limit {limit:g}\n")
    return 0 if all(value <= limit for _, value, limit in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
