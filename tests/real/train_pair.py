"""Trains a small Llama and its EAGLE-3 draft on a made-up language: venv/bin/python train_pair.py OUT. A few minutes on one core.

The language: each of 16 symbols follows the two before it, one of four with 85, 8, 5 and 2 %. A draft that sees the target's layers
can guess nearly every token; one that is fed anything else cannot. What is there already is not made again.

OUT/target            6 layers, hidden size 128, 384 tokens, in many small shards
OUT/draft             EAGLE-3 with the layer ids of SGLang, which reads the layer after each
OUT/draft_no_aux      the same weights; its config.json switches the hidden states of the target off
OUT/draft_hidden_ids  the same; the layer ids count hidden states, as vLLM does. For SGLang the last one is past the end
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers import models as tokenizer_models
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding, apply_rotary_pos_emb

SYMBOLS, FIRST, SHARES = 16, 70, torch.tensor([0.85, 0.08, 0.05, 0.02])
VOCABULARY, HIDDEN, HEAD = 384, 128, 64
TAPS = (1, 3, 5)
"""Counted as hidden states: 0 is the embedding, n comes after layer n - 1."""
STEPS, UNROLLED = 260, 3
SHAPES = ((24, 48), (4, 300))
"""Rows and length of a batch, in turn: many short texts to learn the language, long ones so that far positions are known too."""
DRAFTS = {
    "draft": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [tap - 1 for tap in TAPS]},
    "draft_no_aux": {"use_aux_hidden_state": False, "eagle_aux_hidden_state_layer_ids": [tap - 1 for tap in TAPS]},
    "draft_hidden_ids": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": list(TAPS)},
}
CONFIG = LlamaConfig(
    vocab_size=VOCABULARY,
    hidden_size=HIDDEN,
    intermediate_size=2 * HIDDEN,
    num_hidden_layers=6,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=HEAD,
    max_position_embeddings=512,
    tie_word_embeddings=False,
    bos_token_id=0,
    eos_token_id=1,
    pad_token_id=2,
)


class Language:
    """Text of the made-up language, always the same one; before it some tokens of anything, as a prompt has them."""

    def __init__(self) -> None:
        self.drawn = 0
        dice = torch.Generator().manual_seed(1)
        rows = [torch.randperm(SYMBOLS, generator=dice)[:4] for _ in range(SYMBOLS * SYMBOLS)]
        self.next = torch.stack(rows).view(SYMBOLS, SYMBOLS, 4)

    def text(self) -> tuple[Tensor, int]:
        """(rows, length) token ids, and where the language begins in them."""
        rows, length = SHAPES[self.drawn % len(SHAPES)]
        self.drawn += 1
        begin = int(torch.randint(0, length // 4, ()))
        anything = torch.randint(3, VOCABULARY, (rows, begin))
        tokens = torch.randint(0, SYMBOLS, (rows, 2))
        choice = torch.multinomial(SHARES.expand(rows, 4), length, replacement=True)
        for step in range(length - begin - 2):
            following = self.next[tokens[:, -2], tokens[:, -1], choice[:, step]]
            tokens = torch.cat([tokens, following[:, None]], 1)
        return torch.cat([anything, tokens + FIRST], 1), begin


class Layer(nn.Module):
    """The draft's one decoder layer: attends over embedding and hidden state side by side, twice as wide as a usual one."""

    def __init__(self) -> None:
        super().__init__()
        heads, shared = CONFIG.num_attention_heads, CONFIG.num_key_value_heads
        self.input_layernorm, self.hidden_norm, self.post_attention_layernorm = (LlamaRMSNorm(HIDDEN) for _ in range(3))
        self.self_attn = nn.Module()
        for name, count in (("q_proj", heads), ("k_proj", shared), ("v_proj", shared)):
            setattr(self.self_attn, name, nn.Linear(2 * HIDDEN, count * HEAD, bias=False))
        self.self_attn.o_proj = nn.Linear(heads * HEAD, HIDDEN, bias=False)
        self.mlp = LlamaMLP(CONFIG)

    def forward(self, embeds: Tensor, hidden: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        """All (rows, length, hidden)."""
        both = torch.cat([self.input_layernorm(embeds), self.hidden_norm(hidden)], -1)
        rows, length, _ = both.shape
        query, key, value = (
            getattr(self.self_attn, name)(both).view(rows, length, -1, HEAD).transpose(1, 2) for name in ("q_proj", "k_proj", "v_proj")
        )
        query, key = apply_rotary_pos_emb(query, key, *rotary)
        seen = F.scaled_dot_product_attention(query, key.expand_as(query), value.expand_as(query), is_causal=True)
        hidden = hidden + self.self_attn.o_proj(seen.transpose(1, 2).reshape(rows, length, -1))
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Draft(nn.Module):
    """Named as the engines expect an EAGLE-3 checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(len(TAPS) * HIDDEN, HIDDEN, bias=False)
        self.midlayer, self.norm = Layer(), LlamaRMSNorm(HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)


def descend(name: str, module: nn.Module, loss_of) -> None:
    """Train it; `loss_of` makes text and says how wrong the module is about it."""
    optimizer = torch.optim.AdamW(module.parameters(), 3e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=STEPS)
    for step in range(STEPS):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == STEPS - 1:
            sys.stdout.write(f"{name}: step {step} loss {loss.item():.3f}\n")


def train_target(language: Language) -> LlamaForCausalLM:
    """Learns the language; the least that its loss can become is 0.57."""
    target = LlamaForCausalLM(CONFIG)

    def loss_of() -> Tensor:
        text, begin = language.text()
        said = target(text).logits[:, begin + 1 : -1]
        return F.cross_entropy(said.reshape(-1, VOCABULARY), text[:, begin + 2 :].reshape(-1))

    descend("target", target, loss_of)
    return target


def train_draft(language: Language, target: LlamaForCausalLM) -> Draft:
    """Learns to say what the target says, some tokens ahead, from its own hidden states (training-time test)."""
    target.requires_grad_(False).eval()
    draft, rotary, embed = Draft(), LlamaRotaryEmbedding(CONFIG), target.model.embed_tokens

    def loss_of() -> Tensor:
        text, begin = language.text()
        with torch.no_grad():
            seen = target(text, output_hidden_states=True)
        said = seen.logits.argmax(-1)
        hidden = draft.fc(torch.cat([seen.hidden_states[tap] for tap in TAPS], -1))
        total = torch.zeros(())
        for ahead in range(1, UNROLLED + 1):
            embeds = embed(text[:, ahead:])
            place = torch.arange(embeds.shape[1])[None]
            hidden = draft.midlayer(embeds, hidden[:, : embeds.shape[1]], rotary(embeds, place))
            guess = draft.lm_head(draft.norm(hidden[:, begin:]))
            total = total + 0.8 ** (ahead - 1) * F.cross_entropy(guess.reshape(-1, VOCABULARY), said[:, begin + ahead :].reshape(-1))
        return total

    descend("draft", draft, loss_of)
    return draft


def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes and a few merges, trained on a few sentences: any text can be asked."""
    bytes_of = Tokenizer(tokenizer_models.BPE(unk_token=None))
    bytes_of.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_of.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<pad>", "<|user|>", "<|assistant|>"]
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    bytes_of.train_from_iterator(["the draft proposes tokens and the target verifies them", "a slow load is no hang"] * 20, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=bytes_of, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    fast.chat_template = "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    fast.model_max_length = CONFIG.max_position_embeddings
    return fast


def save_drafts(out: Path, weights: dict[str, Tensor]) -> None:
    """The same weights with each of the configurations."""
    for name, eagle in DRAFTS.items():
        folder = out / name
        folder.mkdir(exist_ok=True)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        told = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": VOCABULARY, "eagle_config": eagle}
        whole = {**CONFIG.to_dict(), **told, "dtype": "float32", "torch_dtype": "float32"}
        (folder / "config.json").write_text(json.dumps(whole, indent=1) + "\n")


def main(out: Path) -> None:
    """Target first; a run that was cut off takes it up from there."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    language = Language()
    if not (out / "target").exists():
        train_target(language).save_pretrained(out / "target.new", max_shard_size="400KB")
        tokenizer().save_pretrained(out / "target.new")
        os.replace(out / "target.new", out / "target")
    target = LlamaForCausalLM.from_pretrained(out / "target", dtype=torch.float32)
    kept = out / "draft.safetensors"
    if not kept.exists():
        draft = train_draft(language, target)
        weights = {name: value.detach().clone().contiguous() for name, value in draft.state_dict().items()}
        save_file({**weights, "embed_tokens.weight": target.model.embed_tokens.weight.detach().clone()}, f"{kept}.new")
        os.replace(f"{kept}.new", kept)
    save_drafts(out, load_file(kept))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
