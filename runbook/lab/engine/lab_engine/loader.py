"""Reads safetensors checkpoints from a folder, shard by shard, and can be told to do it slowly."""

import json
import pathlib
import sys
import time

import safetensors.torch

from lab_engine import distributed

SPLIT = {"up_proj.weight": 0, "down_proj.weight": 1}  # the dimension that the ranks share


def config_of(folder):
    return json.loads((pathlib.Path(folder) / "config.json").read_text())


def load(model, folder, rate=0, delay_s=0, bar=False):
    """Fill a model from a checkpoint folder; answers the bytes read.

    rate: bytes per second, 0 for as fast as it goes. delay_s: pause before each shard. bar: draw progress on stderr.
    Tensors that the model lacks are skipped without a word, and so are those that the checkpoint lacks.
    """
    shards = sorted(pathlib.Path(folder).glob("*.safetensors"))
    if not shards:
        raise FileNotFoundError(f"Cannot find any model weights with `{folder}`")
    begin, size = time.monotonic(), 0
    state = model.state_dict()
    for done, shard in enumerate(shards):
        if bar:
            _draw(done, len(shards), time.monotonic() - begin)
        time.sleep(delay_s)
        data = _read(shard, rate)
        size += len(data)
        for name, tensor in safetensors.torch.load(data).items():
            if name in state:
                state[name].copy_(_mine(name, tensor))
    if bar:
        _draw(len(shards), len(shards), time.monotonic() - begin)
        sys.stderr.write("\n")
    return size


def build(cls, config):
    """A model without gradients, in evaluation mode."""
    return cls(config).requires_grad_(False).eval()


def _mine(name, tensor):
    dimension = next((d for suffix, d in SPLIT.items() if name.endswith(suffix)), None)
    if dimension is None:
        return tensor
    return tensor.chunk(distributed.world_size(), dimension)[distributed.rank()]


def _read(path, rate):
    parts = []
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(max(1, rate // 10) if rate else 1 << 20):
            parts.append(chunk)
            if rate:
                time.sleep(len(chunk) / rate)
    return b"".join(parts)


def _draw(done, total, seconds):
    rate = f"{done / seconds:.2f}it/s" if done and seconds else "?it/s"
    left = f"{_clock(seconds / done * (total - done))}" if done else "?"
    text = f"{done * 100 // total:3d}% Completed | {done}/{total} [{_clock(seconds)}<{left}, {rate}]"
    sys.stderr.write(f"\rLoading safetensors checkpoint shards: {text}")
    sys.stderr.flush()


def _clock(seconds):
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
