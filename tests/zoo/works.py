"""Live twins that compute: compilers, interpreters, locks whose holder works, progress that is hard to see."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from runbook.lab import faults
from runbook.lab.faults import Stage, throttled_read
from tests.zoo.disguise import telling
from tests.zoo.loads import MIB, shard
from tests.zoo.scenario import live


@live()
def compile_grandchild(stage: Stage) -> None:
    """A compiler runs in a grandchild, kernel after kernel; the log is silent."""
    stage.say(stage.pick("Compiling fused kernels", "JIT: building 48 variants", "torch.compile: backend inductor"))
    while True:
        faults.slow_compile(stage, 60)


@live()
def silent_jit(stage: Stage) -> None:
    """It compiles in its own process and says nothing; on every other seed no file shows it either."""
    cache = Path(tempfile.mkdtemp(prefix="triton_", dir=stage.folder))
    while True:
        terms = "+".join(f"(a{stage.rng.randrange(9)}*{stage.rng.randrange(1, 1 << 20)})" for _ in range(2500))
        code = compile(f"def kernel(*a):\n    a0=a1=a2=a3=a4=a5=a6=a7=a8=1\n    return {terms}", "kernel", "exec")
        names: dict[str, object] = {}
        exec(code, names)
        digest = hashlib.sha256(repr(code.co_consts).encode()).hexdigest()
        if stage.seed % 2:
            (cache / f"{digest}.cubin").write_bytes(digest.encode() * 64)
        sorted(terms)


@live()
def lock_holder_works(stage: Stage) -> None:
    """The main thread waits for a lock whose holder, another thread, reads weights."""
    lock, path = threading.Lock(), shard(stage, 0, 16 * MIB)
    held = threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            while True:
                throttled_read(path, stage.spread(100, 400) * 1024, stage.rng)

    stage.thread(hold)
    held.wait()
    with lock:
        raise AssertionError("the holder never lets go")


@live()
def flock_holder_works(stage: Stage) -> None:
    """The main process waits for a file lock whose holder, its child, downloads into the cache."""
    path, source = stage.folder / "model.lock", shard(stage, 0, 16 * MIB)
    taken, let = os.pipe()
    if os.fork() == 0:
        fcntl.flock(os.open(path, os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
        os.write(let, b"x")
        while True:
            throttled_read(source, stage.spread(100, 400) * 1024, stage.rng)
    os.read(taken, 1)
    stage.say("waiting for the lock on the model folder")
    fcntl.flock(os.open(path, os.O_RDWR), fcntl.LOCK_EX)


@live()
def young_lock_file(stage: Stage) -> None:
    """A lock file is polled, and its maker, a child, is compiling."""
    lock = faults.extensions() / "fused" / "lock"
    lock.parent.mkdir(parents=True)
    taken, let = os.pipe()
    if os.fork() == 0:
        faults.baton(lock).try_acquire()
        os.write(let, b"x")
        while True:
            faults.slow_compile(stage, 60)
    os.read(taken, 1)
    faults.baton(lock).wait()


@live()
def carriage_returns(stage: Stage) -> None:
    """A bar that is drawn over itself with \\r; the log has hardly a line."""
    total, pause = stage.rng.randrange(800, 3000), stage.spread(0.1, 0.6)
    name = stage.pick("Loading safetensors checkpoint shards", "Capturing batches", "Fetching files")
    begin, block = time.monotonic(), stage.rng.randbytes(1 << 16)
    for done in range(total):
        block = hashlib.sha512(block).digest() * 1024
        spent = time.monotonic() - begin
        sys.stdout.write(f"\r{name}: {100 * done // total:3d}% {done}/{total} [{spent:.0f}s, {done / max(spent, 1e-3):.2f}it/s]")
        sys.stdout.flush()
        time.sleep(pause)


@live()
def block_buffered_log(stage: Stage) -> None:
    """It logs into a buffer that is seldom full, while it reads and hashes."""
    path = shard(stage, 0, 16 * MIB)
    with path.open("rb") as file, open(1, "w", buffering=1 << 16, closefd=False) as log:
        number = 0
        while True:
            data = file.read(128 * 1024) or (file.seek(0), file.read(1))[1]
            number += 1
            log.write(f"tensor {number} sum {hashlib.sha256(data).hexdigest()[:8]}\n")
            time.sleep(stage.spread(0.1, 0.5))


@live()
def python_compute(stage: Stage) -> None:
    """Plain Python that computes and says nothing: no byte, no page, only its place in the code changes."""

    def parse(n: int) -> int:
        return sum(int(c) for c in str(3**n))

    def pack(n: int) -> int:
        return len(repr([i**3 for i in range(n)]))

    def tokenise(n: int) -> int:
        return len([word for word in " ".join(map(str, range(n))).split() if word.endswith("7")])

    sys.set_int_max_str_digits(0)
    works = [telling(work, stage.rng) for work in (parse, pack, tokenise)]
    while True:
        for work in works:
            for _ in range(stage.rng.randrange(20, 60)):
                work(stage.rng.randrange(2000, 20_000))


def _hogs(stage: Stage) -> None:
    from tests.zoo.waits import announce

    announce(stage, "")
    for _ in range(4 * (os.cpu_count() or 1) - 1):
        if os.fork() == 0:
            break
    while True:
        hashlib.sha256(bytes(1 << 16)).digest()


@live(outside=_hogs)
def cpu_pressure(stage: Stage) -> None:
    """The host is overloaded: it hardly gets a turn, but parses its weights' headers in each."""
    path = shard(stage, 0, 16 * MIB)
    with path.open("rb", buffering=0) as file:
        while True:
            data = file.read(256 * 1024) or (file.seek(0), file.read(256 * 1024))[1]
            sum(data[::7])
            sorted(data)


@live()
def busy_ring(stage: Stage) -> None:
    """A consumer of a ring in shared memory yields while its producer, a child, computes each block for long."""
    ring = mmap.mmap(-1, MIB)
    if os.fork() == 0:
        value = stage.rng.randbytes(1024)
        for number in range(1 << 30):
            for _ in range(stage.rng.randrange(100, 400)):
                value = hashlib.sha256(value).digest() * 256
            ring[1:8193] = value[:8192]
            ring[0] = number % 255 + 1

    def take() -> None:
        while True:
            if ring[0]:
                hashlib.sha256(ring[1:8193]).digest()
                ring[0] = 0
            os.sched_yield()

    telling(take, stage.rng)()


@live()
def child_works(stage: Stage) -> None:
    """The main process polls a worker that quantises weights, and prints the same line again and again."""
    code = """import hashlib, os, sys
file, parent = open(sys.argv[1], "rb"), os.getppid()
while os.getppid() == parent:
    hashlib.pbkdf2_hmac("sha256", file.read(1 << 16) or file.seek(0).to_bytes(1, "big"), b"s", 30_000)
"""
    child = subprocess.Popen([sys.executable, "-S", "-c", code, str(shard(stage, 0, 8 * MIB))])
    every = stage.spread(1, 5)
    while child.poll() is None:
        stage.say(f"Waiting for 1 core engine proc to start (pid {child.pid})")
        time.sleep(every)
