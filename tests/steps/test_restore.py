"""restore gives back exactly what was there, and never somebody else's edit."""

from __future__ import annotations

import os

import pytest

from runbook.steps.patch import Patch
from runbook.steps.restore import Restore
from tests.support.patching import make

PATCH = make(Patch, {"module": "engine.model", "probes": [{"at": "Model.forward", "after": "hidden = batch.hidden"}]})


@pytest.mark.slow
def test_bytes_mode_and_times_come_back(patch_ctx, box):
    model = box.model
    model.chmod(0o640)
    os.utime(model, ns=(10**18, 10**18 + 123))
    before = model.read_bytes()
    assert patch_ctx.do(PATCH).verdict == "passed" and model.read_bytes() != before
    result = patch_ctx.at("undo").do(make(Restore, {"patch": "taps"}))
    assert result.verdict == "passed" and result.fields["restored"] == [str(model)]
    assert (model.read_bytes(), model.stat().st_mode & 0o777, model.stat().st_mtime_ns) == (before, 0o640, 10**18 + 123)
    assert patch_ctx.settled["patch:taps:local"] == "restored" and "patch:taps:local" not in patch_ctx.owed


@pytest.mark.slow
def test_somebody_elses_edit_is_left_alone_and_named(patch_ctx, box):
    patch_ctx.do(PATCH)
    box.model.write_text("mine = 1\n")
    result = patch_ctx.at("undo").do(make(Restore, {}))
    assert result.verdict == "failed" and "somebody else" in result.reason
    assert box.model.read_text() == "mine = 1\n"
    conflict = result.fields["conflicts"][0]
    assert len({conflict["sha_before"], conflict["sha_patched"], conflict["sha_now"]}) == 3
    assert "patch:taps:local" in patch_ctx.owed


def test_what_never_happened_has_nothing_to_restore(patch_ctx, box):
    result = patch_ctx.at("undo").do(make(Restore, {"patch": "taps"}))
    assert (result.verdict, result.reason) == ("passed", "nothing to restore")


@pytest.mark.slow
def test_all_restores_a_stack_of_patches_of_one_file(patch_ctx, box):
    before = box.model.read_bytes()
    patch_ctx.at("one").do(PATCH)
    second = make(Patch, {"module": "engine.model", "probes": [{"at": "Model.forward", "before": "return hidden"}]})
    assert patch_ctx.at("two").do(second).verdict == "passed"
    assert patch_ctx.at("undo").do(make(Restore, {})).verdict == "passed"
    assert box.model.read_bytes() == before


def test_check_mode_leaves_the_patch_in_place(patch_ctx, box):
    patch_ctx.do(PATCH)
    patched = box.model.read_bytes()
    patch_ctx.check_mode = True
    assert patch_ctx.at("undo").do(make(Restore, {})).reason == f"would restore {box.model}"
    assert box.model.read_bytes() == patched
