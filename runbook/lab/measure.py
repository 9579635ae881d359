"""Acceptance length of a target and its draft, for the right way of feeding the draft and for the wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from runbook.lab.sources import import_engine

import_engine()
from lab_engine import loader  # type: ignore[import-not-found]  # noqa: E402
from lab_engine.models.llama import LlamaForCausalLM  # type: ignore[import-not-found]  # noqa: E402
from lab_engine.models.llama_eagle3 import LlamaForCausalLMEagle3  # type: ignore[import-not-found]  # noqa: E402
from lab_engine.speculative.eagle_worker import EagleWorker  # type: ignore[import-not-found]  # noqa: E402

PROMPTS, TOKENS = 8, 64


class Feed(NamedTuple):
    """What the draft is handed: the target layers whose outputs are captured (none: the plain final hidden states), or zeros; and
    whether its vocabulary map is misread."""

    layers: list[int] | None
    blank: bool = False
    d2t_as_ids: bool = False


FEEDS = {
    "right": Feed([0, 2, 4]),
    "bypass": Feed(None),
    "zeros": Feed([0, 2, 4], blank=True),
    "swapped": Feed([4, 2, 0]),
    "off_by_one": Feed([1, 3, 5]),
    "last_three_times": Feed([5, 5, 5]),
    "d2t_as_ids": Feed([0, 2, 4], d2t_as_ids=True),
}


def measure(weights: Path, prompts: int = PROMPTS, tokens: int = TOKENS) -> dict[str, float]:
    """Mean accepted tokens per verify, bonus included (best: 5), over random prompts of 16 symbols, greedy."""
    return {feed: round(acceptance(weights, feed, prompts, tokens)[0], 3) for feed in FEEDS}


@torch.no_grad()
def acceptance(weights: Path, feed: str, prompts: int = PROMPTS, tokens: int = TOKENS, draft: Path | None = None) -> tuple[float, float]:
    """(mean over all verifies, worst prompt) for one way of feeding; `draft`: a folder other than the shipped one."""
    torch.set_num_threads(1)  # matrices this small only lose by being shared out
    worker = _worker(weights, draft or weights / "tiny-eagle3", FEEDS[feed])
    generator = torch.Generator().manual_seed(7)
    verifies, made, worst = 0, 0, 5.0
    for _ in range(prompts):
        prompt = torch.randint(0, worker.target.config["vocab_size"], (16,), generator=generator).tolist()
        sequence = worker.sequence(prompt, 16 + tokens + 8)
        worker.prefill(sequence)
        while len(sequence.ids) < 16 + tokens:
            worker.step(sequence)
        verifies += sequence.verifies
        made += sequence.accepted + sequence.verifies
        worst = min(worst, 1 + sequence.accepted / sequence.verifies)
    return made / verifies, worst


def load_target(weights: Path) -> LlamaForCausalLM:
    """The target with its trained weights."""
    target = loader.build(LlamaForCausalLM, loader.config_of(weights / "tiny"))
    loader.load(target, weights / "tiny")
    return target


def _worker(weights: Path, folder: Path, feed: Feed) -> EagleWorker:
    target = load_target(weights)
    torch.manual_seed(0)  # what a checkpoint does not fill stays as it was drawn
    draft = loader.build(LlamaForCausalLMEagle3, loader.config_of(folder))
    loader.load(draft, folder)
    draft.set_embed(target.model.embed_tokens.weight)
    if feed.layers is not None:
        target.set_eagle3_layers_to_capture(feed.layers)
    return EagleWorker(target, draft, num_steps=4, blank=feed.blank, d2t_as_ids=feed.d2t_as_ids)
