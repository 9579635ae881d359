"""What a probe's silence means, on a real server: one playbook for each of the four outcomes, and one whose stderr goes nowhere."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from runbook.model.event import StepEnded
from tests.e2e.cli import Outcome
from tests.e2e.test_story import DRAFT, fingerprint, nothing_stays

pytestmark = pytest.mark.e2e
FLAGS = "--disable-cuda-graph --speculative-algorithm"
PROBE = {"at": "LlamaModel.forward", "where": "entry", "show": ["input_ids"], "hits": "20 per 10s"}
CHAT = {"post": "/v1/chat/completions", "json": {"model": "tiny", "messages": [{"role": "user", "content": "Count."}], "max_tokens": 16}}
HEALTH = {"get": "/health"}


def playbook(folder: Path, port: int, *, algorithm: str = "EAGLE3", requests: list[dict[str, Any]], **changes: Any) -> Path:
    """patch, launch, wait, the requests in order (r0, r1, …), then expect_probe in the window of the last one."""
    last = f"r{len(requests) - 1}"
    place = {"file": changes["file"]} if "file" in changes else {"module": "lab_engine.models.llama_eagle3"}
    command = f"exec python -m lab_engine.launch_server --port {port} {FLAGS} {algorithm}{changes.get('after', '')}"
    steps = [
        {"id": "taps", "patch": {"for": "server", **place, "probes": [{**PROBE, **changes.get("probe", {})}]}},
        {"id": "server", "launch": {"command": command, "port": port, "profile": "sglang"}},
        {"id": "up", "wait_healthy": {"server": "server", "timeout": "2m"}},
        *({"id": f"r{number}", "request": {"server": "server", **request}} for number, request in enumerate(requests)),
        {"id": "seen", "expect_probe": {"probe": "taps", "since": last, "until": last, "expect": changes.get("expect", "fired")}},
    ]
    path = folder / "play.yaml"
    path.write_text(yaml.safe_dump({"runbook": 1, "hosts": {"gpu": "lab"}, "steps": steps}, sort_keys=False))
    return path


def seen(outcome: Outcome) -> dict[str, Any]:
    """The result of expect_probe."""
    [end] = [event for event in outcome.events if isinstance(event, StepEnded) and event.step == "seen"]
    return dict(end.result)


def transcript(outcome: Outcome) -> str:
    return Path(outcome.json["transcript"]["markdown"]).read_text()


def excluded(outcome: Outcome) -> set[str]:
    """Each explanation that was excluded; the transcript has it in a row with what excludes it."""
    text = transcript(outcome)
    rows = seen(outcome)["excluded"]
    for row in rows:
        assert f"{row['explanation']} |" in text and row["by"][:20] in text, row
    return {row["explanation"] for row in rows}


def test_fired(lab, port, tmp_path):
    before = fingerprint(lab.home / DRAFT)
    outcome = lab.runbook("run", playbook(tmp_path, port, requests=[CHAT]), "--json")
    assert outcome.code == 0, outcome.err
    result = seen(outcome)
    assert result["outcome"] == "fired" and {hit["probe"] for hit in result["hits"]} == {0}
    assert {one["file"] for one in result["imports"]} == {str(lab.home / DRAFT)}
    assert "fired" in transcript(outcome)
    assert "not_in_log" not in {finding["code"] for finding in outcome.json["findings"]}
    assert fingerprint(lab.home / DRAFT) == before
    nothing_stays(lab, outcome)


def test_not_reached_when_only_health_checks_came_and_nothing_is_speculative(lab, port, tmp_path):
    """The module is imported, the class never used: the silence is evidence, and says what it rests on."""
    path = playbook(tmp_path, port, algorithm="NONE", requests=[HEALTH], expect="not_reached")
    outcome = lab.runbook("run", path, "--json")
    assert outcome.code == 0, outcome.err
    result = seen(outcome)
    assert (result["outcome"], result["hits"], result["left"]) == ("not_reached", [], [])
    assert excluded(outcome) >= {
        "another copy of the file was imported",
        "the process is older than the patch",
        "stale bytecode ran",
        "the stream was buffered",
        "the log was rotated or is another one",
        "its import failed and the engine went on without it",
        "another function runs in its place",
        "the bucket was used up",
        "a graph replays it without Python",
    }
    nothing_stays(lab, outcome)


def test_not_armed_when_another_copy_of_the_package_was_patched(lab, port, tmp_path):
    copy = lab.home / "checkout" / "lab_engine"
    shutil.copytree(lab.home / "lab_engine", copy)
    patched = copy / "models" / "llama_eagle3.py"
    before = fingerprint(patched)
    outcome = lab.runbook("run", playbook(tmp_path, port, requests=[CHAT], file=str(patched)), "--json")
    assert outcome.code == 7, outcome.err
    assert outcome.json["verdict"] == "invalid_experiment"
    result = seen(outcome)
    assert (result["outcome"], result["hits"], result["imports"]) == ("not_armed", [], [])
    assert str(patched) in outcome.json["reason"] and "was not loaded" in outcome.json["reason"]
    assert f"imports {lab.home}/lab_engine/models/llama_eagle3.py" in outcome.json["reason"]
    assert outcome.json["reason"].partition("was not loaded: ")[2][:60] in transcript(outcome)
    assert fingerprint(patched) == before
    shutil.rmtree(copy.parent)
    nothing_stays(lab, outcome)


def test_unseen_when_a_health_check_has_used_the_only_hit(lab, port, tmp_path):
    """The founding mistake: a print that fires once is used up before anybody looks."""
    path = playbook(tmp_path, port, requests=[HEALTH, HEALTH], probe={"hits": "1 per 10m"})
    outcome = lab.runbook("run", path, "--no-suspend", "--json")
    assert outcome.code == 9, outcome.err
    result = seen(outcome)
    assert (result["outcome"], result["hits"]) == ("unseen", [])
    assert [left for left in result["left"] if left.startswith("the bucket was used up")] and "used up" in outcome.json["reason"]
    assert excluded(outcome) >= {"another copy of the file was imported", "the process is older than the patch", "stale bytecode ran"}
    assert "the bucket was used up" in transcript(outcome)
    nothing_stays(lab, outcome)


def test_a_server_whose_stderr_goes_nowhere_still_fires_and_the_finding_says_so(lab, port, tmp_path):
    outcome = lab.runbook("run", playbook(tmp_path, port, requests=[CHAT], after=" 2>/dev/null"), "--json")
    assert outcome.code == 0, outcome.err
    assert seen(outcome)["outcome"] == "fired"
    [finding] = [finding for finding in outcome.json["findings"] if finding["code"] == "not_in_log"]
    assert finding["text"] in transcript(outcome)
    nothing_stays(lab, outcome)
