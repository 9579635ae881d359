"""What a probe costs a call while its bucket is empty: patched and plain function in turn, the difference of each pair counts.

    python tests/benchmarks/probe_overhead.py [--pairs 41] [--calls 20000]

Prints the median and the quartiles in microseconds of CPU time, and whether they keep to 1 µs. The function is small, so that the cost
of a call is not hidden in it; `first hit` is what a hit that is written costs, for comparison.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parents[2]))

from runbook.model.units import Rate
from runbook.probes.spec import Probe
from runbook.probes.transform import Transformed, transform

SOURCE = b"def f(x):\n    y = x + 1\n    return y\n"
TARGET_US = 1.0
HITS = Rate("1 per 1h")
KINDS = {
    "entry": {"where": "entry"},
    "after, two values": {"after": "y = x + 1", "show": ["x", "y"]},
    "after, with when": {"after": "y = x + 1", "show": ["x", "y"], "when": "y > 0"},
    "after, with save": {"after": "y = x + 1", "show": ["x"], "save": ["y"]},
    "exit": {"where": "exit"},
    "exit, two values and when": {"where": "exit", "show": ["result", "x"], "when": "error is None"},
}
_NUMBER = itertools.count()


def load(data: bytes, folder: Path) -> ModuleType:
    """The module of these bytes."""
    path = folder / f"m{next(_NUMBER)}.py"
    path.write_bytes(data)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def patched(kind: dict[str, object], folder: Path) -> ModuleType:
    """The function with one probe."""
    side = folder / f"side{next(_NUMBER)}.jsonl"
    side.touch()
    probe = Probe(at="f", hits=HITS, **kind)  # type: ignore[arg-type]
    made = transform(SOURCE, [probe], marker="bench/p/1", side_file=str(side), path="m.py", run="bench")
    assert isinstance(made, Transformed), made
    return load(made.data, folder)


def seconds(call: Callable[[int], int], calls: int) -> float:
    """CPU time of this thread for so many calls."""
    numbers = range(calls)
    began = time.thread_time()
    for n in numbers:
        call(n)
    return time.thread_time() - began


def measure(name: str, kind: dict[str, object], folder: Path, pairs: int, calls: int) -> bool:
    """One line of the table; whether the target was kept."""
    plain, probed = load(SOURCE, folder).f, patched(kind, folder).f
    first = seconds(probed, 1) - seconds(plain, 1)
    for n in range(50):
        probed(n)
    costs = [1e6 * (seconds(probed, calls) - seconds(plain, calls)) / calls for _ in range(pairs)]
    low, middle, high = statistics.quantiles(costs, n=4)
    kept = middle <= TARGET_US
    line = f"{'ok  ' if kept else 'MISS'} {name:<28}{middle:6.3f} µs [{low:.3f} .. {high:.3f}]   first hit {1e6 * first:.0f} µs"
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    return kept


def main() -> int:
    """Print the table; answers 1 when a median is above the target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=41)
    parser.add_argument("--calls", type=int, default=20_000)
    given = parser.parse_args()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the probes' own lines
    sys.stdout.write(f"cost of a probe a call, bucket empty; {given.pairs} pairs of {given.calls} calls, Python {sys.version.split()[0]}\n")
    with tempfile.TemporaryDirectory() as folder:
        kept = [measure(name, kind, Path(folder), given.pairs, given.calls) for name, kind in KINDS.items()]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
