"""Hangs on something outside: lock files, pipes, standard input, silent or absent peers, and retries that never end."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time

from runbook.lab import faults
from runbook.lab.faults import Stage, chatter
from tests.zoo.scenario import hung


@hung("stale_lock", pace="decisive")
def stale_lock(stage: Stage) -> None:
    """A lock file whose maker is long dead, polled for ever."""
    if stage.seed % 3 == 0:
        chatter(stage)
    faults.stale_lock(stage)


@hung("log_pipe", pace="decisive")
def log_pipe(stage: Stage) -> None:
    """The log is a pipe whose reader no longer reads."""
    faults.log_pipe(stage)


@hung("stdin", pace="decisive")
def stdin(stage: Stage) -> None:
    """It asks something on standard input, a pipe from its launcher, which writes nothing and waits for it to end."""
    inlet, outlet = os.pipe()
    asks = os.fork()
    if asks == 0:
        os.dup2(inlet, 0)
        os.close(outlet)
        stage.pause(0.5, 3)
        if stage.seed % 2:
            chatter(stage)
        stage.say(stage.pick("Trust remote code? [y/N]", "Overwrite existing cache? (y/n)", "Enter access token:"))
        stage.stuck()
        sys.stdin.readline()
        os._exit(1)
    os.close(inlet)
    stage.blame(pid=asks)
    stage.stuck()
    os.waitpid(asks, 0)


def _send_then_nothing(stage: Stage) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    announce(stage, listener.getsockname()[1])
    connection, _ = listener.accept()
    connection.sendall(bytes(stage.rng.randrange(1 << 16, 1 << 20)))
    threading.Event().wait()


def announce(stage: Stage, text: object) -> None:
    """The outside program is ready; the file appears with its content."""
    draft = stage.folder / "outside.new"
    draft.write_text(str(text))
    draft.rename(stage.folder / "outside")


def outside(stage: Stage) -> str:
    """What the outside program announced."""
    return (stage.folder / "outside").read_text()


@hung("blocked_peer", outside=_send_then_nothing)
def silent_peer(stage: Stage) -> None:
    """A download whose peer, outside the tree, keeps the connection open and sends nothing more."""
    connection = socket.create_connection(("127.0.0.1", int(outside(stage))))
    stage.say(stage.pick("Downloading model-00001-of-00004.safetensors", "fetching config and weights", "GET /blobs/sha256"))
    if stage.seed % 2:
        chatter(stage)
    got = 0
    while data := connection.recv(1 << 16):
        got += len(data)
        stage.stuck()
    stage.say(f"got {got} bytes")


@hung("livelock", "unsatisfiable", "blocked_peer", "rank_missing", twin="connects_until_it_is_up")
def connect_retry(stage: Stage) -> None:
    """It connects for ever to a port where nobody listens, with a line about each attempt."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = stage.pick("connection to 127.0.0.1:{port} refused, attempt {n}", "retry {n}: store at {port} not ready after {s:.1f}s")
    begin, pause = time.monotonic(), stage.spread(0.2, 3)
    stage.stuck()
    for n in range(1 << 30):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5)
        except OSError:
            stage.say(text.format(port=port, n=n, s=time.monotonic() - begin))
        time.sleep(pause)


@hung("livelock")
def livelock(stage: Stage) -> None:
    """Requests are moved to and fro for ever; every line of the log is new, its only counter stands."""
    faults.livelock(stage)


@hung("deadlock", "blocked_peer", "livelock")
def stuck_bar(stage: Stage) -> None:
    """A bar stands at some percent since its main thread waits for ever; the metrics thread logs on."""
    total = stage.rng.choice((40, 163, 512))
    for done in range(1, stage.rng.randrange(4, 12)):
        sys.stdout.write(f"\rLoading checkpoint shards: {100 * done // total:3d}% | {done}/{total} [{done:02d}s<?, 1.00it/s]")
        sys.stdout.flush()
        sum(i * i for i in range(100_000))
        stage.pause(0.2, 0.8)
    sys.stdout.write("\n")
    stage.stuck()
    chatter(stage)
    threading.Event().wait()
