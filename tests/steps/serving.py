"""A launched small server for tests of the steps that wait for one, and a plain HTTP server of the test's own."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from runbook.hosts.base import Host, ProcessId
from runbook.steps.launch import Launch
from tests.diagnose.stories import GENERIC, SGLANG
from tests.support.context import LocalContext

SMALL_SERVER = Path(__file__).parents[1] / "data" / "servers" / "small_server.py"


def free_port() -> int:
    """A port that nothing listens on at this moment."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Serving:
    """A context in which `server` is launched."""

    def __init__(self, host: Host, folder: Path, profile: str) -> None:
        self.ctx = LocalContext(host, folder, profiles={"sglang": SGLANG, "generic": GENERIC})
        self.port = free_port()
        self.profile = profile

    def launch(self, *options: str) -> Serving:
        """Start the small server; settles for a tenth of a second."""
        command = [sys.executable, str(SMALL_SERVER), "--port", str(self.port), *options]
        result = self.ctx.at("server").do(Launch(command=command, profile=self.profile, settle=0.1))
        assert result.verdict == "passed", result.reason
        return self

    @property
    def pid(self) -> int:
        """Its main process."""
        launched = self.ctx.launched("server")
        assert launched is not None
        return launched.state.pid

    def do(self, id: str, step: Any, box_s: float = 10.0) -> Any:
        """Run a step with its own time box."""
        self.ctx.box_s = box_s
        return self.ctx.at(id).do(step)

    def close(self) -> None:
        """End the server and its keeper."""
        launched = self.ctx.launched("server")
        if launched is not None:
            self.ctx.host.kill([ProcessId(launched.state.pid, launched.state.start)], ["KILL 5s"])
        self.ctx.host.retire(self.ctx.run.id)


@pytest.fixture
def serving(local_host: Host, tmp_path: Path) -> Iterator[Serving]:
    """A context for a server with SGLang's profile."""
    found = Serving(local_host, tmp_path, "sglang")
    yield found
    found.close()


class _Quiet(BaseHTTPRequestHandler):
    status, body = 200, b""

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@contextlib.contextmanager
def plain_server(port: int = 0, status: int = 200, body: bytes = b"") -> Iterator[int]:
    """A server in this process that gives one answer to every GET; yields its port."""
    handler = type("Fixed", (_Quiet,), {"status": status, "body": body})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
