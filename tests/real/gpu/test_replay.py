"""A probe in what a CUDA graph replays: its silence is no evidence. The twin without graphs sees what there was to be seen.

And what the GPU itself tells meanwhile is recorded, or the reason why not.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from runbook.model.event import SampleTaken
from runbook.model.gpu import GpuSample
from runbook.model.sample import Absent, Blind, Seen
from runbook.probes.explanations import REPLAYED
from tests.e2e.cli import Outcome
from tests.real.gpu.playing import REPLAY, ended, play
from tests.real.looking import free_port


@pytest.fixture(scope="module")
def replayed(card) -> Outcome:
    return play(card, free_port(), "replayed", REPLAY, graphs=True)


@pytest.fixture(scope="module")
def eager(card) -> Outcome:
    return play(card, free_port(), "eager", REPLAY, graphs=False)


def test_silence_under_a_replayed_graph_is_neither_a_hit_nor_its_absence(replayed):
    for step in ("reached", "silent"):
        end = ended(replayed, step)
        assert (end.verdict, end.result["outcome"]) == ("undecided", "unseen"), end
        assert any(REPLAYED in why for why in end.result["left"])


def test_the_same_request_without_graphs_reaches_the_probe(eager):
    assert (ended(eager, "reached").verdict, ended(eager, "silent").verdict) == ("passed", "failed")
    assert all(hit["hidden"]["shape"] == hit["embeds"]["shape"] for hit in ended(eager, "reached").result["hits"])


def gpu_looks(outcome: Outcome, index: int) -> list[GpuSample]:
    """All looks at that GPU that saw it."""
    samples = [event.sample for event in outcome.events if isinstance(event, SampleTaken)]
    seen = [sample.gpus.value for sample in samples if isinstance(sample.gpus, Seen)]
    return [gpu for gpus in seen for gpu in gpus if gpu.index == index]


def test_memory_load_power_and_throttling_are_recorded(card, eager):
    """What the driver's tool itself calls not available may be unknown, and nothing else."""
    looks = gpu_looks(eager, card.index)
    assert looks and max(gpu.used for gpu in looks) > min(gpu.used for gpu in looks), "the server's memory was not seen"
    assert any(gpu.holders for gpu in looks), "nobody was named who holds the memory"
    last = looks[-1]
    for field, read in (
        ("utilization.gpu", last.utilisation),
        ("power.draw", last.power_w),
        ("clocks_event_reasons.active", last.throttle),
    ):
        assert (read is not None) == given(card.index, field), f"{field}: {read}"


def given(index: int, field: str) -> bool:
    """Whether the tool has a figure for it."""
    argv = [shutil.which("nvidia-smi") or "", f"--query-gpu={field}", "--format=csv,noheader,nounits", f"--id={index}"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    if done.returncode and "event" in field:
        return given(index, field.replace("event", "throttle"))
    return done.returncode == 0 and done.stdout.strip()[:1].isdigit()


def test_no_look_at_the_gpus_was_blind(eager):
    blind = [
        event.sample.gpus for event in eager.events if isinstance(event, SampleTaken) and isinstance(event.sample.gpus, (Blind, Absent))
    ]
    assert {one.reason for one in blind} <= {"not asked"}


def test_the_bundle_has_the_gpus_and_the_kernels_lines_or_says_why_not(eager):
    """An Xid stands in the kernel's log, which may need root: then the reason is there, not an empty list."""
    folder = Path(eager.json["transcript"]["dir"])
    (index,) = folder.glob("evidence/looked/index.json")
    items = {item["item"]: item for item in json.loads(index.read_text())["items"]}
    assert items["gpu"]["status"] == "taken", items["gpu"]
    assert items["kernel"]["status"] == "taken" or items["kernel"]["reason"], items["kernel"]
