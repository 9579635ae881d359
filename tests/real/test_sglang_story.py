"""The founding story on SGLang itself, with the shipped playbook and a file of variables; the lab's nvidia-smi stands in for GPUs."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from runbook.model.event import SampleTaken
from runbook.model.sample import Seen
from tests.e2e.cli import STORY, Outcome
from tests.real.conftest import need
from tests.real.engines import SGLANG_VARS
from tests.real.place import real_dir

BEST = 5.0
"""Four drafted tokens and the target's own."""


@pytest.fixture(autouse=True)
def sglang():
    need("sglang")


def draft_module() -> Path:
    """The file that the probe goes into, in the unpacked package."""
    return real_dir() / "sglang" / "site" / "sglang" / "srt" / "models" / "llama_eagle3.py"


def fingerprint() -> tuple[str, int, int]:
    """Hash, mode, modification time."""
    stat = draft_module().stat()
    return hashlib.sha256(draft_module().read_bytes()).hexdigest(), stat.st_mode, stat.st_mtime_ns


def play(lab, port: int, name: str, playbook: Path = STORY, draft: str = "draft") -> Outcome:
    """One run, kept as $REAL_DIR/stories/NAME. Whatever its end, the package's file is as before and nothing stays."""
    before = fingerprint()
    env = {"REAL_DIR": str(real_dir()), "REAL_DRAFT": draft}
    folder = real_dir() / "stories" / name
    shutil.rmtree(folder, ignore_errors=True)
    flags = ["-e", f"@{SGLANG_VARS}", "-e", f"port={port}", "--json", "--out", folder]
    outcome = lab.runbook("run", playbook, *flags, env=env, seconds=900)
    assert fingerprint() == before, "the package's file is not as it was"
    assert outcome.json["left_behind"] == [], outcome.err
    assert lab.processes() == [] and lab.host_files() == []
    return outcome


def one_line(folder: Path, old: str, new: str) -> Path:
    """The shipped playbook with one line changed."""
    text = STORY.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
    path = folder / "story.yaml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


def claims(outcome: Outcome) -> list[dict]:
    """What the assert asked, with the values of its parts."""
    (end,) = [event for event in outcome.events if getattr(event, "type", "") == "assert" and hasattr(event, "verdict")]
    return end.result["claims"]


def value(claim: dict, part: str) -> str:
    """A value that a claim was made of."""
    return next(row["value"] for row in claim["parts"] if part in row["source"])


def test_fused_layers_pass(lab, port):
    outcome = play(lab, port, "passed")
    assert (outcome.code, outcome.json["verdict"]) == (0, "passed"), outcome.err
    assert float(value(claims(outcome)[1], "accept_length")) > BEST - 1


def test_the_aux_states_off_fails_by_the_width(lab, port):
    """The server is healthy, answers, and logs nothing of it.

    The acceptance length may stay high: this target's long answer runs into a circle of a few tokens, which a draft guesses unseeing.
    """
    outcome = play(lab, port, "failed", draft="draft_no_aux")
    assert (outcome.code, outcome.json["verdict"]) == (1, "failed"), outcome.err
    width, accept = claims(outcome)
    assert width["outcome"] == "false" and value(width, "h.hidden.shape[-1]") == value(width, "h.embeds.shape[-1]") == "128"
    assert float(value(accept, "accept_length")) < BEST


def test_text_expected_of_an_empty_body_is_a_wrong_check(lab, port, tmp_path):
    line = "expect: {info: {speculative_algorithm: '${{ vars.algorithm }}'}}"
    outcome = play(lab, port, "wrong_check", one_line(tmp_path, line, "expect: {body: ok}"))
    assert (outcome.code, outcome.json["verdict"]) == (7, "wrong_check"), outcome.err
    assert "empty" in outcome.json["reason"]
    samples = [event.sample for event in outcome.events if isinstance(event, SampleTaken)]
    first = next(sample.t for sample in samples if isinstance(sample.check, Seen) and sample.check.value.status == 200)
    end = next(event for event in outcome.events if getattr(event, "step", "") == "up" and hasattr(event, "verdict"))
    assert end.t - first < 10, "it waits no longer for what cannot come"


def test_layer_ids_past_the_end_crash_with_the_shapes_as_the_cause(lab, port):
    outcome = play(lab, port, "crashed", draft="draft_hidden_ids")
    assert (outcome.code, outcome.json["verdict"]) == (5, "crashed"), outcome.err
    assert "mat1 and mat2 shapes cannot be multiplied" in outcome.json["reason"], "its echoes are no cause"


def test_a_patch_in_another_copy_of_the_package_is_an_invalid_experiment(lab, port, tmp_path):
    other = real_dir() / "sglang" / "other" / "llama_eagle3.py"
    before = other.read_bytes()
    outcome = play(lab, port, "invalid_experiment", one_line(tmp_path, "module: ${{ vars.module }} ", f"file: {other} "))
    assert (outcome.code, outcome.json["verdict"]) == (7, "invalid_experiment"), outcome.err
    assert other.read_bytes() == before
