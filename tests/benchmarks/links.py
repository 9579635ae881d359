"""What a link may cost, measured: python -m tests.benchmarks.links [--quick] [--only hole,output,playbook,watch,fetch]

hole       seconds until a black hole is noticed, with the defaults                                              target 15
output     16 MB of output of one step, over the time of stock Fabric's `run` for the same                        target 1/50
playbook   20 steps over a link of 200 ms: time over that of the bare round trips (connect included)              target 1.3
watch      growth of the controller's memory over a watch of an hour, at 1,800 looks, MB                          target 10
fetch      growth of its memory from a file of 32 MiB to one of 1 GiB (--quick: 256 MiB), MB                      target 30

Ratios and growth, since times depend on the machine and its load.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from runbook.engine.journal import Journal
from runbook.engine.redact import Mask
from runbook.engine.watch import watch
from runbook.hosts.base import CancelToken, LinkLost, Unreachable
from runbook.hosts.connect import CONFIG_VARIABLE, connect
from runbook.hosts.ssh_config import resolve
from runbook.model.clock import SystemClock
from runbook.model.event import Event
from runbook.model.playbook import Target
from runbook.model.sample import Sample
from runbook.model.verdict import Diagnosis
from tests.render.long_wait import BEGIN, sample
from tests.support.relay import Relay
from tests.support.sshd import Sshd

DELAY_S = 0.1
STEPS = 20
CONNECT_TRIPS = 6
"""Until the first command can be sent: tcp, banner, key exchange (2), login (2)."""
PAIRS = 5
MB = 1 << 20
FABRIC = """
import sys, time
from fabric import Connection
host, user, port, key, size = sys.argv[1:]
with Connection(host, user=user, port=int(port), connect_kwargs={"key_filename": key}) as c:
    c.run("true", hide=True, in_stream=False)
    start = time.perf_counter()
    c.run(f"head -c {size} /dev/zero | tr '\\\\0' x | fold -w 99", hide=True, in_stream=False)
    print(time.perf_counter() - start)
"""


class Bench:
    """A server, and ways to it."""

    def __init__(self, folder: Path, quick: bool) -> None:
        self.folder, self.quick = folder, quick
        (folder / "d").mkdir()
        self.server = Sshd(folder / "d").start()

    def through(self, relay: Relay) -> None:
        """From now on the way leads through a relay."""
        self.server.write_client_config(port=relay.listen_port)
        self.server.known_hosts.write_text(self.server.known_hosts_line().replace(str(self.server.port), str(relay.listen_port)))

    def connect(self):  # type: ignore[no-untyped-def]
        """A host."""
        resolve.cache_clear()
        env = {**os.environ, CONFIG_VARIABLE: str(self.server.client_config), "HOME": str(self.folder)}
        return connect(Target(target="box", python=sys.executable), clock=SystemClock(), env=env, cwd=self.folder)

    def run(self, steps: str) -> float:
        """Seconds of a whole run of these steps."""
        book = self.folder / "book.yaml"
        book.write_text(f"runbook: 1\nhosts: {{box: box}}\nsteps:\n{steps}")
        env = {**os.environ, "RUNBOOK_SSH_CONFIG": str(self.server.client_config), "XDG_STATE_HOME": str(self.folder / "state")}
        argv = [sys.executable, "-m", "runbook.cli.main", "run", str(book), "--json"]
        start = time.perf_counter()
        done = subprocess.run(argv, env=env, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-800:])
        return time.perf_counter() - start


def hole(bench: Bench) -> tuple[float, float, str]:
    """A call is under way when everything vanishes."""
    relay = Relay(bench.server.host, bench.server.port).start()
    bench.through(relay)
    host = bench.connect()
    relay.black_hole()
    start = time.perf_counter()
    try:
        host.run(["sleep", "120"])
        raise RuntimeError("it came back")
    except LinkLost:
        seconds = time.perf_counter() - start
    finally:
        relay.close()
    return seconds, 15.0, "s"


def output(bench: Bench) -> tuple[float, float, str]:
    """A step with 16 MB of output (--quick: 4 MB, where the other's quadratic part weighs a sixteenth, so the target is 1/8)."""
    size = (4 if bench.quick else 16) * 1_000_000
    bench.server.write_client_config()
    bench.server.known_hosts.write_text(bench.server.known_hosts_line())
    step = f"  - run: \"head -c {size} /dev/zero | tr '\\\\0' x | fold -w 99\"\n"
    ours = max(0.001, bench.run(step) - bench.run("  - run: 'true'\n"))
    server = bench.server
    argv = [sys.executable, "-c", FABRIC, server.host, server.user, str(server.port), str(server.key), str(size)]
    theirs = float(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    return ours / theirs, 1 / 8 if bench.quick else 1 / 50, f"of stock Fabric's {theirs:.1f} s, {size // 1_000_000} MB"


def playbook(bench: Bench) -> tuple[float, float, str]:
    """Over a relay that counts the round trips and delays each way by 100 ms; what the same run takes without delay is not the link's.

    The median of pairs, each run beside its own undelayed one: two minima would be of two moments of the machine, and on one that has other
    work their difference says anything (0.68 and 1.38 were seen).
    """
    relay = Relay(bench.server.host, bench.server.port).start()
    bench.through(relay)
    steps = "  - run: {argv: ['true']}\n" * STEPS
    bench.run(steps)
    trips, ratios, counts = 2 * DELAY_S * (STEPS + CONNECT_TRIPS), [], []
    for _ in range(PAIRS):
        relay.delay_s = 0.0
        bare = bench.run(steps)
        relay.delay_s = DELAY_S
        relay.reset_counts()
        ratios.append((bench.run(steps) - bare) / trips)
        counts.append(relay.round_trips)
    relay.close()
    spread = f"{min(ratios):.2f} to {max(ratios):.2f} in {PAIRS} pairs"
    return (
        statistics.median(ratios),
        1.3,
        f"of {trips:.1f} s, {spread}; {max(counts)} round trips counted, {STEPS + CONNECT_TRIPS} are needed",
    )


class _Clock:
    """An hour in no time."""

    t = BEGIN

    def now(self) -> float:
        return self.t

    def monotonic(self) -> float:
        return self.t

    def wait(self, event: object, seconds: float) -> bool:
        self.t += seconds
        return False


class _Waiter:
    step, target = "up", "box"

    def __init__(self, clock: _Clock, journal: Journal, box_s: float) -> None:
        self.clock, self.journal, self.cancel = clock, journal, CancelToken()
        self._end = clock.t + box_s

    def remaining_s(self) -> float:
        return self._end - self.clock.t

    def lost(self, why: Unreachable) -> bool:
        return False

    def emit(self, event: Event) -> None:
        self.journal.append(event)


class _Goal:
    every_s = 2.0

    def __init__(self, clock: _Clock) -> None:
        self._clock, self._count = clock, 0

    def look(self) -> Sample:
        self._count += 1
        return sample(self._clock.t - BEGIN, self._count, 8, 1500.0)

    def judge(self, samples: object, now: float, *, final: bool) -> Diagnosis | None:
        return Diagnosis(verdict="slow", rule="bench", reason="x") if final else None

    def moved(self, samples: object) -> tuple[str | None, str]:
        return None, "loading"


def watched(bench: Bench) -> tuple[float, float, str]:
    """Samples of eight ranks with many threads, the journal written."""
    clock = _Clock()
    journal = Journal(bench.folder / "journal", clock, Mask({}))  # type: ignore[arg-type]
    grown: list[float] = []
    for box_s in (400.0, 3600.0):  # the first one fills what a wait remembers
        watch(_Goal(clock), _Waiter(clock, journal, box_s))  # type: ignore[arg-type]
        grown.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return grown[1] - grown[0], 10.0, "MB"


def fetched(bench: Bench) -> tuple[float, float, str]:
    """Peak memory of a whole run that fetches a file of zeros."""
    bench.server.write_client_config()
    bench.server.known_hosts.write_text(bench.server.known_hosts_line())
    large = (256 if bench.quick else 1024) * MB
    peaks = []
    for size in (32 * MB, large):
        path = bench.folder / f"file{size}"
        with path.open("wb") as out:
            out.truncate(size)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        bench.run(f"  - fetch: {{path: {path}, max: 2GiB}}\n    timeout: 60m\n")
        peaks.append(max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024)
        path.unlink()
    return peaks[1] - peaks[0], 30.0, f"MB more for {large // MB} MiB than for 32"


GROUPS: dict[str, Callable[[Bench], tuple[float, float, str]]] = {
    "hole": hole,
    "output": output,
    "playbook": playbook,
    "watch": watched,
    "fetch": fetched,
}


def main() -> int:
    """Measure what was asked for; 1 when a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(GROUPS))
    parser.add_argument("--quick", action="store_true", help="smaller files")
    options = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory(prefix="rbl") as name:
        bench = Bench(Path(name), options.quick)
        try:
            for group in options.only.split(","):
                value, target, unit = GROUPS[group](bench)
                missed += value > target
                sys.stdout.write(f"{'ok  ' if value <= target else 'MISS'} {group:<10} {value:8.3f}  target {target:<6.3g} {unit}\n")
                sys.stdout.flush()
        finally:
            bench.server.stop()
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
