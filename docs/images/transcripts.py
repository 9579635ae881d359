"""Makes the pictures of transcripts from real runs on the lab, one for each kind of end, with a real Chromium.

    .venv/bin/python docs/images/transcripts.py [NAME …]

The faults are real: a server that reads its weights slowly, one whose rank raises, a check that can never match, and a server of four
ranks of which one is stopped with SIGSTOP while it loads. The lab and its state lie in a folder of their own and are gone afterwards.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from runbook.engine.journal import read_events
from runbook.model.event import PhaseReached

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))
from tests.support.chromium import Browser  # noqa: E402  the tests' own browser, from this checkout

FOLDER = HERE / "transcripts"
PLAYBOOK = ROOT / "playbooks" / "eagle3_fusion.yaml"
STOPPED = 2
RUNS: dict[str, tuple[list[str], dict[str, Any], int]] = {
    "passed": ([], {}, 0),
    "slow": (["--load-rate", "20KiB"], {"timeout": "24s"}, 4),
    "crashed": (["--crash-at", "load"], {}, 5),
    "wrong_check": ([], {"expect": {"status": 200, "body": "ok"}}, 7),
    "hung": (["--ranks", "4", "--load-rate", "60KiB"], {}, 3),
}
"""Name: more flags of the server, changes to the wait, the exit code that the run must have."""
PICTURES: dict[str, list[tuple[str, str | None, int, bool]]] = {
    "passed": [("passed", None, 1280, False)],
    "slow": [("slow", None, 1280, False), ("slow_time", "#time", 1280, False)],
    "crashed": [("crashed", None, 1280, False)],
    "wrong_check": [("wrong_check", None, 1280, False)],
    "hung": [
        ("hung", None, 1280, False),
        ("hung_time", "#time", 1280, False),
        ("hung_dark", None, 1280, True),
        ("hung_narrow", None, 400, False),
    ],
}
"""Of each run: name of the picture, part of the page (else what a window shows), width, dark."""


def start(state: Path, *argv: str) -> subprocess.Popen[bytes]:
    """A command on the lab of this state folder."""
    env = {**os.environ, "XDG_STATE_HOME": str(state)}
    return subprocess.Popen([sys.executable, "-m", "runbook.cli.main", *argv], cwd=ROOT, env=env, stdout=subprocess.DEVNULL)


def story(path: Path, flags: list[str], wait: dict[str, Any]) -> Path:
    """The shipped playbook with a server of these flags on a free port, and this wait."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    playbook = yaml.safe_load(PLAYBOOK.read_text(encoding="utf-8"))
    playbook["vars"]["port"] = port
    playbook["vars"]["command"] += flags
    for step in playbook["steps"]:
        step.get("wait_healthy", {}).update(wait)
    path.write_text(yaml.safe_dump(playbook, sort_keys=False), encoding="utf-8")
    return path


def rank_pid(state: Path) -> int | None:
    """The process of that rank in the lab of this state folder, by its title."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            ours = str(state).encode() in (folder / "environ").read_bytes()
            if ours and f"scheduler_TP{STOPPED}".encode() in (folder / "cmdline").read_bytes():
                return int(folder.name)
    return None


def stop_a_rank(state: Path, journal: Path, seconds: float = 90.0) -> None:
    """Stop one rank once it loads weights, as the journal tells it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        events = read_events(journal.read_bytes()) if journal.exists() else []
        loads = any(isinstance(event, PhaseReached) and event.rank == STOPPED and event.phase == "weights" for event in events)
        pid = rank_pid(state) if loads else None
        if pid is not None:
            os.kill(pid, signal.SIGSTOP)
            return
        time.sleep(0.3)
    raise TimeoutError(f"rank {STOPPED} did not begin to load weights within {seconds:.0f} s")


def run(state: Path, name: str) -> Path | None:
    """The page of a run of this kind; None when it did not end as it must."""
    flags, wait, expected = RUNS[name]
    folder = state / name
    child = start(state, "run", str(story(state / f"{name}.yaml", flags, wait)), "--out", str(folder))
    if name == "hung":
        try:
            stop_a_rank(state, folder / "events.jsonl")
        except TimeoutError:
            child.send_signal(signal.SIGINT)  # it cleans up on the lab
            child.wait()
            raise
    if child.wait() != expected:
        sys.stderr.write(f"{name}: the run did not end with {expected}; its pictures stay as they were\n")
        return None
    page = folder / "transcript.html"
    kept = state / f"{name}.html"
    shutil.copy(page, kept)
    if name == "slow":
        start(state, "cancel", str(folder)).wait()
    return kept


def pictures(browser: Browser, page: Path, name: str) -> None:
    """All pictures of a page."""
    for file, part, width, dark in PICTURES[name]:
        shown = browser.open(page, width=width, height=800, dark=dark).screenshot(part)
        (FOLDER / f"{file}.png").write_bytes(shown)


def main(names: list[str]) -> int:
    """Run, look, clean up. 1 when a run did not end as it must."""
    state = Path(tempfile.gettempdir()) / "runbook-pictures"
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir()
    FOLDER.mkdir(exist_ok=True)
    wrong = 0
    try:
        start(state, "lab", "up").wait()
        with Browser(state / "browser") as browser:
            for name in names:
                page = run(state, name)
                if page is None:
                    wrong = 1
                else:
                    pictures(browser, page, name)
    finally:
        start(state, "lab", "down").wait()
        shutil.rmtree(state, ignore_errors=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(RUNS)))
