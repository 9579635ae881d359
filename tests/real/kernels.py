"""Stands in for SGLang's compiled kernels (`sgl_kernel`), and for torchaudio, on a machine without CUDA.

setup.py copies it to `standin/sgl_kernel` and `standin/torchaudio`. Any name can be imported, from any submodule; what is not written
here raises NotImplementedError when it is called. Written here, in plain torch, are the CPU operators that drafting one chain
(`--speculative-eagle-topk 1`) calls, under the names and with the arguments of SGLang 0.5.23: tensors are changed in place.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any

import torch

__version__ = "0.4.10"
CHAIN_ONLY = 1


class Missing:
    """A kernel that nobody wrote for the CPU: may be imported and passed on, not called."""

    def __init__(self, name: str) -> None:
        self.__name = name

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.__name}.{name}")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError(f"{self.__name} has no stand-in for the CPU")


def _missing(name: str) -> Missing:
    if name.startswith("__"):
        raise AttributeError(name)
    return Missing(name)


__getattr__ = _missing


class Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """`import sgl_kernel.any.thing` finds a module full of missing kernels."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """A spec for what lies below this package, None for the rest."""
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.startswith(f"{__name__}.") else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Empty, but for the names that it makes up."""
        module = types.ModuleType(spec.name)
        module.__getattr__ = _missing  # type: ignore[method-assign]
        module.__path__ = []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


sys.meta_path.append(Submodules())


def copy_all_layer_kv_cache_cpu(addresses: Any, strides: Any, to: Any, source: Any) -> None:
    """Move cache rows, in every layer: `addresses` are raw pointers, `strides` the bytes of a row."""
    for base, size in zip(addresses.tolist(), strides.tolist(), strict=True):
        rows = [ctypes.string_at(base + row * size, size) for row in source.tolist()]
        for row, data in zip(to.tolist(), rows, strict=True):
            ctypes.memmove(base + row * size, data, size)


def fill_bonus_tokens_cpu(accepted: Any, lengths: Any, bonus: Any, stride: int) -> None:
    """The last accepted token of each request."""
    last = torch.arange(lengths.numel()) * stride + lengths.long() - 1
    bonus.copy_(accepted.reshape(-1)[last].to(bonus.dtype))


def fill_accept_out_cache_loc_cpu(accept_index: Any, locations: Any, out: Any) -> None:
    """The cache places of what was accepted, one after the other."""
    kept = accept_index.reshape(-1)
    kept = kept[kept > -1].long()
    out[: kept.numel()] = locations[kept].to(out.dtype)


def assign_draft_cache_locs_contiguous_cpu(pool: Any, table: Any, lengths: Any, out: Any, width: int, topk: int, steps: int) -> None:
    """Where the next `topk * steps` tokens of each request will lie."""
    count = topk * steps
    for slot, (row, begin) in enumerate(zip(pool.tolist(), lengths.tolist(), strict=True)):
        out[slot * count : (slot + 1) * count] = table[row, begin : begin + count].to(out.dtype)


def assign_extend_cache_locs_cpu(pool: Any, table: Any, begins: Any, ends: Any, out: Any, width: int) -> None:
    """The cache places of the tokens from `begins` to `ends`, one request after the other."""
    at = 0
    for row, begin, end in zip(pool.tolist(), begins.tolist(), ends.tolist(), strict=True):
        out[at : at + end - begin] = table[row, begin:end].to(out.dtype)
        at += end - begin


def assign_req_to_token_pool_cpu(pool: Any, table: Any, begins: Any, ends: Any, places: Any, width: int) -> None:
    """The reverse: writes the places into the table."""
    at = 0
    for row, begin, end in zip(pool.tolist(), begins.tolist(), ends.tolist(), strict=True):
        table[row, begin:end] = places[at : at + end - begin].to(table.dtype)
        at += end - begin


def build_tree_kernel_efficient_cpu(
    parents: Any,
    chosen: Any,
    lengths: Any,
    mask: Any,
    positions: Any,
    index: Any,
    child: Any,
    sibling: Any,
    topk: int,
    depth: int,
    count: int,
    mode: Any,
) -> None:
    """The tree of drafted tokens. Of one chain: each has the next as its child and no sibling, and sees all before it."""
    if topk != CHAIN_ONLY or int(mode) != 1:
        raise NotImplementedError(f"a chain in a mask of its own only, not topk {topk} with mask mode {mode}")
    requests, step = lengths.numel(), torch.arange(count)
    positions.view(requests, count).copy_((lengths.view(-1, 1).long() + step).to(positions.dtype))
    index.view(requests, count).copy_((torch.arange(requests).view(-1, 1) * count + step).to(index.dtype))
    child.view(requests, count).copy_(torch.cat([step[1:], torch.tensor([-1])]).expand(requests, count).to(child.dtype))
    sibling.fill_(-1)
    seen = torch.ones(count, count, dtype=torch.bool).tril()
    mask.view(-1)[: requests * count * count].view(requests, count, count).copy_(seen.expand(requests, count, count))


def verify_tree_greedy_cpu(
    *,
    predicts: Any,
    accept_index: Any,
    accept_token_num: Any,
    candidates: Any,
    retrive_index: Any,
    retrive_next_token: Any,
    retrive_next_sibling: Any,
    target_predict: Any,
) -> None:
    """Follow the drafted tokens for as long as the target would have said the same; its own next token comes after them."""
    said, out = target_predict.reshape(-1), predicts.view(-1)
    for request in range(candidates.shape[0]):
        last, node, count = int(retrive_index[request, 0]), 0, 0
        accept_index[request, 0] = last
        while count + 1 < accept_index.shape[1]:
            node = int(retrive_next_token[request, node])
            while node != -1 and int(candidates[request, node]) != int(said[last]):
                node = int(retrive_next_sibling[request, node])
            if node == -1:
                break
            out[last] = said[last]
            last, count = int(retrive_index[request, node]), count + 1
            accept_index[request, count] = last
        accept_token_num[request] = count
        out[last] = said[last]
