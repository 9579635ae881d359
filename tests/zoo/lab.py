"""The lab's faults through a playbook, over SSH: python -m tests.zoo.lab [NAME …]. Each ends in its verdict, with its culprit.

The lab is one of its own; nothing of a lab that is up is touched.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from runbook.lab.faults import LIVE, NAMES, NEED_RANKS
from runbook.model.event import StepEnded
from runbook.model.verdict import Diagnosis
from tests.e2e.cli import Outcome, runbook

PLAYBOOK = """runbook: 1
name: a server of the lab with a fault
hosts: {gpu: lab}
vars: {port: 8000, fault: none, ranks: 1}
steps:
  - id: server
    launch:
      command: [python, -m, lab_engine.launch_server, --port, '${{ vars.port }}', --tp-size, '${{ vars.ranks }}', --fault, '${{ vars.fault }}']
      profile: lab
      ranks: ${{ vars.ranks }}
  - id: up
    wait_healthy: {server: server, timeout: 5m}
always:
  - kill: {step: server}
"""
KINDS = {
    "deadlock": {"deadlock", "blocked_peer"},
    "livelock": {"livelock"},
    "stale_lock": {"stale_lock"},
    "log_pipe": {"log_pipe"},
    "rank_missing": {"rank_missing", "unsatisfiable", "blocked_peer"},
    "rank_stopped": {"stopped"},
    "collective_mismatch": {"rank_desync", "deadlock", "blocked_peer"},
}
JOBS = 3


class Ended(NamedTuple):
    """One fault and how its run ended. The rest is read from the run's folder while it is there."""

    fault: str
    outcome: Outcome
    diagnosis: Diagnosis | None = None
    transcript: str = ""

    def diagnosed(self) -> Diagnosis | None:
        """What the wait said."""
        ends = [event for event in self.outcome.events if isinstance(event, StepEnded) and event.step == "up"]
        return ends[-1].diagnosis if ends else None

    @property
    def right(self) -> bool:
        """A slow phase passes in the end; a hang has its kind."""
        verdict, kind = self.outcome.json["verdict"], self.outcome.json["kind"]
        return verdict == "passed" if self.fault in LIVE else verdict == "hung" and kind in KINDS[self.fault]


def play(state: Path, names: Sequence[str], then: Callable[[Ended], Ended] = lambda one: one) -> list[Ended]:
    """Each fault in a run of its own, some side by side, on the lab of this state folder. `then` reads what is wanted of its files."""
    file = state / "fault.yaml"
    file.write_text(PLAYBOOK)

    def one(name: str) -> Ended:
        ranks = 4 if name in NEED_RANKS else 1
        flags = ["-e", f"fault={name}", "-e", f"port={_free_port()}", "-e", f"ranks={ranks}"]
        return then(Ended(name, runbook("run", file, *flags, "--json", "--no-suspend", state=state, seconds=420)))

    with ThreadPoolExecutor(JOBS) as pool:
        return list(pool.map(one, names))


@contextlib.contextmanager
def lab() -> Iterator[Path]:
    """A lab in a state folder of its own."""
    with tempfile.TemporaryDirectory(prefix="lab-") as place:
        state = Path(place)
        up = runbook("lab", "up", state=state)
        assert up.code == 0, up.err
        try:
            yield state
        finally:
            runbook("lab", "down", state=state)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(names: Sequence[str]) -> int:
    """A line for each; exit 1 when one is not as it should be."""
    with lab() as state:
        ended = play(state, names or NAMES)
        for one in ended:
            said = one.outcome.json
            up = one.outcome.step("up")
            diagnosis = one.diagnosed()
            found = diagnosis.culprit if diagnosis else None
            seconds, culprit = up.get("seconds") or 0.0, f"rank {found.rank} pid {found.pid}" if found else "nobody"
            line = f"{'right' if one.right else 'WRONG':<6}{one.fault:<21}{said['verdict']}/{said['kind']} after {seconds:.0f} s, culprit {culprit}: {said['reason'][:160]}"
            sys.stdout.write(line + "\n")
    return 0 if all(one.right for one in ended) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
