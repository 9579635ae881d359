"""vLLM itself, on the lab, in one start: it compiles with a cold cache, serves with a probe in its draft, and is killed."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from runbook.engine.journal import load_events
from runbook.model.event import StepEnded
from tests.e2e.cli import Outcome, start
from tests.real import engines, looking
from tests.real.conftest import need
from tests.real.place import real_dir
from tests.support.waiting import until

DRAFT_MODULE = "vllm.model_executor.models.llama_eagle3"
PLACE = {"at": "Eagle3LlamaForCausalLM.combine_hidden_states", "where": "entry", "show": {"hidden": "hidden_states"}}
QUESTION = {"messages": [{"role": "user", "content": "Count. (${{ run.id }})"}], "max_tokens": 128, "ignore_eos": True, "temperature": 0}
STEPS: list[engines.Step] = [
    {"id": "up", "wait_healthy": {"server": "server", "timeout": "20m"}},
    {"id": "chat", "request": {"server": "server", "post": "/v1/chat/completions", "timeout": "4m", "json": {"model": "tiny", **QUESTION}}},
    {"id": "seen", "expect_probe": {"probe": "taps", "since": "chat", "until": "chat"}},
    {"id": "fused", "assert": ["any(h.hidden.shape[-1] == 384 for h in steps.seen.hits)", "steps.chat.metrics.accept_length > 4"]},
    {"id": "murder", "run": "kill -9 ${{ steps.server.pid }}"},
    {"id": "orphans", "kill": {"match": {"profile": "vllm"}, "expect": "some"}},
]


class Story(NamedTuple):
    """What was seen: verdicts of `diagnose` while it loaded, the run, and whether the patched file was restored."""

    said: list[str]
    outcome: Outcome
    restored: bool


def source() -> Path:
    """The draft's module."""
    return next((real_dir() / "venv" / "lib").glob("python*")) / "site-packages" / (DRAFT_MODULE.replace(".", "/") + ".py")


@pytest.fixture(scope="module")
def story(lab, tmp_path_factory) -> Story:
    need("vllm")
    port = looking.free_port()
    engine = engines.vllm(port)
    stage = looking.Stage(lab.state, engine, port)
    patch = {"id": "taps", "patch": {"for": "server", "module": DRAFT_MODULE, "probes": [PLACE]}}
    path = engines.playbook(tmp_path_factory.mktemp("vllm") / "p.yaml", engine, STEPS, [patch], [{"restore": "taps"}])
    folder = real_dir() / "stories" / "vllm"
    shutil.rmtree(folder, ignore_errors=True)
    before = hashlib.sha256(source().read_bytes()).hexdigest()
    child = start("run", path, "--json", "--no-suspend", "--out", folder, state=lab.state)

    def ended(step: str) -> bool:
        events = load_events(folder) if (folder / "events.jsonl").exists() else []
        return any(isinstance(event, StepEnded) and event.step == step for event in events)

    try:
        until(lambda: stage.find("main"), 120)
        said = []
        while child.poll() is None and not ended("up"):
            verdict = looking.diagnose(stage, "--for", "20s").verdict
            said += [] if ended("up") else [verdict]  # such a look may have seen what the run did next: the murder
        out, err = child.communicate(timeout=600)
    finally:
        if child.poll() is None:
            child.terminate()
            child.communicate(timeout=120)
    restored = hashlib.sha256(source().read_bytes()).hexdigest() == before
    return Story(said, Outcome(child.returncode, out, err), restored)


def test_diagnose_never_calls_a_start_that_compiles_hung(story):
    assert "slow/on_track" in story.said
    assert {said.partition("/")[0] for said in story.said} <= {"slow", "passed", "undecided"}, story.said


def test_a_probe_in_the_draft_sees_three_layers_and_the_metrics_are_read(story):
    assert story.outcome.step("fused")["verdict"] == "passed", story.outcome.err


def test_what_outlives_a_killed_api_server_is_ended_by_its_profile(lab, story):
    (end,) = [event for event in story.outcome.events if isinstance(event, StepEnded) and event.step == "orphans"]
    assert {row["title"].split()[0] for row in end.result["targets"]} >= {"VLLM::EngineCore", "VLLM::Worker"}
    assert end.verdict == "passed" and lab.processes() == []


def test_the_package_is_as_before_and_nothing_stays(story):
    assert story.restored and story.outcome.json["left_behind"] == []
