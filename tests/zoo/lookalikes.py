"""Live twins that bear every outward sign of a hang: of its locks, its loops, its receives, its files. Only a proof tells them apart.

Each goes on after minutes. Undecided is right here, hung never is.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import struct
import threading
import time
import types
from pathlib import Path

from runbook.lab import faults
from runbook.lab.faults import Stage
from tests.zoo.disguise import telling
from tests.zoo.scenario import live
from tests.zoo.waiters import go_on, long
from tests.zoo.waits import announce, outside


@live(silent=True)
def gates_of_a_ticker(stage: Stage) -> None:
    """Two threads wait at two locks, each beside a block of the other's; a thread that looks once a second frees both after minutes."""
    first, second, until = threading.Lock(), threading.Lock(), time.monotonic() + long(stage)
    taken = threading.Event()

    def tick() -> None:
        first.acquire()
        second.acquire()
        taken.set()
        while time.monotonic() < until:
            stage.say(f"metrics: queue={stage.rng.randrange(64)}")
            time.sleep(1.0)
        second.release()
        first.release()

    def tokens() -> None:
        with second:
            pass

    stage.thread(tick)
    taken.wait()
    stage.thread(tokens)
    with first:
        go_on(stage)


class _Pair:
    """Two locks of one object."""

    def __init__(self) -> None:
        self.first, self.second = threading.Lock(), threading.Lock()

    def forth(self) -> None:
        with self.first:
            time.sleep(0.3)
            with self.second:
                pass

    def back(self) -> None:
        with self.second:
            time.sleep(0.3)
            with self.first:
                pass


@live(silent=True)
def locks_of_two_objects(stage: Stage) -> None:
    """Threads stand in blocks of each other's locks by name, but of two objects: a third holds both and sleeps."""
    one, other, until = _Pair(), _Pair(), time.monotonic() + long(stage)
    taken = threading.Event()

    def hold() -> None:
        with one.second, other.first:
            taken.set()
            while time.monotonic() < until:
                time.sleep(0.5)

    stage.thread(hold)
    taken.wait()
    stage.thread(one.forth)
    other.back()
    go_on(stage)


def _answers_the_second(stage: Stage) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    announce(stage, listener.getsockname()[1])
    connection, _ = listener.accept()
    connection.recv(100)
    connection.recv(100)
    connection.sendall(b"answer")
    threading.Event().wait()


@live(silent=True, outside=_answers_the_second)
def receives_with_a_limit(stage: Stage) -> None:
    """Its first request was dropped; the socket has a limit of time, after which it asks again and gets its answer."""
    connection = socket.create_connection(("127.0.0.1", int(outside(stage))))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(long(stage)), 0))
    connection.sendall(b"ask")
    try:
        connection.recv(100)
    except BlockingIOError:
        stage.say("no answer, asking again")
    connection.sendall(b"ask again")
    connection.recv(100)
    go_on(stage)


@live(silent=True)
def attempt_with_an_alarm(stage: Stage) -> None:
    """It waits for a child that stands still and bears an alarm; once that has ended the child it tries again."""
    child = os.fork()
    if child == 0:
        signal.alarm(int(long(stage)))
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    os.waitpid(child, 0)
    go_on(stage)


def _sets_the_flag(stage: Stage) -> None:
    path = stage.folder / "ring"
    path.write_bytes(bytes(4096))
    announce(stage, "")
    time.sleep(long(stage))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as ring:
        ring[0] = 1
    threading.Event().wait()


@live(silent=True, pace="spin", outside=_sets_the_flag)
def flag_in_shared_memory(stage: Stage) -> None:
    """It looks at full speed at a flag in shared memory, which another process sets after minutes."""
    with (stage.folder / "ring").open("r+b") as file:
        ring = mmap.mmap(file.fileno(), 4096)

    def look() -> None:
        while ring[0] == 0:
            pass

    telling(look, stage.rng)()
    go_on(stage)


@live(silent=True, pace="spin")
def flag_of_a_child(stage: Stage) -> None:
    """As before, in memory without a name, by a child that sleeps."""
    ring = mmap.mmap(-1, 4096)
    if os.fork() == 0:
        time.sleep(long(stage))
        ring[0] = 1
        os._exit(0)

    def look() -> None:
        while not ring[0]:
            os.sched_yield()

    telling(look, stage.rng)()
    go_on(stage)


@live(silent=True, pace="spin")
def spins_until_its_time(stage: Stage) -> None:
    """It waits at full speed for a given time."""
    until = time.monotonic() + long(stage)

    def look() -> None:
        while time.monotonic() < until:
            pass

    telling(look, stage.rng)()
    go_on(stage)


@live(silent=True, pace="spin")
def flag_of_a_thread_that_sleeps(stage: Stage) -> None:
    """It looks at full speed at a flag that another thread sets, which until then says now and then that it lives."""
    flag: list[int] = []
    until = time.monotonic() + long(stage)

    def beat() -> None:
        while True:
            stage.say(f"alive, {until - time.monotonic():.0f} s left")
            time.sleep(2)
            if time.monotonic() > until:
                flag.append(1)

    def look() -> None:
        while not flag:
            pass

    stage.thread(beat)
    telling(look, stage.rng)()
    go_on(stage)


def _work_until_long(stage: Stage) -> None:
    time.sleep(4)
    announce(stage, "")
    until = time.monotonic() + long(stage)
    while time.monotonic() < until:
        sum(range(100_000))
        time.sleep(0.5)


def _holds_a_lock_file(stage: Stage) -> None:
    path = stage.folder / "build.lock"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    _work_until_long(stage)
    path.unlink()
    threading.Event().wait()


def acquire_file_lock(path: Path) -> None:
    """Look until it is not there."""
    while os.path.exists(path):
        time.sleep(0.5)


@live(silent=True, outside=_holds_a_lock_file)
def lock_file_of_a_builder(stage: Stage) -> None:
    """A lock file by existence, closed at once by its maker, which builds on and will remove it; who waits for it came later."""
    stage.say("waiting for the build")
    acquire = types.FunctionType(acquire_file_lock.__code__.replace(co_name="acquire_file_lock"), globals())
    acquire(stage.folder / "build.lock")
    go_on(stage)


def _two_builds(stage: Stage) -> tuple[Path, Path]:
    """Lock files of a build that was killed, and of the one that somebody works on."""
    killed, other = (faults.extensions() / name / "lock" for name in stage.rng.sample(("fused_moe", "rotary", "rms_norm"), 2))
    return killed, other


def _builds_beside_a_killed_build(stage: Stage) -> None:
    killed, mine = _two_builds(stage)
    for path in (killed, mine):
        path.parent.mkdir(parents=True, exist_ok=True)
    killed.touch()
    baton = faults.baton(mine)
    baton.try_acquire()
    _work_until_long(stage)
    baton.release()
    threading.Event().wait()


@live(silent=True, outside=_builds_beside_a_killed_build)
def build_beside_a_killed_one(stage: Stage) -> None:
    """It waits in torch's own code for the lock of a build that another job works on; the lock of a killed build lies beside it."""
    _, other = _two_builds(stage)
    stage.say(f"Building extension module {other.parent.name}...")
    faults.baton(other).wait()
    go_on(stage)


def _hub_locks(stage: Stage) -> Path:
    name = stage.pick("models--org--m", "models--meta--llama", "datasets--squad")
    return Path.home() / ".cache" / "huggingface" / "hub" / ".locks" / name


def _downloads_beside_old_locks(stage: Stage) -> None:
    import filelock

    folder = _hub_locks(stage)
    folder.mkdir(parents=True)
    for _ in range(3):
        (folder / f"{stage.rng.randbytes(20).hex()}.lock").touch()
    with filelock.FileLock(folder / "blob.lock"):
        _work_until_long(stage)
    threading.Event().wait()


@live(silent=True, outside=_downloads_beside_old_locks)
def download_beside_old_locks(stage: Stage) -> None:
    """A hub's cache keeps its lock files for ever; it waits for the one that another job holds."""
    import filelock

    folder = _hub_locks(stage)
    stage.say("Fetching 4 files")
    with filelock.FileLock(folder / "blob.lock"):
        go_on(stage)


@live(silent=True)
def shards_from_another_job(stage: Stage) -> None:
    """A loader at shard 3 of 12 polls a shared folder for the next one, which another job publishes, and logs what it always logs."""
    for number in range(1, 4):
        stage.say(f"Loading safetensors checkpoint shards: {number}/12")
        time.sleep(0.5)
    texts = ("watchdog: alive at {}", "cache holds {} entries", "garbage collection ran {} times", "shard folder listed {} times")
    more = ("metrics sent, number {}", "next shard is not published, look {}", "heartbeat number {}")
    number = 0
    while not (stage.folder / "model-00004-of-00012.safetensors").exists():
        stage.say((*texts, *more)[number % 7].format(number))
        number += 1
        time.sleep(stage.spread(0.5, 1.2))
