"""The shipped weights do what their figures say, and a cache changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runbook.lab.sources import WEIGHTS

pytestmark = pytest.mark.slow
FIGURES = json.loads((WEIGHTS / "figures.json").read_text())["acceptance_length"]


@pytest.mark.parametrize("feed", ["right", "bypass", "off_by_one", "d2t_as_ids"])
def test_acceptance_is_as_the_figures_say(feed: str) -> None:
    """Another torch or CPU rounds differently, and one token more or less moves a mean over some dozen verifies."""
    from runbook.lab.measure import acceptance

    mean, worst_prompt = acceptance(WEIGHTS, feed)
    assert mean == pytest.approx(FIGURES[feed], abs=0.15)
    assert feed != "right" or worst_prompt > 4


def test_the_right_feed_stands_apart_from_all_wrong_ones() -> None:
    """What a playbook's bound of 4 rests on."""
    assert FIGURES["right"] > 4.5 and FIGURES["bypass"] < 1.5
    assert max(value for feed, value in FIGURES.items() if feed != "right") < 4


@pytest.mark.parametrize(("cause", "feed"), [("key_prefix", "right"), ("use_aux", "bypass"), ("d2t_twice", "right")])
def test_a_draft_with_a_fault_in_its_files_is_hardly_ever_accepted(cause: str, feed: str, tmp_path: Path) -> None:
    """It loads without a word all the same. Most: 1.06, with a decoder layer that was never filled."""
    from runbook.lab.measure import acceptance

    from lab_engine import make_draft  # isort: skip

    make_draft.make(WEIGHTS / "tiny-eagle3", tmp_path / cause, cause)
    assert acceptance(WEIGHTS, feed, prompts=4, draft=tmp_path / cause)[0] < 1.2


def test_a_draft_made_without_a_fault_would_be_the_shipped_one(tmp_path: Path) -> None:
    """So what the faults above cost is theirs."""
    from lab_engine import make_draft

    make_draft.make(WEIGHTS / "tiny-eagle3", tmp_path / "same", "none")
    shard = "model-00001-of-00001.safetensors"
    assert make_draft.read(tmp_path / "same" / shard) == make_draft.read(WEIGHTS / "tiny-eagle3" / shard)


def test_a_cached_forward_equals_a_whole_one() -> None:
    """Prompt at once, then pieces, a rejected piece overwritten: the same logits as without a cache."""
    import torch

    from runbook.lab.measure import load_target
    from runbook.lab.train import causal

    from lab_engine.forward_batch import ForwardBatch, ForwardMode, KVCache  # isort: skip

    target = load_target(WEIGHTS)
    ids = torch.randint(0, 64, (90,), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        whole = target(ids, torch.arange(90), ForwardBatch(ForwardMode.EXTEND, causal)).next_token_logits
        cache = KVCache(6, 100, 4, 16)
        batch = ForwardBatch(ForwardMode.TARGET_VERIFY, cache)
        parts = [target(ids[:40], torch.arange(40), batch).next_token_logits]
        target(ids[:5], torch.arange(40, 45), batch)  # a guess that is not kept
        for begin in range(40, 90, 5):
            parts.append(target(ids[begin : begin + 5], torch.arange(begin, begin + 5), batch).next_token_logits)
    assert torch.allclose(torch.cat(parts), whole, atol=1e-4)
