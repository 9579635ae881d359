"""Ratios of runbook to its peers, from alternating pairs in one run: `make bench`, or bench.py --only step,help --pairs 3.

Absolute times depend on the machine and its load; a ratio of two measurements taken one after the other hardly does. Each line
gives the median of the ratios and their quartiles.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.peers import BIN, ROOT, Bench, install_peers
from tests.support.relay import Relay
from tests.support.sshd import Sshd

OUR_STEPS, PEER_STEPS = 200, 50  # per step = (T(n + 1) - T(1)) / n; more of ours, since they are short against the noise of a start
DEMO = ROOT / "playbooks" / "eagle3_fusion.yaml"
Measure = Callable[[], float]
Result = dict[str, object]


def pairs(name: str, ours: Measure, peer: Measure, target: float, count: int) -> Result:
    """Measure both in turn, `count` times; the ratio of each pair counts."""
    mine: list[float] = []
    theirs: list[float] = []
    for _ in range(count):
        mine.append(ours())
        theirs.append(peer())
    ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4) if count > 1 else ratios * 3
    result = {
        "name": name,
        "ratio": statistics.median(ratios),
        "quartiles": [low, high],
        "pairs": count,
        "ours_ms": 1000 * statistics.median(mine),
        "peer_ms": 1000 * statistics.median(theirs),
        "target": target,
    }
    show(result, f"{result['ours_ms']:9.1f} ms {result['peer_ms']:9.1f} ms")
    return result


def show(result: Result, detail: str) -> None:
    """One line of the table."""
    value, target = float(result["ratio"]), float(result["target"])  # type: ignore[arg-type]
    low, high = result.get("quartiles", (value, value))  # type: ignore[misc]
    verdict = "ok  " if value <= target else "MISS"
    sys.stdout.write(f"{verdict} {result['name']:<46} {value:8.3f} [{low:.3f} .. {high:.3f}]  target {target:<6.3g} {detail}\n")
    sys.stdout.flush()


def per_step(run: Callable[[int], float], steps: int) -> Measure:
    """Seconds per step of a tool that is measured by whole processes."""
    return lambda: max(1e-6, (run(steps + 1) - run(1)) / steps)


def step(bench: Bench, count: int) -> list[Result]:
    """One `true` over SSH, engine and journal included."""
    ours = per_step(bench.runbook, OUR_STEPS)
    return [
        pairs("step / stock Fabric run", ours, lambda: bench.fabric_step(PEER_STEPS), 1 / 8, count),
        pairs("step / pyinfra server.shell", ours, per_step(bench.pyinfra, PEER_STEPS), 1 / 8, count),
        pairs("step / ansible command", ours, per_step(bench.ansible, PEER_STEPS), 1 / 50, count),
    ]


def process(bench: Bench, count: int) -> list[Result]:
    """A whole process: start, connect, one step, end."""
    return [
        pairs("process / pyinfra", lambda: bench.runbook(1), lambda: bench.pyinfra(1), 0.7, count),
        pairs("process / ansible-playbook", lambda: bench.runbook(1), lambda: bench.ansible(1), 0.4, count),
    ]


def validate(bench: Bench, count: int) -> list[Result]:
    """Checking 20 steps."""
    return [pairs("validate / ansible-playbook --syntax-check", bench.validate, bench.syntax_check, 1 / 4, count)]


def help_(bench: Bench, count: int) -> list[Result]:
    """Showing the help."""
    return [pairs("--help / bare click", bench.help, bench.bare_click, 1.5, count)]


def round_trips(bench: Bench, count: int) -> list[Result]:
    """Round trips of one step, counted on the wire by a relay."""
    relay = Relay(bench.server.host, bench.server.port).start()
    try:
        counted = Bench(bench.folder, bench.server, relay.listen_port)
        trips = {}
        for steps in (1, PEER_STEPS + 1):
            relay.reset_counts()
            counted.runbook(steps)
            trips[steps] = relay.round_trips
    finally:
        relay.close()
        Bench(bench.folder, bench.server, bench.server.port)
    result: Result = {"name": "round trips per step", "ratio": (trips[PEER_STEPS + 1] - trips[1]) / PEER_STEPS, "target": 1.3}
    show(result, "counted on the wire")
    return [result]


def memory(bench: Bench, count: int) -> list[Result]:
    """Peak resident memory of the controller's process on the demo, MB."""
    peaks: list[float] = []
    for _ in range(min(count, 2)):
        child = subprocess.Popen([BIN / "runbook", "run", DEMO], env={**bench.env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        peak_kib = 0
        while child.poll() is None:
            try:
                status = Path(f"/proc/{child.pid}/status").read_text()
            except OSError:
                break
            peak_kib = max([peak_kib, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))])
            time.sleep(0.02)
        if child.wait() != 0:
            raise RuntimeError(f"the demo exited {child.returncode}")
        peaks.append(peak_kib * 1024 / 1e6)
    result: Result = {"name": "controller memory on the demo, MB", "ratio": max(peaks), "target": 80}
    show(result, "peak resident")
    return [result]


GROUPS: dict[str, Callable[[Bench, int], list[Result]]] = {
    "step": step,
    "process": process,
    "validate": validate,
    "help": help_,
    "trips": round_trips,
    "memory": memory,
}


def main() -> int:
    """Run the groups that were asked for; exit 1 when a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, separated by commas: %(default)s")
    parser.add_argument("--pairs", type=int, default=7, help="pairs per ratio (%(default)s)")
    parser.add_argument("--json", type=Path, help="write the results to this file too")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := [name for name in wanted if name not in GROUPS]:
        parser.error(f"no group {unknown[0]!r}; there are {', '.join(GROUPS)}")
    install_peers()
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="rb") as name:
        server = Sshd(Path(name) / "d")
        server.folder.mkdir()
        server.start()
        try:
            bench = Bench(Path(name), server, server.port)
            for group in wanted:
                results += GROUPS[group](bench, max(1, options.pairs))
        finally:
            server.stop()
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return int(any(float(result["ratio"]) > float(result["target"]) for result in results))  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())
