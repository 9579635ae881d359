"""The founding script, translated, runs on the lab: what it could never do, its playbook does."""

from __future__ import annotations

import sys

import pytest

from tests.e2e.test_story import nothing_stays

pytestmark = pytest.mark.e2e
SCRIPT = """\
pkill -9 python; sleep 5
nohup python -m lab_engine.launch_server --port {port} --speculative-algorithm EAGLE3 &
while ! curl -s localhost:{port}/health | grep -q ok; do sleep 5; done
curl -s localhost:{port}/v1/chat/completions -d '{{"messages": [{{"role": "user", "content": "Count to 200"}}], "max_tokens": 256, "ignore_eos": true}}'
sleep 2
grep 'accept len' nohup.out
"""


def test_the_translated_script_passes_and_leaves_nothing(lab, port, tmp_path):
    (tmp_path / "founding.sh").write_text(SCRIPT.format(port=port))
    made = lab.runbook("new", "--from-shell", tmp_path / "founding.sh")
    assert made.code == 0, made.err
    named = {
        code for code in ("wide-kill", "lost-output", "endless-loop", "empty-body", "old-log", "fixed-sleep") if f"[{code}]" in made.err
    }
    assert len(named) == 6, made.err
    (tmp_path / "founding.yaml").write_text(made.out)
    outcome = lab.runbook("run", tmp_path / "founding.yaml", "--json")
    assert outcome.code == 0, outcome.err
    assert {row["id"] for row in outcome.json["steps"]} >= {"server", "up", "chat", "seen"}
    nothing_stays(lab, outcome)


def test_an_engine_that_the_lab_does_not_have_is_said_with_the_python_that_lacks_it(lab, port, tmp_path):
    (tmp_path / "start.sh").write_text(SCRIPT.format(port=port).replace("lab_engine", "sglang").replace("pkill -9 python; sleep 5\n", ""))
    (tmp_path / "start.yaml").write_text(lab.runbook("new", "--from-shell", tmp_path / "start.sh").out)
    outcome = lab.runbook("run", tmp_path / "start.yaml", "--json")
    assert (outcome.code, outcome.json["kind"]) == (5, "config"), outcome.err
    assert f"`{sys.executable}` has no module `sglang`" in outcome.json["next"][0]
