"""`transformers serve` itself, in one start on the lab."""

from __future__ import annotations

import shutil

from tests.real import engines
from tests.real.conftest import need
from tests.real.place import model, real_dir

QUESTION = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 16, "model": str(model("target"))}
STEPS: list[engines.Step] = [
    {"id": "up", "wait_healthy": {"server": "server", "timeout": "10m"}},
    {"id": "chat", "request": {"server": "server", "post": "/v1/chat/completions", "timeout": "4m", "json": QUESTION}},
    {"id": "answered", "assert": ["len(steps.chat.json.choices) == 1"]},
]


def test_it_serves_and_is_ended(lab, port, tmp_path):
    """Its health path answers before the model is loaded; the request waits for that."""
    need("transformers")
    folder = real_dir() / "stories" / "transformers"
    shutil.rmtree(folder, ignore_errors=True)
    path = engines.playbook(tmp_path / "p.yaml", engines.transformers(port), STEPS)
    outcome = lab.runbook("run", path, "--json", "--no-suspend", "--out", folder, seconds=900)
    assert (outcome.code, outcome.json["verdict"]) == (0, "passed"), outcome.err
    assert outcome.json["left_behind"] == [] and lab.processes() == []
