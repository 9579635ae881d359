"""What somebody waits for while writing playbooks: an answer to the shell's TAB, and `validate` of a folder with 200 playbooks.

    python tests/benchmarks/editing.py

Processor time of whole processes, user and system together, the median of several: on a machine that is not busy also the time waited.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RUNBOOK = str(Path(sys.executable).with_name("runbook"))
PLAYBOOK = Path(__file__).resolve().parents[2] / "playbooks" / "eagle3_fusion.yaml"
LINES = ("runbook r", "runbook run ea", "runbook run eagle3_fusion -H ", "runbook run eagle3_fusion --start-at ", "runbook show ")


def spent(argv: list[str], more: dict[str, str] | None = None) -> float:
    """Processor time of one process in ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, env={**os.environ, **(more or {})}, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def completion(repeats: int = 9) -> dict[str, float]:
    """By the line that is completed, ms."""
    found = {}
    for line in LINES:
        asks = {"_RUNBOOK_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        found[line] = statistics.median(spent([RUNBOOK], asks) for _ in range(repeats))
    return found


def validation(files: int = 200, repeats: int = 3) -> tuple[float, float]:
    """One playbook and many of them, ms."""
    with tempfile.TemporaryDirectory() as name:
        for number in range(files):
            shutil.copy(PLAYBOOK, Path(name) / f"p{number:03}.yaml")
        one = statistics.median(spent([RUNBOOK, "validate", f"{name}/p000.yaml"]) for _ in range(repeats))
        return one, statistics.median(spent([RUNBOOK, "validate", name]) for _ in range(repeats))


def main() -> None:
    """Print the figures."""
    for line, ms in completion().items():
        sys.stdout.write(f"{ms:6.0f} ms  {line}<TAB>    (at most 150)\n")
    one, many = validation()
    sys.stdout.write(f"{many - one:6.0f} ms  validate of 200 playbooks beyond the {one:.0f} ms of one    (at most 2000)\n")


if __name__ == "__main__":
    main()
