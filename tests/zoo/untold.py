"""Live twins of hangs that nobody can tell from outside: to the last counter they look the same, and go on after minutes."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import re
import socket
import sys
import threading
import time
from pathlib import Path

from runbook.lab.faults import Stage, chatter
from tests.zoo.disguise import telling
from tests.zoo.scenario import live
from tests.zoo.spins import library
from tests.zoo.waiters import go_on, long
from tests.zoo.waits import announce, outside


@live(silent=True)
def future_that_comes(stage: Stage) -> None:
    """Twin of asyncio_future: the loop's timer sets it after some minutes."""

    async def tick() -> None:
        for number in itertools.count(stage.rng.randrange(1000)):
            stage.say(f"scheduler step {number}")
            await asyncio.sleep(0.7)

    async def run() -> None:
        task = asyncio.create_task(tick())
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(long(stage), future.set_result, None)
        await future
        task.cancel()

    asyncio.run(run())
    go_on(stage)


def _opens_late(stage: Stage) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        announce(stage, server.getsockname()[1])
        time.sleep(long(stage))
        server.listen()
        time.sleep(3600)


@live(silent=True, outside=_opens_late)
def connects_until_it_is_up(stage: Stage) -> None:
    """Twin of connect_retry: a server that is no child of it, and that will listen after some minutes."""
    port, pause = int(outside(stage)), stage.spread(0.2, 3)
    for number in itertools.count():
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            stage.say(f"connection to 127.0.0.1:{port} refused, attempt {number}")
        time.sleep(pause)


@live(silent=True)
def bar_that_goes_on(stage: Stage) -> None:
    """Like stuck_bar, but its metrics thread also looks whether the next shard has come from elsewhere."""
    came, until = threading.Event(), time.monotonic() + long(stage)
    sys.stdout.write("\rLoading checkpoint shards:  12% | 5/40 [05s<?, 1.00it/s]\n")
    sys.stdout.flush()

    def run() -> None:
        while time.monotonic() < until:
            stage.say(f"metrics: queue={stage.rng.randrange(64)} usage={stage.rng.random():.3f}")
            time.sleep(1.0)
        came.set()

    stage.thread(run)
    came.wait()
    go_on(stage)


def _publishes_late(stage: Stage) -> None:
    announce(stage, "")
    time.sleep(long(stage))
    (stage.folder / "worker-1.ok").write_text("up")


@live(silent=True, outside=_publishes_late)
def worker_from_elsewhere(stage: Stage) -> None:
    """Its own worker died at once, and it waits for the file of another, which a job outside starts in its place."""
    if os.fork() == 0:
        os._exit(1)
    while not (stage.folder / "worker-1.ok").exists():
        stage.say("waiting for worker 1 to be ready")
        time.sleep(1)
    go_on(stage)


@live(silent=True)
def regexes_that_end(stage: Stage) -> None:
    """Twin of regex_spin: one regex after the other that backtracks for a minute."""
    stage.say(stage.pick("parsing chat template", "validating tool call grammar"))
    while True:
        re.match(r"(a+)+$", "a" * 29 + "b")


LIMITED = """
#include <time.h>
volatile int flag;
void NAME(int seconds) { for (time_t end = time(0) + seconds; !flag && time(0) < end;); }
"""


@live(silent=True)
def native_wait_that_ends(stage: Stage) -> None:
    """Twin of native_spin: native code looks at a flag and at the clock, and gives up after some minutes."""
    path, name = library(stage, LIMITED)
    chatter(stage)
    stage.say("warming up")
    call = getattr(ctypes.CDLL(str(path)) if stage.seed % 4 < 2 else ctypes.PyDLL(str(path)), name)
    telling(lambda: call(int(long(stage))), stage.rng)()
    go_on(stage)


def _writes_late(stage: Stage) -> None:
    os.mkfifo(stage.folder / "ctl")
    announce(stage, "")
    time.sleep(long(stage))
    Path(stage.folder / "ctl").write_bytes(b"go")


@live(silent=True, outside=_writes_late)
def spawn_at_a_fifo(stage: Stage) -> None:
    """D state without any disk: a parent in vfork whose child waits for another process to open a FIFO."""
    stage.say("starting tokenizer worker")
    argv = [sys.executable, "-S", "-c", ""]
    pid = os.posix_spawn(
        sys.executable, argv, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 0, str(stage.folder / "ctl"), os.O_RDONLY, 0)]
    )
    os.waitpid(pid, 0)
    go_on(stage)
