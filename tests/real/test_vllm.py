"""vLLM itself, on the lab: compilation is no hang, orphans are ended, a good /health proves nothing, a probe in its draft."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
from pathlib import Path

import pytest

from runbook.lab import processes
from tests.e2e.cli import start
from tests.real import engines
from tests.real.conftest import need
from tests.real.fault_kinds import Stage
from tests.real.place import real_dir
from tests.support.waiting import until

EAGER = "--enforce-eager"
UP = {"id": "up", "wait_healthy": {"server": "server", "timeout": "8m"}}
DRAFT_MODULE = "vllm.model_executor.models.llama_eagle3"
CHAT = {
    "server": "server",
    "post": "/v1/chat/completions",
    "timeout": "2m",
    "json": {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Count. (${{ run.id }})"}],
        "max_tokens": 128,
        "ignore_eos": True,
        "temperature": 0,
    },
}


@pytest.fixture(autouse=True)
def vllm():
    need("vllm")


def run(lab, path: Path, *more: str):
    """The playbook to its end; nothing stays."""
    outcome = lab.runbook("run", path, "--json", *more, seconds=900)
    assert outcome.json["left_behind"] == [], outcome.err
    assert lab.processes() == []
    return outcome


def test_diagnose_never_calls_a_start_that_compiles_hung(lab, port, tmp_path):
    """With a cold cache, in silence, in children that come and go."""
    path = engines.playbook(tmp_path / "p.yaml", engines.vllm(port, None), [UP])
    child = start("run", path, "--json", state=lab.state)
    said: list[str] = []
    while child.poll() is None and "passed" not in said:
        looked = lab.runbook("diagnose", "lab", "--port", str(port), "--for", "15s", "--json", seconds=120)
        if looked.out.strip().startswith("{") and child.poll() is None:
            said.append(json.loads(looked.out)["verdict"])
    out, err = child.communicate(timeout=120)
    assert json.loads(out)["verdict"] == "passed", err
    assert set(said) <= {"slow", "passed"}, said
    assert "slow" in said


def test_what_outlives_a_killed_api_server_is_found_and_ended_by_its_profile(lab, port, tmp_path):
    steps = [
        UP,
        {"run": "kill -9 ${{ steps.server.pid }}"},
        {"id": "orphans", "kill": {"match": {"profile": "vllm"}, "expect": "some"}},
    ]
    outcome = run(lab, engines.playbook(tmp_path / "p.yaml", engines.vllm(port, None, EAGER), steps, cleanup=()))
    ended = outcome.step("orphans")
    (end,) = [event for event in outcome.events if getattr(event, "step", "") == "orphans" and hasattr(event, "verdict")]
    titles = {row["title"].split()[0] for row in end.result["targets"]}
    assert ended["verdict"] == "passed" and {"VLLM::EngineCore", "VLLM::Worker"} <= titles, titles


def test_a_stopped_engine_core_is_hung_though_health_says_200(lab, port, tmp_path):
    engine = engines.vllm(port, None, EAGER)
    flag = lab.home / "stopped"
    steps = [UP, {"run": {"shell": f"until [ -e {flag} ]; do sleep 0.1; done", "timeout": "1m"}}]
    steps += [{"id": "look", "diagnose": {"server": "server", "timeout": "90s"}}]
    folder = tmp_path / "run"
    child = start("run", engines.playbook(tmp_path / "p.yaml", engine, steps), "--json", "--no-suspend", "--out", folder, state=lab.state)
    stage = Stage(lab.state, engine, port)
    journal = folder / "events.jsonl"
    until(lambda: child.poll() is not None or (journal.exists() and '"type":"run"' in journal.read_text()), 300)
    stage.send("engine_core", signal.SIGSTOP)
    status = subprocess.run(
        ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"http://127.0.0.1:{port}/health"], capture_output=True, text=True
    )
    flag.touch()
    out, err = child.communicate(timeout=300)
    processes.send(stage.hurt[0], signal.SIGCONT)
    answer = json.loads(out)
    assert status.stdout == "200"
    assert (answer["verdict"], answer["kind"]) == ("hung", "stopped"), err
    assert "EngineCore" in answer["reason"], answer["reason"]


@pytest.mark.parametrize(("draft", "width", "accepts"), [("draft_hidden_ids", 384, True), ("draft_no_aux", 128, False)])
def test_a_probe_in_the_draft_shows_what_it_is_fed(lab, port, tmp_path, draft, width, accepts):
    """The same silent skip as in SGLang: a draft told not to use the target's states is fed one layer."""
    patch = {"for": "server", "module": DRAFT_MODULE}
    patch["probes"] = [{"at": "Eagle3LlamaForCausalLM.combine_hidden_states", "where": "entry", "show": {"hidden": "hidden_states"}}]
    steps = [
        UP,
        {"id": "chat", "request": CHAT},
        {"id": "seen", "expect_probe": {"probe": "taps", "since": "chat", "until": "chat"}},
        {"assert": [{"that": f"any(h.hidden.shape[-1] == {width} for h in steps.seen.hits)"}]},
        {"assert": [{"that": "steps.chat.metrics.accept_length > 4" if accepts else "steps.chat.metrics.accept_length < 2"}]},
    ]
    path = engines.playbook(tmp_path / "p.yaml", engines.vllm(port, draft, EAGER), steps, before=[{"id": "taps", "patch": patch}])
    source = next((real_dir() / "venv" / "lib").glob("python*")) / "site-packages" / (DRAFT_MODULE.replace(".", "/") + ".py")
    before = hashlib.sha256(source.read_bytes()).hexdigest()
    outcome = run(lab, path)
    assert outcome.json["verdict"] == "passed", outcome.err
    assert hashlib.sha256(source.read_bytes()).hexdigest() == before
