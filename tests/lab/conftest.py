"""A built lab home, servers of the engine as real processes on free ports, and labs in state folders of their own."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from runbook.lab import home as lab_home
from tests.support.waiting import until

NUMBERS = itertools.count()
PYTHON = [sys.executable, "-m", "lab_engine.launch_server"]


def free_port() -> int:
    """Below the ports that the kernel gives to outgoing connections: a server binds its port only seconds later."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Answer(NamedTuple):
    status: int
    body: bytes
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Engine:
    """A server of the lab's engine: a real process with its log."""

    def __init__(self, home: Path, *flags: str, port: int | None = None, prefix: tuple[str, ...] = ()) -> None:
        self.port = port or free_port()
        self.log_file = home / f"server-{next(NUMBERS)}.log"
        env = {**os.environ, "PYTHONUNBUFFERED": "1", "LAB_TEST_MARK": "kept"}
        with self.log_file.open("wb") as log:
            argv = [*prefix, *PYTHON, "--port", str(self.port), *flags]
            self.process = subprocess.Popen(
                argv, cwd=home, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def log(self) -> str:
        return self.log_file.read_bytes().decode()  # not read_text: it would turn \r into \n

    def ask(self, path: str, body: Any = None, timeout: float = 60) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        begin = time.monotonic()
        try:
            data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
            connection.request("GET" if body is None else "POST", path, data)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read(), time.monotonic() - begin)
        finally:
            connection.close()

    def chat(self, **more: Any) -> Answer:
        message = {"role": "user", "content": "Count from 1 to 200. (20261130-0001)"}
        return self.ask("/v1/chat/completions", {"model": "tiny", "messages": [message], "temperature": 0, "ignore_eos": True, **more})

    def ready(self) -> Engine:
        def is_ready() -> bool:
            assert self.process.poll() is None, self.log
            with contextlib.suppress(OSError):
                return self.ask("/ready", timeout=5).status == 200
            return False

        until(is_ready, 60)
        return self

    def ranks(self) -> list[int]:
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                parent = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1]
                if int(parent) == self.process.pid and Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sglang::"):
                    found.append(int(pid))
        return sorted(found)

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("lab") / "home"
    lab_home.build(place)
    return place


@pytest.fixture(scope="session")
def session_engine(home: Path) -> Iterator[Callable[..., Engine]]:
    """Starts servers that live until the end of the tests; the same flags give the same server."""
    started: dict[tuple[str, ...], Engine] = {}

    def start(*flags: str) -> Engine:
        if flags not in started:
            started[flags] = Engine(home, *flags).ready()
        return started[flags]

    yield start
    for engine in started.values():
        engine.close()


@pytest.fixture
def engine(home: Path) -> Iterator[Callable[..., Engine]]:
    """Starts servers that this test may harm."""
    started: list[Engine] = []

    def start(*flags: str, **more: Any) -> Engine:
        started.append(Engine(home, *flags, **more))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder of its own; the lab in it is ended after the test."""
    from runbook.lab import control

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield tmp_path
    control.down()
