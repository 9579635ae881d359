"""What interrupts a run, each in a process of its own: real signals, in the orders in which closed terminals and ended sessions send them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runbook.engine import requests
from tests.cli.running import ROOT
from tests.support.waiting import until

pytestmark = pytest.mark.slow
PROGRAM = """
import signal, sys, threading
from pathlib import Path
from runbook.engine import requests
from runbook.engine.signals import Interrupts

def say(text):
    print(text, flush=True)

over = threading.Event()
def again(name):
    say(f"again {name}")
    over.set()

if sys.argv[2:] == ["nohup"]:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
with Interrupts(lambda name: say(f"first {name}"), again, lambda: requests.take(Path(sys.argv[1])) is not None):
    say("ready")
    over.wait(20)
say("out")
sys.stdin.readline()
say("still here")
"""


class Controller:
    """A process that says what reaches it."""

    def __init__(self, folder: Path, child: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.child = child

    def line(self) -> str:
        """The next thing it says."""
        assert self.child.stdout
        return self.child.stdout.readline().strip()

    def send(self, name: str) -> None:
        """A signal, until it was delivered: two of a kind that are still on their way are one."""
        self.child.send_signal(signal.Signals[name])
        until(lambda: not self._pending() >> (signal.Signals[name] - 1) & 1)

    def _pending(self) -> int:
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        return int(re.findall(r"^ShdPnd:\s*(\w+)", status, re.MULTILINE)[0], 16)


@contextmanager
def begun(folder: Path, *argv: str) -> Iterator[Controller]:
    """A controller that can be interrupted."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, str(folder), *argv]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    found = Controller(folder, child)
    assert found.line() == "ready"
    yield found
    child.kill()
    child.communicate(timeout=10)


@pytest.mark.parametrize(
    ("signals", "said"),
    [
        (["SIGINT", "SIGINT"], ["first SIGINT", "again SIGINT"]),
        (["SIGTERM", "SIGINT"], ["first SIGTERM", "again SIGINT"]),
        # A shell that ends tells its jobs once more, and a login manager sends both.
        (["SIGHUP", "SIGHUP", "SIGINT", "SIGTERM"], ["first SIGHUP", "again SIGTERM"]),
        (["SIGTERM", "SIGHUP", "SIGTERM"], ["first SIGTERM", "again SIGTERM"]),
    ],
    ids=" ".join,
)
def test_a_second_press_leaves_and_a_closed_terminal_never_does(signals, said, tmp_path):
    with begun(tmp_path) as controller:
        heard = []
        for number, name in enumerate(signals):
            controller.send(name)
            if number == 0 or number == len(signals) - 1:
                heard.append(controller.line())
        assert heard == said


def test_a_request_is_the_first_interrupt_and_is_taken_once(tmp_path):
    with begun(tmp_path) as controller:
        requests.ask(tmp_path, "me")
        assert controller.line() == "first cancel" and list(tmp_path.iterdir()) == []
        controller.send("SIGINT")
        controller.send("SIGINT")
        assert controller.line() == "again SIGINT"


def test_under_nohup_a_closed_terminal_is_nothing(tmp_path):
    with begun(tmp_path, "nohup") as controller:
        controller.send("SIGHUP")
        controller.send("SIGINT")
        assert controller.line() == "first SIGINT"


def test_after_a_closed_terminal_the_transcripts_are_still_written(tmp_path):
    """Another SIGHUP comes when the shell itself ends: the process must not die of it now."""
    with begun(tmp_path) as controller:
        controller.send("SIGHUP")
        assert controller.line() == "first SIGHUP"
        controller.send("SIGTERM")
        controller.send("SIGTERM")
        assert (controller.line(), controller.line()) == ("again SIGTERM", "out")
        controller.send("SIGHUP")
        assert controller.child.stdin
        controller.child.stdin.write("\n")
        controller.child.stdin.flush()
        assert controller.line() == "still here"
