"""Writes a Llama for llama.cpp whose weights nobody trained: venv/bin/python random_gguf.py OUT LAYERS HIDDEN. No download.

The vocabulary is bytes and four special tokens, so any text can be asked; the answer means nothing. It exists to be loaded and served.
"""

from __future__ import annotations

import sys

import gguf
import numpy as np

HEAD, CONTEXT = 32, 4096
SPECIAL = ["<s>", "</s>", "<|user|>", "<|assistant|>"]
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>"
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]


def vocabulary() -> list[str]:
    """A token for each byte, in the letters that byte-level tokenizers of GPT-2's kind use; then the special ones."""
    others = [byte for byte in range(256) if byte not in PRINTABLE]
    letters = {**{byte: chr(byte) for byte in PRINTABLE}, **{byte: chr(256 + place) for place, byte in enumerate(others)}}
    return [letters[byte] for byte in range(256)] + SPECIAL


def shapes(layers: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """Each tensor's shape, by the name that llama.cpp asks for."""
    tokens, wide = len(vocabulary()), 3 * hidden
    whole: dict[str, tuple[int, ...]] = {"token_embd": (tokens, hidden), "output_norm": (hidden,), "output": (tokens, hidden)}
    for layer in range(layers):
        own = {name: (hidden, hidden) for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
        own |= {
            "ffn_gate": (wide, hidden),
            "ffn_up": (wide, hidden),
            "ffn_down": (hidden, wide),
            "attn_norm": (hidden,),
            "ffn_norm": (hidden,),
        }
        whole |= {f"blk.{layer}.{name}": shape for name, shape in own.items()}
    return whole


def main(out: str, layers: int, hidden: int) -> None:
    """One file."""
    dice = np.random.default_rng(0)
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_name("random")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(3 * hidden)
    writer.add_head_count(hidden // HEAD)
    writer.add_head_count_kv(hidden // HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD)
    writer.add_vocab_size(len(vocabulary()))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(vocabulary())
    writer.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * len(SPECIAL))
    writer.add_token_merges(["Ġ t"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_chat_template(TEMPLATE)
    for name, shape in shapes(layers, hidden).items():
        weights = np.ones(shape, np.float32) if "norm" in name else 0.05 * dice.standard_normal(shape, np.float32)
        writer.add_tensor(f"{name}.weight", weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
