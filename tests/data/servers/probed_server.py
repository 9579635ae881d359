"""A small real HTTP server that answers by a function of a module beside it, which a probe may be in. Counts its starts and requests."""

from __future__ import annotations

import argparse
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ARGS = argparse.ArgumentParser()
ARGS.add_argument("--port", type=int, required=True)
ARGS.add_argument("--folder", type=Path, required=True, help="holds part.py; starts and requests are counted in files there")
ARGS.add_argument("--load", type=float, default=0.5, help="seconds until it listens")
OPTIONS = ARGS.parse_args()
sys.path.insert(0, str(OPTIONS.folder))


def count(name: str) -> None:
    """One line more in that file."""
    with (OPTIONS.folder / name).open("a") as file:
        file.write(f"{time.time()}\n")


class Handler(BaseHTTPRequestHandler):
    """/health, and POST for an answer."""

    def reply(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.reply(b"")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        count("requests")
        time.sleep(0.2)
        answer = part.answer(21)
        sys.stderr.write(f"answered {answer}\n")
        self.reply(b'{"answer": %d}' % answer)

    def log_message(self, *args: object) -> None:
        """It says itself what it does."""


count("starts")
import part  # noqa: E402 - found beside the files that were named on the command line

until = time.monotonic() + OPTIONS.load
while time.monotonic() < until:
    sys.stderr.write("loading\n")
    sys.stderr.flush()
    time.sleep(0.1)
ThreadingHTTPServer(("127.0.0.1", OPTIONS.port), Handler).serve_forever()
