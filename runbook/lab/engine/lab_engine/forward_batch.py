"""What a forward pass gets beside its tokens: the mode, the attention with its KV cache, and the draft's input."""

import dataclasses
import enum

import torch

from lab_engine.layers import attend, windowed, WINDOW


class ForwardMode(enum.Enum):
    EXTEND = "extend"  # prompt tokens, of target or draft
    TARGET_VERIFY = "target_verify"  # the last token and the drafted ones
    DRAFT_EXTEND = "draft_extend"  # the accepted tokens, with the target's hidden states
    DECODE = "decode"  # one token


@dataclasses.dataclass
class EagleDraftInput:
    """hidden_states: (tokens, taps * hidden) from the target, or (tokens, hidden) from the draft itself."""

    hidden_states: torch.Tensor


class KVCache:
    """Keys and values of one sequence, all layers. Writing at a position forgets what a rejected draft left there."""

    def __init__(self, layers, length, heads, head_size):
        self.k = torch.zeros(layers, length, heads, head_size)
        self.v = torch.zeros(layers, length, heads, head_size)
        self._window = (0, 0, 0, None)  # first key, first query, end, mask: the same for all layers of a forward

    def __call__(self, layer_id, q, k, v, positions):
        """Store k, v at `positions` (consecutive) and attend over the window before and up to each query."""
        begin, end = int(positions[0]), int(positions[-1]) + 1
        self.k[layer_id, begin:end] = k
        self.v[layer_id, begin:end] = v
        if self._window[1:3] != (begin, end):
            first = max(0, begin - WINDOW + 1)
            self._window = (first, begin, end, windowed(positions, torch.arange(first, end)))
        first, *_, mask = self._window
        return attend(q, self.k[layer_id, first:end], self.v[layer_id, first:end], mask)


@dataclasses.dataclass
class ForwardBatch:
    """`attention(layer_id, q, k, v, positions)` is a KVCache when serving."""

    forward_mode: ForwardMode
    attention: object
    spec_info: EagleDraftInput = None
