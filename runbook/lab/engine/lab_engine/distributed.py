"""The ranks' one process group: gloo over loopback. With one rank nothing is set up and every collective is the identity."""

import datetime

import torch
import torch.distributed as dist


def init(rank, world_size, port, timeout_s):
    """Join the group; blocks until all ranks have."""
    if world_size > 1:
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{port}",
            rank=rank,
            world_size=world_size,
            timeout=datetime.timedelta(seconds=timeout_s),
        )


def world_size():
    return dist.get_world_size() if dist.is_initialized() else 1


def rank():
    return dist.get_rank() if dist.is_initialized() else 0


def all_reduce(tensor):
    """Sum over the ranks, in place."""
    if dist.is_initialized():
        dist.all_reduce(tensor)
    return tensor


def broadcast(data):
    """Rank 0's bytes, on every rank. (The library's own object broadcast needs numpy.)"""
    if not dist.is_initialized():
        return data
    size = torch.tensor([len(data)])
    dist.broadcast(size, src=0)
    if int(size) == 0:
        return b""
    box = torch.frombuffer(bytearray(data), dtype=torch.uint8) if rank() == 0 else torch.empty(int(size), dtype=torch.uint8)
    dist.broadcast(box, src=0)
    return bytes(box.tolist())


def agree(ids):
    """Rank 0's token ids, on every rank: equal lengths are known, so one collective does."""
    if not dist.is_initialized():
        return ids
    box = torch.tensor(ids)
    dist.broadcast(box, src=0)
    return box.tolist()


def barrier():
    if dist.is_initialized():
        dist.barrier()


def shutdown():
    if dist.is_initialized():
        dist.destroy_process_group()
