"""The lab's faults through a playbook, over SSH: python -m tests.zoo.lab [--write] [NAME …]. Each ends in its verdict, with its culprit.

The lab is one of its own; nothing of a lab that is up is touched. `--write` puts how all of them ended, one after the other, into the
guide of the lab.
"""

from __future__ import annotations

import contextlib
import queue
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
hosts: {gpu: {target: lab, gpus: [SLOT]}}
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
JOBS = 2
"""Side by side: the lab has two GPUs, and each run holds one."""
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "lab.md"
BEGIN, END = "<!-- made by: python -m tests.zoo.lab --write -->", "<!-- end of what was made -->"


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


def play(state: Path, names: Sequence[str], then: Callable[[Ended], Ended] = lambda one: one, jobs: int = JOBS) -> list[Ended]:
    """Each fault in a run of its own, some side by side, on the lab of this state folder. `then` reads what is wanted of its files."""
    slots: queue.SimpleQueue[int] = queue.SimpleQueue()
    for slot in range(JOBS):
        slots.put(slot)
        (state / f"fault{slot}.yaml").write_text(PLAYBOOK.replace("SLOT", str(slot)))

    def one(name: str) -> Ended:
        ranks, slot = 4 if name in NEED_RANKS else 1, slots.get()
        flags = ["-e", f"fault={name}", "-e", f"port={_free_port()}", "-e", f"ranks={ranks}"]
        try:
            return then(
                Ended(name, runbook("run", state / f"fault{slot}.yaml", *flags, "--json", "--no-suspend", state=state, seconds=420))
            )
        finally:
            slots.put(slot)

    with ThreadPoolExecutor(jobs) as pool:
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


def cells(one: Ended) -> tuple[str, str, str, str]:
    """Fault, verdict, whom it names, and after how long: a row of the guide."""
    up, found = one.outcome.step("up"), one.diagnosis.culprit if one.diagnosis else None
    verdict = f"{up['verdict']}/{up['kind']}" if up.get("kind") else str(up["verdict"])
    who = "nobody" if found is None else f"rank {found.rank}" if found.rank is not None else f"`{found.title}`"
    return one.fault, verdict, who, f"{up['seconds']:.0f} s"


def guide(rows: Sequence[tuple[str, str, str, str]]) -> str:
    """The guide with this table in its place."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    table = "\n".join(f"| `{fault}` | {verdict} | {who} | {took} |" for fault, verdict, who, took in rows)
    return f"{before}{BEGIN}\n\n| fault | `wait_healthy` ends | naming | after |\n|---|---|---|---|\n{table}\n\n{END}{after}"


def main(argv: Sequence[str]) -> int:
    """A line for each; exit 1 when one is not as it should be."""
    names = [name for name in argv if name != "--write"] or list(NAMES)
    with lab() as state:
        ended = play(state, names, lambda one: one._replace(diagnosis=one.diagnosed()), 1 if "--write" in argv else JOBS)
    for one in ended:
        sys.stdout.write(f"{'right' if one.right else 'WRONG':<6}{'  '.join(cells(one))}: {one.outcome.json['reason'][:160]}\n")
    if "--write" in argv:
        PAGE.write_text(guide([cells(one) for one in ended]), encoding="utf-8")
    return 0 if all(one.right for one in ended) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
