"""patch on a real host: the right file, the undo record first, and nothing written when anything is wrong."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from runbook.probes.transform import Transformed, transform
from runbook.steps.base import Patched
from runbook.steps.patch import Patch, interpreter_of
from tests.support.context import LocalContext
from tests.support.patching import Box, make

PROBE = {"at": "Model.forward", "after": "hidden = batch.hidden", "show": {"n": "len(hidden)"}}


def patch(**body):
    return make(Patch, {"module": "engine.model", "probes": [PROBE], **body})


@pytest.mark.slow
def test_the_file_of_the_launch_is_patched_and_the_undo_record_comes_first(patch_ctx, box):
    before = box.model.read_bytes()
    result = patch_ctx.do(patch())
    assert result.verdict == "passed", result.reason
    assert result.fields["path"] == str(box.model)
    assert [key for key in patch_ctx.order if key.startswith(("owe patch", "patch"))] == [
        "owe patch:taps:local",
        "patch started",
        "patch done",
    ]
    kept = patch_ctx.patched("taps")
    assert isinstance(kept, Patched) and kept.launch == "server"
    assert Path(kept.record.folder, "original").read_bytes() == before
    assert os.path.getsize(kept.side_file) == 0
    assert "+        _rb_" in result.fields["diff"] and len(result.fields["diff"]) < 1500
    assert result.fields["probes"][0]["line"] == 6


def test_check_mode_shows_the_change_and_makes_none(patch_ctx, box):
    before = box.model.read_bytes()
    patch_ctx.check_mode = True
    result = patch_ctx.do(patch())
    assert result.verdict == "passed" and result.reason == f"would patch {box.model}"
    assert "_rb_" in result.fields["diff"]
    assert box.model.read_bytes() == before and not patch_ctx.owed
    assert patch_ctx.host.glob(f"{patch_ctx.host.facts.state_dir}/runs/{patch_ctx.run.id}/**") == ()


WRONG = {
    "an anchor that is not there": ({"probes": [{**PROBE, "after": "hiden = batch.hidden"}]}, "failed", "line 6: `hidden = batch.hidden`"),
    "an unknown function": ({"probes": [{**PROBE, "at": "Model.backward"}]}, "failed", "there is no function `Model.backward`"),
    "an unknown module": ({"module": "engine.modell"}, "failed", "engine.modell"),
    "a text that is there twice": ({"probes": [], "replace": [{"find": "hidden", "with": "x"}]}, "failed", "times, not 1"),
    "a file that is not there": ({"module": "", "file": "/nonexistent/model.py"}, "failed", "/nonexistent/model.py"),
}


@pytest.mark.parametrize("case", WRONG)
def test_nothing_is_written_for(patch_ctx, box, case):
    before = box.model.read_bytes()
    body, verdict, text = WRONG[case]
    result = patch_ctx.do(patch(**body))
    assert result.verdict == verdict and text in result.reason, result.reason
    assert box.model.read_bytes() == before and not patch_ctx.owed and patch_ctx.patched("taps") is None


@pytest.mark.slow
def test_a_read_only_file_is_failed_with_its_reason_and_owes_nothing(patch_ctx, box):
    box.model.chmod(0o444)
    result = patch_ctx.do(patch())
    assert result.verdict == "failed" and "read-only" in result.reason
    assert patch_ctx.settled == {"patch:taps:local": "never written"}


@pytest.mark.slow
def test_a_file_with_another_runs_patch_is_refused_and_names_that_run(patch_ctx, box, tmp_path):
    other = LocalContext(patch_ctx.host, tmp_path / "other", run=patch_ctx.run.id + "x", launches={"server": box.body()}).at("taps")
    assert other.do(patch()).verdict == "passed"
    patched = box.model.read_bytes()
    result = patch_ctx.do(patch())
    assert result.verdict == "refused" and f"run {other.run.id}" in result.reason
    assert box.model.read_bytes() == patched
    patch_ctx.host.restore(other.run.id)
    patch_ctx.host.retire(other.run.id)


def test_a_patch_whose_undo_record_is_lost_is_still_seen_in_the_file(patch_ctx, box):
    left = transform(box.model.read_bytes(), [], [], marker="oldrun/taps/1", side_file="/x", path=str(box.model), run="oldrun")
    assert isinstance(left, Transformed)
    box.model.write_bytes(left.data)
    result = patch_ctx.do(patch())
    assert result.verdict == "refused" and "run oldrun" in result.reason


def test_a_second_copy_on_the_path_is_a_finding(patch_ctx, box, tmp_path):
    Box(tmp_path / "copy")
    patch_ctx.bodies["server"]["env"] = {"PYTHONPATH": str(tmp_path / "copy")}
    result = patch_ctx.do(patch())
    assert result.verdict == "passed", result.reason
    assert [code for code, _ in patch_ctx.findings] == ["several_copies"]
    assert result.fields["others"] == [str(tmp_path / "copy" / "engine" / "model.py")]


def test_an_edit_of_a_file_that_is_not_python_has_no_block(patch_ctx, box, tmp_path):
    config = tmp_path / "draft.json"
    config.write_bytes(b'{"use_aux": false}\xff')
    result = patch_ctx.do(patch(module="", file=str(config), probes=[], replace=[{"find": "false", "with": "true"}]))
    assert result.verdict == "passed", result.reason
    assert config.read_bytes() == b'{"use_aux": true}\xff'


def test_the_interpreter_is_that_of_the_command(patch_host, tmp_path):
    script = tmp_path / "serve"
    script.write_text(f"#!{sys.executable}\n")
    script.chmod(0o755)
    seen = [
        interpreter_of(patch_host, {"command": command, **more}, {})
        for command, more in [
            (["python", "-m", "x"], {}),
            ("FOO=1 numactl -N 0 /opt/venv/bin/python3 -m x", {}),
            ([str(script), "model"], {}),
            (["python", "-m", "x"], {"python": "/opt/py"}),
            ("exec 'unclosed", {}),
        ]
    ]
    assert seen == ["", "/opt/venv/bin/python3", sys.executable, "/opt/py", ""]


def test_static_mistakes_are_told_with_their_place():
    step = make(Patch, {"probes": [{"at": "f", "show": ["x +"]}], "undo_after": "500ms", "file": "model.py"})
    assert [path for path, _, _ in step.problems()] == ["file", "undo_after", "probes.0.at", "probes.0.show"]
    assert [path for path, _, _ in make(Patch, {}).problems()] == ["", ""]
