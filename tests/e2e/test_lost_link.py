"""A link that dies in the middle of a run: the host is reached again, the server is not blamed, and nothing stays."""

import json
import os
import signal

import pytest

from tests.e2e.cli import Outcome, start
from tests.e2e.test_story import DRAFT, _command, fingerprint, nothing_stays, story
from tests.support.processes import start_of
from tests.support.waiting import until

pytestmark = pytest.mark.e2e


def test_a_killed_helper_is_replaced_and_the_wait_goes_on(lab, port, tmp_path):
    path = story(tmp_path, launch={"command": _command(port, "--load-rate", "20KiB")})
    before = fingerprint(lab.home / DRAFT)
    folder = tmp_path / "run"
    child = start("run", path, "--json", "--out", folder, state=lab.state)
    journal = folder / "events.jsonl"
    until(lambda: journal.exists() and '"step":"up"' in journal.read_text() and '"event":"sample"' in journal.read_text(), 60)
    connected = next(json.loads(line) for line in journal.read_text().splitlines() if '"event":"host_connected"' in line)
    helper = connected["facts"]["pid"]
    assert start_of(helper)
    os.kill(helper, signal.SIGKILL)
    out, err = child.communicate(timeout=90)
    outcome = Outcome(child.returncode, out, err)
    assert (outcome.code, outcome.json["verdict"]) == (0, "passed"), err
    assert journal.read_text().count('"event":"host_connected"') == 2
    assert fingerprint(lab.home / DRAFT) == before
    nothing_stays(lab, outcome)
