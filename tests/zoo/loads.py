"""Live twins that move data: disks, sockets, memory. Each goes on for as long as somebody looks."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import pickle
import random
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runbook.lab.faults import Stage, throttled_read, write_file
from tests.zoo.disguise import telling
from tests.zoo.scenario import live
from tests.zoo.waits import announce, outside

MIB = 1 << 20


def shard(stage: Stage, number: int, size: int) -> Path:
    """A weight file, written once."""
    path = stage.folder / f"model-{number:05d}-of-00004.safetensors"
    if not path.exists():
        write_file(path, size)
    return path


@live()
def mmap_warm(stage: Stage) -> None:
    """Weights are mapped and touched page by page on a warm cache: no read, no open file, no line."""
    rate, size = stage.spread(0.5, 4) * MIB, stage.rng.randrange(24, 48) * MIB
    for number in range(1 << 30):
        path = shard(stage, number % 2, size)
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        step = 256 * 1024
        for at in range(0, size, step):
            sum(mapped[at : at + step : 4096])
            time.sleep(step / rate)
        mapped.close()


@live()
def throttled_load(stage: Stage) -> None:
    """A slow disk: a file is read at some hundred KiB/s, without a word."""
    rate, size = stage.spread(100, 600) * 1024, 16 * MIB
    while True:
        throttled_read(shard(stage, 0, size), rate, stage.rng)


@live()
def pread_pool(stage: Stage) -> None:
    """A pool reads with pread, so that no offset moves, while the main thread stands."""
    path = shard(stage, 0, 32 * MIB)
    handle, pause = os.open(path, os.O_RDONLY), stage.spread(0.2, 1.0)

    def read(seed: int) -> None:
        rng = random.Random(seed)
        while True:
            hashlib.sha256(os.pread(handle, 256 * 1024, rng.randrange(31 * MIB))).digest()
            time.sleep(pause)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(read, range(3)))


def _send_slowly(stage: Stage) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    announce(stage, listener.getsockname()[1])
    connection, _ = listener.accept()
    block, rate = stage.rng.randbytes(64 * 1024), stage.spread(120, 800) * 1024
    while True:
        connection.sendall(block)
        time.sleep(len(block) / rate)


@live(outside=_send_slowly)
def slow_download(stage: Stage) -> None:
    """A download over TCP into memory: only the socket's byte counters move."""
    connection = socket.create_connection(("127.0.0.1", int(outside(stage))))
    stage.say(stage.pick("Downloading model-00001-of-00004.safetensors", "fetching config and weights", "GET /blobs/sha256"))
    digest = hashlib.sha256()
    while data := connection.recv(1 << 16):
        digest.update(data)


@live()
def unix_stream(stage: Stage) -> None:
    """Bytes come over a unix socket, which has no counters, from a producer that works; the consumer mostly waits."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        value = stage.rng.randbytes(32 * 1024)
        while True:
            for _ in range(stage.rng.randrange(300, 1500)):
                value = hashlib.sha256(value).digest() * 1024
            theirs.sendall(value)
            time.sleep(0.2)
    while data := ours.recv(1 << 16):
        hashlib.sha256(data).digest()


@live()
def slow_writer(stage: Stage) -> None:
    """A checkpoint is written at a slow disk's pace, and nothing is read."""
    block, rate = stage.rng.randbytes(128 * 1024), stage.spread(150, 600) * 1024
    path = stage.folder / "checkpoint.pt"
    while True:
        with path.open("wb") as file:
            while file.tell() < 24 * MIB:
                file.write(block)
                file.flush()
                time.sleep(len(block) / rate)


@live()
def unpickling(stage: Stage) -> None:
    """Large pickles are loaded, one long native call each, without a line or a byte read."""
    tree = {f"layer.{n}.{k}": [stage.rng.random() for _ in range(200)] for n in range(60) for k in range(20)}
    raw = pickle.dumps([dict(tree) for _ in range(3)], protocol=4) * 1
    kept: list[object] = []
    load = telling(lambda: [pickle.loads(raw) for _ in range(4)], stage.rng)
    while True:
        kept.append(load())
        if len(kept) > 6:
            kept.clear()


@live()
def host_pinning(stage: Stage) -> None:
    """Host memory is pinned, megabyte after megabyte."""
    libc, step = ctypes.CDLL(None, use_errno=True), stage.rng.choice((2, 4)) * MIB
    while True:
        pool = mmap.mmap(-1, 192 * MIB)
        base = ctypes.addressof(ctypes.c_char.from_buffer(pool))
        for at in range(0, len(pool), step):
            if libc.mlock(ctypes.c_void_p(base + at), ctypes.c_size_t(step)):
                ctypes.memset(base + at, 1, step)  # no right to lock: touching is what pinning begins with
            time.sleep(step / (4 * MIB))
        libc.munlock(ctypes.c_void_p(base), ctypes.c_size_t(len(pool)))
        del base
        pool.madvise(mmap.MADV_DONTNEED)


@live()
def survived_traceback(stage: Stage) -> None:
    """A traceback stands in the log, was caught, and the load goes on."""
    path = shard(stage, 0, 16 * MIB)
    try:
        raise RuntimeError(stage.pick("CUDA graph capture is not supported here", "flash_attn is not installed", "no NUMA node"))
    except RuntimeError:
        import traceback

        stage.say(traceback.format_exc())
        stage.say("falling back to the default path")
    while True:
        throttled_read(path, stage.spread(150, 500) * 1024, stage.rng)


@live()
def harmless_zombie(stage: Stage) -> None:
    """A helper has ended and was never reaped; nobody waits for it, the load goes on."""
    subprocess.Popen([sys.executable, "-S", "-c", f"raise SystemExit({stage.rng.randrange(2)})"])
    path = shard(stage, 0, 16 * MIB)
    while True:
        throttled_read(path, stage.spread(150, 500) * 1024, stage.rng)


@live()
def memory_pressure(stage: Stage) -> None:
    """Memory is scarce: a neighbour takes and gives back a lot of it while weights are mapped."""
    if os.fork() == 0:
        while True:
            hog = mmap.mmap(-1, 768 * MIB)
            for at in range(0, len(hog), 4096):
                hog[at] = 1
            time.sleep(stage.rng.random())
            hog.close()
    mmap_warm(stage)


@live()
def bursts(stage: Stage) -> None:
    """It reads in bursts with long pauses between them, in which another thread sorts."""
    path, pause = shard(stage, 0, 16 * MIB), stage.spread(6, 12)
    with path.open("rb", buffering=0) as file:
        while True:
            data = file.read(MIB) or (file.seek(0), file.read(MIB))[1]
            worker = threading.Thread(target=sorted, args=(data,))
            worker.start()
            worker.join()
            time.sleep(pause)
