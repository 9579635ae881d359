"""Building blocks that target and draft share: norm, rotary positions, attention, MLP.

Shapes are (..., tokens, width): serving has no batch dimension, training has one in front.
"""

import functools

import torch
import torch.nn.functional as F
from torch import nn

from lab_engine import distributed

WINDOW = 16
"""Tokens that a query may look back at, itself included. With rotary positions this makes a forward independent of the
absolute position: sequences far longer than those of the training behave as those did."""


class RMSNorm(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


@functools.cache
def _angles(half, length):
    """cos and sin of the rotary embedding, (length, 1, half) each."""
    frequency = 100.0 ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = torch.arange(length, dtype=torch.float32)[:, None, None] * frequency
    return angle.cos(), angle.sin()


def rotate(x, positions):
    """Rotary position embedding. x: (..., tokens, heads, size); positions: (tokens,), consecutive."""
    half = x.shape[-1] // 2
    begin, end = int(positions[0]), int(positions[-1]) + 1
    cos, sin = (table[begin:end] for table in _angles(half, 1 << end.bit_length()))
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def windowed(query_positions, key_positions):
    """(queries, keys) bool: which key each query may see."""
    distance = query_positions[:, None] - key_positions[None, :]
    return (distance >= 0) & (distance < WINDOW)


def attend(q, k, v, mask):
    """q, k, v: (..., tokens, heads, size); mask: (queries, keys). Returns (..., queries, heads * size)."""
    out = F.scaled_dot_product_attention(q.transpose(-2, -3), k.transpose(-2, -3), v.transpose(-2, -3), attn_mask=mask)
    return out.transpose(-2, -3).flatten(-2)


class Attention(nn.Module):
    """Multi-head attention; what the queries see is up to `forward_batch.attention`."""

    def __init__(self, layer_id, size_in, hidden_size, heads):
        super().__init__()
        self.layer_id = layer_id
        self.heads = heads
        self.qkv_proj = nn.Linear(size_in, 3 * hidden_size, bias=False)
        self.o_proj = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(self, positions, x, forward_batch):
        q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in self.qkv_proj(x).chunk(3, -1))
        q, k = rotate(q, positions), rotate(k, positions)
        return self.o_proj(forward_batch.attention(self.layer_id, q, k, v, positions))


class MLP(nn.Module):
    """Split over the ranks: `up_proj` by columns, `down_proj` by rows, then one all-reduce."""

    def __init__(self, hidden_size, factor=4):
        super().__init__()
        mine = factor * hidden_size // distributed.world_size()
        self.up_proj = nn.Linear(hidden_size, mine, bias=False)
        self.down_proj = nn.Linear(mine, hidden_size, bias=False)

    def forward(self, x):
        return distributed.all_reduce(self.down_proj(F.silu(self.up_proj(x))))
