"""Small checkpoints for tests: safetensors files by the library's own writer, torch archives by torch."""

from __future__ import annotations

import contextlib
import ctypes
import json
import struct
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors

CODES = {"float32": "f", "float64": "d", "float16": "e", "int64": "q", "int32": "i", "uint8": "B", "bool": "?"}


def packed(dtype: str, values: Any) -> bytes:
    """Numbers as little endian bytes."""
    if dtype == "bfloat16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{CODES[dtype]}", *values)


def tensor(shape: list[int], values: Any = None, dtype: str = "float32") -> dict[str, Any]:
    """A tensor as `safetensors.serialize` takes it; without values it counts up."""
    count = 1
    for size in shape:
        count *= size
    return {"dtype": dtype, "shape": shape, "data": packed(dtype, list(range(count)) if values is None else values)}


def save(path: Path, tensors: Mapping[str, dict[str, Any]]) -> Path:
    """Write a safetensors file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(serialize(tensors))
    return path


def serialize(tensors: Mapping[str, dict[str, Any]]) -> bytes:
    """The bytes of a file, by the library's own writer, which takes addresses in its newer versions."""
    if not hasattr(safetensors, "TensorSpec"):
        return safetensors.serialize(dict(tensors))
    buffers = {name: ctypes.create_string_buffer(one["data"], max(1, len(one["data"]))) for name, one in tensors.items()}
    specs = {
        name: safetensors.TensorSpec(
            dtype=one["dtype"], shape=one["shape"], data_ptr=ctypes.addressof(buffers[name]), data_len=len(one["data"])
        )
        for name, one in tensors.items()
    }
    return bytes(safetensors.serialize(specs))


def save_index(folder: Path, weight_map: Mapping[str, str], total: int | None = None) -> Path:
    """Write the index of a sharded folder."""
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {} if total is None else {"total_size": total}, "weight_map": weight_map}))
    return path


def raw(header: Any, data: bytes = b"") -> bytes:
    """A file with any header, right or wrong."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def save_torch(path: Path) -> Path:
    """A checkpoint with everything that torch writes into one. Importing torch takes seconds: only for slow tests."""
    with quiet_torch() as torch:
        base = torch.arange(12, dtype=torch.float32)
        torch.save(
            {
                "model": {
                    "w": base.view(3, 4),
                    "tail": base[8:],
                    "turned": base.view(3, 4).t(),
                    "half": torch.tensor([1.5, -2.0]).bfloat16(),
                    "small": torch.tensor([1.0, 448.0]).to(torch.float8_e4m3fn),
                    "p": torch.nn.Parameter(torch.ones(2)),
                },
                "optimizer": [{"step": torch.tensor(3)}],
                "epoch": 7,
                "names": {"a": None, "b": (1, 2.5, "x", True)},
            },
            path,
        )
    return path


@contextlib.contextmanager
def quiet_torch() -> Any:
    """Torch, without its word about a missing numpy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch

        yield torch
