"""Servers that listen, and processes that end: health checks, long prefills, crashes."""

from __future__ import annotations

import http.server
import os
import threading
import time
from collections.abc import Callable

from runbook.lab import faults
from runbook.lab.faults import Stage, chatter
from tests.zoo.scenario import crashed, live, serving, wrong_check

Answer = tuple[int, bytes]


def serve(stage: Stage, answer: Callable[[], Answer]) -> http.server.ThreadingHTTPServer:
    """Listen on the scenario's port and answer every path alike."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answer()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, form: str, *args: object) -> None:
            stage.say(f'127.0.0.1 - "{self.path}" {args[1] if len(args) > 1 else ""}')

    server = http.server.ThreadingHTTPServer(("127.0.0.1", int((stage.folder / "port").read_text())), Handler)
    stage.thread(server.serve_forever)
    return server


@live(serves=True)
def long_prefill(stage: Stage) -> None:
    """`/health` answers 503 for minutes, since a long prefill is under way."""
    serve(stage, lambda: (503, b""))
    while True:
        faults.long_prefill(stage, 60)


@serving()
def slow_health(stage: Stage) -> None:
    """A healthy server whose check takes a second by design."""

    def answer() -> Answer:
        time.sleep(1.0)
        return 200, b""

    serve(stage, answer)
    threading.Event().wait()


@serving()
def idle_server(stage: Stage) -> None:
    """A healthy server without any work: every thread stands, and that is right."""
    serve(stage, lambda: (200, b"ok"))
    if stage.seed % 2:
        chatter(stage, 5.0)
    threading.Event().wait()


@wrong_check(body="ok")
def empty_answer(stage: Stage) -> None:
    """The check wants `ok` in the body; the server answers 200 with none."""
    stage.pause(1, 3)
    serve(stage, lambda: (200, b""))
    stage.stuck()
    threading.Event().wait()


@crashed("exception", "rank_died", "signal")
def raises(stage: Stage) -> None:
    """It dies of an exception while it loads."""
    for number in range(stage.rng.randrange(9, 15)):
        stage.say(f"loaded shard {number}")
        stage.pause(0.5, 1.5)
    stage.stuck()
    raise ValueError(stage.pick("shapes (4, 8) and (16,) do not fit", "unknown dtype fp3", "missing key lm_head.weight"))


@crashed("signal", "oom_host", "rank_died", "exception")
def killed(stage: Stage) -> None:
    """It is killed by a signal."""
    stage.say("loading weights")
    stage.pause(8, 15)
    stage.stuck()
    os.kill(os.getpid(), stage.rng.choice((9, 11)))
