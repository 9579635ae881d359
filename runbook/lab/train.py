"""Train the lab's target model and its EAGLE-3 draft, measure the acceptance length, write weights and figures.

    python -m runbook.lab.train --out DIR

The language is an order-2 Markov chain over 64 symbols. The target learns the language; the draft learns what the target
would say, from three of its layers, by training-time test: each draft step after the first sees the draft's own hidden
state, as it will when serving. Last, its head is cut to the symbols that the target writes most. One thread, fixed seeds:
the same torch build on the same kind of CPU gives the same weights.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from runbook.lab.sources import import_engine
from runbook.lab.vocabulary import cut_head

import_engine()
from lab_engine.forward_batch import EagleDraftInput, ForwardBatch, ForwardMode  # type: ignore[import-not-found]  # noqa: E402
from lab_engine.layers import attend, windowed  # type: ignore[import-not-found]  # noqa: E402
from lab_engine.models.llama import LlamaForCausalLM  # type: ignore[import-not-found]  # noqa: E402
from lab_engine.models.llama_eagle3 import LlamaForCausalLMEagle3  # type: ignore[import-not-found]  # noqa: E402

TARGET: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "vocab_size": 64,
}
DRAFT: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "vocab_size": 64,
    "draft_vocab_size": 64,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 2, 4], "use_aux_hidden_state": True},
}
BATCH, LENGTH, CHAIN = 64, 32, 4
SHARDS = 4
PEAK_RATE = 6e-3
LANGUAGE_SEED, TARGET_SEED, DRAFT_SEED = 1, 0, 2
CHANCE = (0.85, 0.08, 0.05, 0.02)
"""Probability of each of the four successors of a pair."""


class Language:
    """An order-2 Markov chain: each pair of symbols has four successors.

    With the second symbol fixed, each successor is a permutation of the first. So the likeliest text from any pair runs on for hundreds
    of symbols before it repeats, and an acceptance length is a mean over that many pairs, not over a loop of two.
    """

    def __init__(self, vocabulary: int, seed: int) -> None:
        self.vocabulary = vocabulary
        generator = torch.Generator().manual_seed(seed)
        permutations = [torch.randperm(vocabulary, generator=generator) for _ in range(vocabulary * 4)]
        self.successors = torch.stack(permutations).view(vocabulary, 4, vocabulary).permute(2, 0, 1)
        self.chance = torch.tensor(CHANCE)

    def batch(self, rows: int, length: int, generator: torch.Generator) -> torch.Tensor:
        """(rows, length) symbols; each row begins with a random pair."""
        x = torch.randint(0, self.vocabulary, (rows, length), generator=generator)
        choice = torch.multinomial(self.chance, rows * length, replacement=True, generator=generator).view(rows, length)
        for t in range(2, length):
            x[:, t] = self.successors[x[:, t - 2], x[:, t - 1], choice[:, t]]
        return x


def causal(layer_id: int, q: Any, k: Any, v: Any, positions: Any) -> torch.Tensor:
    """Attention within one batch of whole sequences."""
    return attend(q, k, v, windowed(positions, positions))


class ChainAttention:
    """Attention of draft chains, one from every position: step 0 over the sequence, step s also over the chain's own steps.

    This is what the KV cache gives when serving: verified positions, then what the draft itself has put behind them.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __call__(self, layer_id: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        self.steps.append((k, v))
        if len(self.steps) == 1:
            return causal(layer_id, q, k, v, positions)
        (k0, v0), own = self.steps[0], self.steps[1:]
        n, s = q.shape[1], len(own)
        base = torch.arange(n)
        mask = windowed(positions, base) & (base[None, :] <= base[:, None])
        scores = torch.einsum("bthd,buhd->bthu", q, k0[:, :n]).masked_fill(~mask[:, None, :], float("-inf"))
        along = torch.stack([(q * k_own[:, :n]).sum(-1) for k_own, _ in own], -1)
        weights = torch.cat([scores, along], -1).div(q.shape[-1] ** 0.5).softmax(-1)
        out = torch.einsum("bthu,buhd->bthd", weights[..., :n], v0[:, :n])
        for j in range(s):
            out = out + weights[..., n + j, None] * own[j][1][:, :n]
        return out.flatten(-2)


def train_target(language: Language, steps: int) -> LlamaForCausalLM:
    """Next-symbol prediction; the first two symbols of a row are random and not counted."""
    torch.manual_seed(TARGET_SEED)
    generator = torch.Generator().manual_seed(TARGET_SEED)
    model = LlamaForCausalLM(TARGET)
    optimizer, schedule = _optimizer(model, steps)
    positions = torch.arange(LENGTH)
    for step in range(steps):
        x = language.batch(BATCH, LENGTH, generator)
        logits = model(x, positions, ForwardBatch(ForwardMode.EXTEND, causal)).next_token_logits
        loss = F.cross_entropy(logits[:, 1:-1].flatten(0, 1), x[:, 2:].flatten())
        _step(optimizer, schedule, loss)
        _report("target", step, steps, loss)
    return model.requires_grad_(False)


def train_draft(language: Language, target: LlamaForCausalLM, steps: int) -> LlamaForCausalLMEagle3:
    """Position t sees the target's hidden states of t and the symbol t+1, and predicts what the target says for t+2."""
    torch.manual_seed(DRAFT_SEED)
    generator = torch.Generator().manual_seed(DRAFT_SEED)
    target.set_eagle3_layers_to_capture(DRAFT["eagle_config"]["eagle_aux_hidden_state_layer_ids"])
    draft = LlamaForCausalLMEagle3(DRAFT)
    draft.set_embed(target.model.embed_tokens.weight)
    optimizer, schedule = _optimizer(draft, steps)
    for step in range(steps):
        x = language.batch(BATCH, LENGTH, generator)
        seen = target(x, torch.arange(LENGTH), ForwardBatch(ForwardMode.EXTEND, causal))
        said = seen.next_token_logits.argmax(-1)
        attention, hidden, loss = ChainAttention(), seen.hidden_states, torch.zeros(())
        for s in range(CHAIN):
            n = LENGTH - 1 - s
            batch = ForwardBatch(ForwardMode.DRAFT_EXTEND, attention, EagleDraftInput(hidden[:, :n]))
            out = draft(x[:, 1 + s :], torch.arange(n) + s, batch)
            loss = loss + F.cross_entropy(out.next_token_logits.flatten(0, 1), said[:, 1 + s :].flatten()) / CHAIN
            hidden = out.hidden_states
        _step(optimizer, schedule, loss)
        _report("draft", step, steps, loss)
    return draft.requires_grad_(False)


def save(out: Path, target: LlamaForCausalLM, draft: LlamaForCausalLMEagle3) -> None:
    """Both models as safetensors with their configurations, weights in fp16; the draft without the embedding, which is the target's."""
    parts = target.state_dict()
    shards = [{n: v for n, v in parts.items() if _shard(n) == i} for i in range(SHARDS)]
    _save(out / "tiny", TARGET, shards)
    _save(out / "tiny-eagle3", draft.config, [{n: v for n, v in draft.state_dict().items() if n != "model.embed_tokens.weight"}])


def _shard(name: str) -> int:
    """Two layers a shard; embedding, norm and head lie in the last."""
    parts = name.split(".")
    return int(parts[2]) // 2 if parts[1] == "layers" else SHARDS - 1


def _save(folder: Path, config: dict[str, Any], shards: list[dict[str, torch.Tensor]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for i, tensors in enumerate(shards):
        (folder / f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors").write_bytes(_safetensors(tensors))


def _safetensors(tensors: dict[str, torch.Tensor]) -> bytes:
    """The file format: header length, JSON header, raw data. The library's own writer would need numpy."""
    header: dict[str, Any] = {}
    data = b""
    for name, value in tensors.items():
        kind, stored = ("F16", value.half()) if value.is_floating_point() else ("I64", value)
        raw = bytes(stored.contiguous().view(torch.uint8).flatten().tolist())
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def _optimizer(model: torch.nn.Module, steps: int) -> tuple[Any, Any]:
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, PEAK_RATE, betas=(0.9, 0.98))
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_RATE, total_steps=steps)


def _step(optimizer: Any, schedule: Any, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()


def _report(what: str, step: int, steps: int, loss: torch.Tensor) -> None:
    if step % 100 == 99 or step == steps - 1:
        sys.stderr.write(f"{what} {step + 1}/{steps} loss {loss.item():.3f}\n")


def main() -> int:
    """Train both, save them, measure what was saved."""
    parser = argparse.ArgumentParser(prog="python -m runbook.lab.train", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for target/, draft/ and figures.json")
    parser.add_argument("--target-steps", type=int, default=800)
    parser.add_argument("--draft-steps", type=int, default=600)
    args = parser.parse_args()
    torch.set_num_threads(1)
    begin = time.process_time()
    language = Language(TARGET["vocab_size"], LANGUAGE_SEED)
    target = train_target(language, args.target_steps)
    draft = cut_head(target, train_draft(language, target, args.draft_steps))
    save(args.out, target, draft)
    seconds = time.process_time() - begin
    from runbook.lab.measure import measure

    figures = {"torch": torch.__version__, "train_cpu_s": round(seconds), "acceptance_length": measure(args.out)}
    (args.out / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")
    sys.stderr.write(json.dumps(figures) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
