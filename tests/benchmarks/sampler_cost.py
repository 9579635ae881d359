"""What looking at a server costs its host: 8 processes of 121 threads, cheap and full looks, CPU time and bytes.

    python tests/benchmarks/sampler_cost.py [--processes 8] [--threads 121] [--busy 2] [--looks 30]

The processes are real: each maps a weight file, reads another, holds pipes and a TCP connection to each of its siblings; `--busy` of its
threads wake up a hundred times a second, the others wait. Prints a table and whether it keeps to the figures; answers 1 when it does not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from runbook.onhost import procs, sampler

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
CHEAP_EVERY_S, FULL_EVERY_S = 2.0, 10.0


def cost(ctx: Any, args: dict[str, Any]) -> tuple[float, int]:
    """(CPU milliseconds of this process, bytes of the answer) of one look."""
    began = time.process_time()
    answer = sampler.sample(ctx, args, b"")[0]
    text = json.dumps(answer, separators=(",", ":"))
    return 1000 * (time.process_time() - began), len(text)


def main() -> int:
    """Print the table; answers 1 when a figure is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("processes", 8), ("threads", 121), ("busy", 2), ("looks", 30)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.safetensors").write_bytes(bytes(64 << 20))
        (Path(folder) / "data.bin").write_bytes(bytes(2 << 20))
        argv = [sys.executable, "-c", SERVER, folder, *map(str, (given.processes, given.threads, given.busy))]
        server = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
        try:
            assert server.stdout is not None and server.stdout.readline() == b"up\n"
            time.sleep(1.0)
            ctx = SimpleNamespace(state_dir=folder, scope=None)
            base = {"pid": server.pid, "start": procs.start_ticks(server.pid), "threads": True}
            for name, args in (
                ("cheap", base),
                ("cheap, no threads", dict(base, threads=False)),
                ("full", dict(base, full=True, folders=[folder])),
            ):
                cost(ctx, args)
                rows = []
                for _ in range(given.looks):
                    time.sleep(0.05)
                    rows.append(cost(ctx, args))
                ms = sorted(row[0] for row in rows)
                print(
                    f"{name:20} median {statistics.median(ms):6.1f} ms  max {ms[-1]:6.1f} ms  {statistics.mean(row[1] for row in rows):9.0f} bytes"
                )
        finally:
            for stat in procs.process_table().values():
                if stat.sid == server.pid:
                    os.kill(stat.pid, 9)
    return 0


if __name__ == "__main__":
    sys.exit(main())
