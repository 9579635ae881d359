"""Teaches an unpacked SGLang 0.5.23 to draft chains with its CPU attention backend: python chain_drafting.py SITE

Its `torch_native` backend lacks the two batches that EAGLE needs: verifying several drafted tokens at once, and drafting step by
step. Both are there as soon as the lengths are those of that step. Two files of the unpacked copy are changed, once.
"""

from __future__ import annotations

import sys
from pathlib import Path

PICK = "        if backend_type not in backend_map:\n"
PICKED = """        if backend_type == "torch_native":
            from sglang.srt.layers.attention.torch_native_backend import DraftedChain, TorchNativeAttnBackend

            if backend_name == "decode_attention_backend":
                return DraftedChain(self.draft_model_runner, self.speculative_num_steps)
            return TorchNativeAttnBackend(self.draft_model_runner)
"""
BACKEND = '''

import contextlib


@contextlib.contextmanager
def _lengths(batch, **lengths):
    """The batch with other lengths, for one call."""
    before = {name: getattr(batch, name) for name in lengths}
    for name, value in lengths.items():
        setattr(batch, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(batch, name, value)


def _verifying(extend):
    """Verifying is extending by the drafted tokens."""

    def forward_extend(self, q, k, v, layer, forward_batch, *rest, **named):
        if not forward_batch.forward_mode.is_target_verify():
            return extend(self, q, k, v, layer, forward_batch, *rest, **named)
        drafted, before = forward_batch.spec_info.draft_token_num, forward_batch.seq_lens
        new = torch.full_like(before, drafted)
        with _lengths(forward_batch, seq_lens=before + drafted, extend_prefix_lens=before, extend_seq_lens=new):
            return extend(self, q, k, v, layer, forward_batch, *rest, **named)

    return forward_extend


TorchNativeAttnBackend.forward_extend = _verifying(TorchNativeAttnBackend.forward_extend)


class DraftedStep(TorchNativeAttnBackend):
    """Decodes with the tokens that the steps before it drafted."""

    def __init__(self, model_runner, step):
        super().__init__(model_runner)
        self.step = step

    def forward_decode(self, q, k, v, layer, forward_batch, *rest, **named):
        with _lengths(forward_batch, seq_lens=forward_batch.seq_lens + self.step + 1):
            return super().forward_decode(q, k, v, layer, forward_batch, *rest, **named)


class DraftedChain:
    """One backend for each step but the first, which belongs to the extend before it."""

    def __init__(self, model_runner, steps):
        self.attn_backends = [DraftedStep(model_runner, step) for step in range(steps - 1)]

    def init_forward_metadata(self, forward_batch):
        for backend in self.attn_backends:
            backend.init_forward_metadata(forward_batch)
'''


def teach(site: Path) -> None:
    """Change the two files. Raises ValueError when this is not the version that it was written for."""
    picking = site / "sglang/srt/speculative/draft_utils.py"
    backend = site / "sglang/srt/layers/attention/torch_native_backend.py"
    text = picking.read_text(encoding="utf-8")
    if text.count(PICK) != 1:
        raise ValueError(f"{picking}: the line to change is not there once: another version of SGLang?")
    _write(picking, text.replace(PICK, PICKED + PICK))
    _write(backend, backend.read_text(encoding="utf-8") + BACKEND)


def _write(path: Path, text: str) -> None:
    compile(text, str(path), "exec")
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    teach(Path(sys.argv[1]))
