"""Makes the pictures of the README from two real runs on the lab.

Each run's events.jsonl is told to the live terminal's own renderer, which rich then writes as SVG. Nothing is drawn by hand. The port
is DEMO_PORT [8000]; the lab and its state lie in a folder of their own and are gone afterwards.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from runbook.engine.journal import load_events
from runbook.render.terminal import Terminal

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COLUMNS = 112
PORT = os.environ.get("DEMO_PORT", "8000")
PLAYBOOK = "playbooks/eagle3_fusion.yaml"
PICTURES = {"run_passed": ([], 0), "run_failed": (["-e", "algorithm=EAGLE"], 1)}
"""Name of the picture: more options of the run, and the exit code that it must have."""
FONT_FACE = re.compile(r"@font-face\s*\{[^}]*\}\s*")


def runbook(state: Path, *argv: str) -> int:
    """Run a command on the lab of this state folder; its exit code."""
    env = {**os.environ, "XDG_STATE_HOME": str(state)}
    return subprocess.run([sys.executable, "-m", "runbook.cli.main", *argv], cwd=ROOT, env=env, check=False).returncode


def picture(folder: Path, title: str, name: str) -> str:
    """The SVG of a run's terminal."""
    terminal = Terminal(io.StringIO(), record=True)
    terminal.console.width = COLUMNS
    for event in load_events(folder):
        terminal.follow(event)
    svg = terminal.console.export_svg(title=title, unique_id=name.replace("_", "-"))
    # rich names a web font; a picture in a repository should load nothing.
    return FONT_FACE.sub("", svg).replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")


def main() -> int:
    """Run, export, clean up. 1 when a run did not end as its picture says."""
    state = Path(tempfile.mkdtemp(prefix="demo-"))
    port = [] if PORT == "8000" else ["-e", f"port={PORT}"]
    wrong = 0
    try:
        runbook(state, "lab", "up", "--leftover", "--port", PORT)
        for name, (more, expected) in PICTURES.items():
            argv = ["run", PLAYBOOK, *more, *port]
            if runbook(state, *argv, "--out", str(state / name)) == expected:
                (HERE / f"{name}.svg").write_text(picture(state / name, " ".join(["runbook", *argv]), name), encoding="utf-8")
            else:
                sys.stderr.write(f"{name}: the run did not end with {expected}; its picture stays as it was\n")
                wrong = 1
    finally:
        runbook(state, "lab", "down")
        shutil.rmtree(state, ignore_errors=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
