"""Hangs at full CPU: native code with and without the interpreter's lock, regexes, loops."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import subprocess
import threading
from pathlib import Path

from runbook.lab.faults import Stage, chatter
from tests.zoo.disguise import telling
from tests.zoo.scenario import hung

SOURCE = """
#include <sched.h>
volatile int flag;
void NAME(int yield) { while (!flag) if (yield) sched_yield(); }
"""


def library(stage: Stage, text: str = SOURCE) -> tuple[Path, str]:
    """A shared library with one function that waits for a flag by looking at it, and the function's name."""
    name = stage.pick("stream_synchronize", "poll_completion", "ring_wait", "device_barrier")
    source, target = stage.folder / "spin.c", stage.folder / f"lib{name}.so"
    source.write_text(text.replace("NAME", name))
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(target), str(source)], check=True)
    return target, name


@hung("spin", pace="spin", twin="native_wait_that_ends")
def native_spin(stage: Stage) -> None:
    """Native code looks at a flag for ever: without the interpreter's lock, so that a metrics thread goes on, or with it."""
    path, name = library(stage)
    chatter(stage)
    stage.say("warming up")
    stage.pause(1, 4)
    stage.stuck()
    call = getattr(ctypes.CDLL(str(path)) if stage.seed % 4 < 2 else ctypes.PyDLL(str(path)), name)
    telling(lambda: call(stage.seed % 3 == 0), stage.rng)()


@hung("spin", pace="spin", twin="regexes_that_end")
def regex_spin(stage: Stage) -> None:
    """A regex that backtracks for thousands of years."""
    stage.pause(0.5, 2)
    stage.say(stage.pick("parsing chat template", "validating tool call grammar"))
    stage.stuck()
    re.match(r"(\w+\s?)+$", "token " * stage.rng.randrange(12, 20) + "!")
    re.match(r"(a+)+$", "a" * 60 + "b")


@hung("spin", pace="spin")
def python_spin(stage: Stage) -> None:
    """A Python loop looks at a flag that nobody sets."""
    stage.say("waiting for engine")
    flag: list[int] = []

    def look() -> None:
        while not flag:
            pass

    stage.stuck()
    telling(look, stage.rng)()


@hung("spin", "deadlock", "blocked_peer", pace="spin")
def yield_spin(stage: Stage) -> None:
    """A consumer of a ring in shared memory yields for ever, since the producer, its child, hangs on a lock."""
    ring = mmap.mmap(-1, 4096)
    child = os.fork()
    if child == 0:
        for number in range(stage.rng.randrange(50, 400)):
            ring[0] = number % 255 + 1
            sum(range(20_000))
        stage.stuck()
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

    def take() -> None:
        while True:
            if ring[0]:
                ring[0] = 0
            os.sched_yield()

    stage.stuck()
    telling(take, stage.rng)()
