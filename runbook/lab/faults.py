"""Faults as real programs: each function brings its process into one state, a hang or a slow phase that works.

The lab's engine runs them inside its ranks (`runbook lab up --fault NAME`), the zoo of tests beside other programs. The file is copied
into the lab's home, so it imports the standard library only, and torch inside the functions for ranks. A hang never returns.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HUNG = ("deadlock", "rank_missing", "rank_stopped", "collective_mismatch", "livelock", "stale_lock", "log_pipe")
LIVE = ("slow_load", "slow_compile", "long_prefill")
NAMES = HUNG + LIVE
"""What `runbook lab up --fault` takes."""
NEED_RANKS = ("rank_missing", "rank_stopped", "collective_mismatch")
PR_SET_PDEATHSIG = 1
SLOW_S = 90.0
"""How long the slow phases take in the lab: longer than a plain timeout of a minute."""
SHARD_BYTES = 24 << 20


def speaker(form: str = "%(message)s", stamp: str = "%H:%M:%S") -> logging.Logger:
    """A logger to stdout, whatever the program's other loggers do."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter(form, stamp))
    found = logging.getLogger("stage")
    found.handlers, found.propagate = [handler], False
    found.setLevel(logging.INFO)
    return found


class Stage:
    """Where a fault happens: its folder, how it speaks, and the random numbers of its seed.

    The folder keeps what only the author of a fault can know: when real progress ended, and who is to blame.
    """

    def __init__(self, seed: int, folder: Path, log: logging.Logger | None = None) -> None:
        self.seed = seed
        self.folder = folder
        self.log: logging.Logger = log or speaker()
        self.rng = random.Random(seed)

    def say(self, text: str) -> None:
        """A line of its log."""
        self.log.info(text)

    def stuck(self) -> None:
        """The last real progress of this thread was now."""
        (self.folder / f"stuck-{os.getpid()}-{threading.get_native_id()}").write_text(repr(time.time()))

    def blame(self, pid: int | None = None, rank: int | None = None) -> None:
        """Name the culprit."""
        (self.folder / "culprit").write_text(f"{'' if pid is None else pid} {'' if rank is None else rank}")

    def spread(self, low: float, high: float) -> float:
        """A number between the two, by the seed."""
        return round(self.rng.uniform(low, high), 3)

    def pick(self, *choices: str) -> str:
        """One of them, by the seed."""
        return self.rng.choice(choices)

    def odd(self, world: int) -> int:
        """The rank that differs from the others; the same in every process of this seed."""
        return random.Random(f"odd {self.seed}").randrange(world)

    def pause(self, low: float, high: float) -> None:
        """Let a seeded time pass."""
        time.sleep(self.rng.uniform(low, high))

    def thread(self, body: Callable[[], Any]) -> threading.Thread:
        """Run it beside the main thread."""
        started = threading.Thread(target=body, name=self.pick("worker", "loader", "poller", "io"), daemon=True)
        started.start()
        return started


def chatter(stage: Stage, every_s: float | None = None) -> None:
    """A metrics thread: it logs numbers that change and burns a little CPU, whatever the rest of the process does."""
    every = every_s or stage.spread(0.4, 2.5)
    form = stage.pick("metrics: queue={} usage={:.3f}", "[stats] running {} kv {:.2%}", "gauge pending={} load={:.4f}")
    rng = random.Random(stage.seed + 1)

    def run() -> None:
        while True:
            sum(i * i for i in range(20_000))
            stage.say(form.format(rng.randrange(64), rng.random()))
            time.sleep(every)

    stage.thread(run)


def heartbeats(stage: Stage) -> None:
    """A thread that says for ever that it waits."""
    form = stage.pick(
        "still waiting for worker ({:.0f}s)", "heartbeat: alive, uptime {:.1f}", "Waiting for 1 core engine proc to start: {:.0f}"
    )
    every, begin = stage.spread(1, 6), time.monotonic()

    def run() -> None:
        while True:
            stage.say(form.format(time.monotonic() - begin))
            time.sleep(every)

    stage.thread(run)


def deadlock(stage: Stage) -> None:
    """Two threads take two locks in opposite order, beside a metrics thread that goes on."""
    first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def other() -> None:
        with second:
            both.wait()
            with first:
                raise AssertionError("a lock that is held was given away")

    chatter(stage)
    stage.thread(other)
    with first:
        both.wait()
        stage.stuck()
        with second:
            raise AssertionError("a lock that is held was given away")


def livelock(stage: Stage) -> None:
    """A scheduler that moves the same requests to and fro for ever. Every line is new, its only counter stands."""
    words = _words(stage.rng)
    total = stage.rng.choice((16, 64, 200))
    done = stage.rng.randrange(1, total // 2)
    stage.say(f"serving batch, finished {done}/{total}")
    stage.stuck()
    while True:
        sum(i * i for i in range(stage.rng.randrange(10_000, 60_000)))
        verb, noun, why = (stage.rng.choice(words) for _ in range(3))
        stage.say(f"{verb} request {stage.rng.randrange(1 << 40):x} of {noun}: {why}; finished {done}/{total}")
        stage.pause(0.05, 0.6)


def _words(rng: random.Random) -> list[str]:
    """Made-up words, so that hardly two lines have the same ones."""
    parts = "ra mo ti le ku san dor pre vex qui lo ban ter ish ump".split()
    return ["".join(rng.choices(parts, k=rng.randrange(2, 5))) for _ in range(400)]


def stale_lock(stage: Stage) -> None:
    """Wait for a lock file whose maker is long dead, in torch's own code for it."""
    lock = extensions() / stage.pick("fused_moe", "rotary", "rms_norm") / "lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    made = time.time() - stage.spread(3600, 86400)
    os.utime(lock, (made, made))
    stage.say(f"Building extension module {lock.parent.name}...")
    stage.stuck()
    baton(lock).wait()


def baton(lock: Path) -> Any:
    """torch's FileBaton on this file, without the seconds that importing torch takes: its module needs the standard library only."""
    torch = importlib.util.find_spec("torch")
    assert torch is not None and torch.submodule_search_locations
    spec = importlib.util.spec_from_file_location("file_baton", Path(torch.submodule_search_locations[0]) / "utils" / "file_baton.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FileBaton(str(lock))


def extensions() -> Path:
    """Where torch builds its extensions, as it finds the folder itself."""
    named = os.environ.get("TORCH_EXTENSIONS_DIR")
    return Path(named) if named else Path.home() / ".cache" / "torch_extensions" / f"py3{sys.version_info[1]}_cpu"


def log_pipe(stage: Stage, copy: Path | None = None) -> None:
    """Our output is a pipe whose reader copies some lines and then no longer reads: the next write blocks for good.

    copy: the file that the reader appends to; without it what we had as stderr gets the lines.
    """
    enough = stage.rng.randrange(2_000, 20_000)
    target = os.open(copy, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if copy else os.dup(2)
    inlet, outlet = os.pipe()
    reader = os.fork()
    if reader == 0:
        _die_with_parent()
        os.close(outlet)
        read = 0
        while read < enough:
            data = os.read(inlet, 512)
            read += os.write(target, data)
        threading.Event().wait()  # nobody sets it
    for fd in (1, 2):
        os.dup2(outlet, fd)
    os.close(inlet)
    os.close(outlet)
    stage.blame(pid=reader)
    text = (
        stage.pick("step {} loss {:.4f}", "loaded tensor {} norm {:.4f}", "request {} took {:.3f}s")
        + " "
        + "." * stage.rng.randrange(150, 400)
    )
    for number in range(1 << 30):
        stage.stuck()
        os.write(2, (text.format(number, stage.rng.random()) + "\n").encode())
        time.sleep(0.02)


def _die_with_parent() -> None:
    """What waits for nothing any more must not outlive the one that it blocks."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def slow_load(stage: Stage, size: int = SHARD_BYTES, seconds: float = SLOW_S) -> None:
    """Read a weight file slowly but steadily, without a word."""
    shard = stage.folder / "model-00001-of-00001.safetensors"
    write_file(shard, size)
    throttled_read(shard, size / seconds, random.Random(stage.seed))
    shard.unlink()


def write_file(path: Path, size: int) -> None:
    """Bytes that no file system can store as a hole."""
    block = random.Random(size).randbytes(1 << 20)
    with path.open("wb") as file:
        for at in range(0, size, len(block)):
            file.write(block[: size - at])


def throttled_read(path: Path, rate: float, rng: random.Random) -> None:
    """Read a file at about `rate` bytes per second, in pieces of uneven size."""
    begin, done = time.monotonic(), 0
    with path.open("rb", buffering=0) as file:
        while data := file.read(int(rate * rng.uniform(0.05, 0.6)) + 1):
            done += len(data)
            time.sleep(max(0.0, begin + done / rate - time.monotonic()))


def slow_compile(stage: Stage, seconds: float = SLOW_S) -> None:
    """Compile one kernel after the other in grandchildren, without a word, until the time is over."""
    until = time.monotonic() + seconds
    cache = Path(tempfile.mkdtemp(prefix="jit_", dir=stage.folder))
    number = 0
    while time.monotonic() < until:
        number += 1
        source = cache / f"kernel_{number}.c"
        source.write_text(_kernel(stage.rng))
        line = compile_line(source, cache / f"kernel_{number}.o")
        subprocess.run(["/bin/sh", "-c", f"{line}; exit $?"], check=True, stdin=subprocess.DEVNULL)


def compile_line(source: Path, target: Path) -> str:
    """Shell text that compiles a file; without a C compiler, Python's own under a compiler's name."""
    if any(os.access(Path(folder) / "cc", os.X_OK) for folder in os.environ.get("PATH", "").split(os.pathsep)):
        return f"cc -O3 -c -o '{target}' '{source}'"
    work = "import sys; [compile('x = ' + '+'.join(['(a*b)'] * 3000), 'k', 'exec') for _ in range(200)]; open(sys.argv[1], 'w').write('o')"
    return f"(exec -a cc1plus '{sys.executable}' -c \"{work}\" '{target}')"


def _kernel(rng: random.Random) -> str:
    """Some seconds of work for a C compiler."""
    lines = []
    for number in range(rng.randrange(60, 140)):
        terms = " + ".join(f"a[(i * {rng.randrange(1, 97)} + j) % 512] * {rng.random():.6f}" for _ in range(24))
        lines.append(f"void f{number}(double *a) {{ for (int i = 0; i < 512; i++) for (int j = 0; j < 64; j++) a[i] = {terms}; }}")
    return "\n".join(lines) + "\n"


def long_prefill(stage: Stage, seconds: float = SLOW_S) -> None:
    """A prefill that takes long: products of matrices, block after block, without a word."""
    import torch

    until = time.monotonic() + seconds
    hidden = torch.randn(512, 512, generator=torch.Generator().manual_seed(stage.seed))
    while time.monotonic() < until:
        hidden = torch.tanh(hidden @ hidden) / 512**0.5
        time.sleep(0.01)


def rank_missing(stage: Stage, rank: int, world: int, port: int) -> None:
    """Join a group in which one rank was never started: the others wait for it at the rendezvous."""
    stage.say(f"rank {rank}/{world} joins the process group")
    stage.stuck()
    join(rank, world, port)
    raise AssertionError("the group is complete")


def join(rank: int, world: int, port: int, timeout_s: float = 3600.0) -> None:
    """Become part of a gloo group over loopback."""
    import datetime

    import torch.distributed as dist

    timeout = datetime.timedelta(seconds=timeout_s)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world, timeout=timeout)


def steps(stage: Stage, count: int, pause_s: float, rank: int) -> None:
    """So many steps of a group that is well: some work, one all_reduce each."""
    import torch
    import torch.distributed as dist

    for step in range(count):
        tensor = torch.randn(64, 64) @ torch.randn(64, 64)
        dist.all_reduce(tensor)
        if rank == 0:
            stage.say(f"step {step + 1}/{count + 100} done")
        time.sleep(pause_s)


def rank_stopped(stage: Stage, rank: int, world: int) -> None:
    """One rank is stopped by a signal, the others wait for it in a collective."""
    odd = stage.odd(world)
    if rank == odd:
        stage.blame(os.getpid(), rank)
        stage.stuck()
        os.kill(os.getpid(), signal.SIGSTOP)
    _all_reduce(stage)


def collective_mismatch(stage: Stage, rank: int, world: int) -> None:
    """One rank calls another collective than the rest."""
    import torch
    import torch.distributed as dist

    odd = stage.odd(world)
    if rank != odd:
        return _all_reduce(stage)
    stage.blame(os.getpid(), rank)
    stage.stuck()
    if stage.seed % 3:
        dist.broadcast(torch.ones(8), src=(rank + 1) % world)
    else:
        dist.all_gather([torch.zeros(64, 64) for _ in range(world)], torch.ones(64, 64))
    return threading.Event().wait()  # type: ignore[return-value]  # never set


def _all_reduce(stage: Stage) -> None:
    import torch
    import torch.distributed as dist

    stage.stuck()
    dist.all_reduce(torch.ones(64, 64))
    stage.stuck()
    threading.Event().wait()
