"""llama.cpp's server itself, on the lab: it listens before it loads, serves with a draft model, is looked at, stopped, and killed."""

from __future__ import annotations

import shutil
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest

from runbook.engine.journal import load_events
from runbook.model.event import SampleTaken, StepEnded, WaitEnded
from runbook.model.sample import Seen
from tests.e2e.cli import Outcome, start
from tests.real import engines, looking
from tests.real.conftest import need
from tests.real.place import gguf, real_dir
from tests.support.waiting import until

QUESTION = {"messages": [{"role": "user", "content": "Count. (${{ run.id }})"}], "max_tokens": 96, "ignore_eos": True, "temperature": 0}
UP: engines.Step = {
    "id": "up",
    "wait_healthy": {"server": "server", "interval": "50ms", "timeout": "10m", "expect": {"json": {"status": "ok"}}},
}
SERVED: list[engines.Step] = [
    UP,
    {"id": "chat", "request": {"server": "server", "post": "/v1/chat/completions", "timeout": "4m", "json": QUESTION}},
    {
        "id": "other",
        "request": {"server": "server", "post": "/v1/chat/completions", "json": {**QUESTION, "model": "nope", "max_tokens": 1}},
    },
    {"id": "measured", "assert": ["steps.chat.metrics.accept_length > 3", "steps.chat.metrics.accept_rate > 0.9"]},
]
"""Its own draft model, it agrees with nearly all that is drafted, three tokens at a time."""
KILLED: list[engines.Step] = [
    UP,
    {"id": "murder", "run": "kill -9 ${{ steps.server.pid }}"},
    {"id": "dead", "wait_healthy": {"server": "server", "timeout": "1m"}},
]


class Story(NamedTuple):
    """What its health path answered in turn, what `diagnose` said while it answered a question, and the run."""

    answers: list[tuple[int, str]]
    said: looking.Looked
    outcome: Outcome


def health(port: int) -> tuple[int, str]:
    """Status and body; 0 when nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def answers_of(port: int, seconds: float = 120) -> list[tuple[int, str]]:
    """Those that differ from the one before, up to the first good one."""
    found = [health(port)]
    deadline = time.monotonic() + seconds
    while found[-1][0] != 200 and time.monotonic() < deadline:
        time.sleep(0.005)
        answer = health(port)
        found += [answer] if answer != found[-1] else []
    return found


def folder_of(name: str) -> Path:
    """An empty place for the recording of a run."""
    folder = real_dir() / "stories" / name
    shutil.rmtree(folder, ignore_errors=True)
    return folder


@pytest.fixture(scope="module")
def story(lab, tmp_path_factory) -> Story:
    need("llamacpp")
    port = looking.free_port()
    engine = engines.llamacpp(port, "large", "--model-draft", str(gguf("large")), "--spec-type", "draft-simple")
    path = engines.playbook(tmp_path_factory.mktemp("llamacpp") / "p.yaml", engine, SERVED, settle="50ms")
    folder = folder_of("llamacpp")
    child = start("run", path, "--json", "--no-suspend", "--out", folder, state=lab.state)
    try:
        answers = answers_of(port)
        until(lambda: any(isinstance(event, StepEnded) and event.step == "up" for event in load_events(folder)), 120)
        said = looking.diagnose(looking.Stage(lab.state, engine, port))
        out, err = child.communicate(timeout=600)
    finally:
        if child.poll() is None:
            child.terminate()
            child.communicate(timeout=120)
    return Story(answers, said, Outcome(child.returncode, out, err))


def test_every_path_answers_503_while_it_loads_and_then_200(story):
    assert [status for status, _ in story.answers] in ([0, 503, 200], [503, 200]), story.answers
    assert "Loading model" in story.answers[-2][1] and story.answers[-1][1] == '{"status":"ok"}'


def test_the_wait_sees_that_it_is_starting(story):
    """It comes at half a second, and the lab's machine may be slow: any look at the 503 will do."""
    samples = [event.sample for event in story.outcome.events if isinstance(event, SampleTaken) and event.step == "up"]
    statuses = [sample.check.value.status for sample in samples if isinstance(sample.check, Seen)]
    assert statuses[-1] == 200 and set(statuses) <= {None, 503, 200} and 503 in statuses, statuses


def test_it_is_waited_for_asked_and_stopped(lab, story):
    assert (story.outcome.code, story.outcome.json["verdict"]) == (0, "passed"), story.outcome.err
    assert story.outcome.json["left_behind"] == [] and lab.processes() == []


def test_diagnose_says_that_it_serves(story):
    assert story.said.verdict == "passed", story.said


def test_one_that_was_killed_has_crashed_by_that_signal(lab, port, tmp_path):
    need("llamacpp")
    path = engines.playbook(tmp_path / "p.yaml", engines.llamacpp(port), KILLED)
    outcome = lab.runbook("run", path, "--json", "--no-suspend", "--out", folder_of("llamacpp_killed"), seconds=300)
    assert (outcome.code, outcome.json["verdict"]) == (5, "crashed"), outcome.err
    ends = [event for event in outcome.events if isinstance(event, WaitEnded) and event.step == "dead"]
    assert ends[-1].rule == "dead" and "SIGKILL" in outcome.json["reason"]
    assert outcome.json["left_behind"] == [] and lab.processes() == []


def test_a_model_that_is_not_there_is_the_cause(lab, port, tmp_path):
    need("llamacpp")
    path = engines.playbook(tmp_path / "p.yaml", engines.llamacpp(port, "missing"), [UP])
    outcome = lab.runbook("run", path, "--json", "--no-suspend", "--out", folder_of("llamacpp_no_model"), seconds=300)
    assert (outcome.code, outcome.json["verdict"]) == (5, "crashed"), outcome.err
    assert "failed to open GGUF file" in outcome.json["reason"], "what the lines after it say only follows from it"
