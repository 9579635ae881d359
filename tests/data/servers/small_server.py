"""A small real server with SGLang's health contract and log shapes: it reads a file while it loads, then listens. For step tests."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ARGS = argparse.ArgumentParser()
ARGS.add_argument("--port", type=int, required=True)
ARGS.add_argument("--model-path", default="tiny")
ARGS.add_argument("--says-model", default=None)
ARGS.add_argument("--load", type=float, default=0.3, help="seconds of loading, with a shard bar")
ARGS.add_argument("--warm-until", default="", help="503 until this file exists")
ARGS.add_argument("--fails", default="", help="exception text at the end of the load")


def say(text: str) -> None:
    """One log line in SGLang's form."""
    sys.stderr.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}\n")


def rank(text: str) -> None:
    """One log line of rank 0."""
    sys.stderr.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')} TP0] {text}\n")


def load(seconds: float) -> None:
    """A shard bar by carriage return, one shard every tenth of a second."""
    rank("Load weight begin. avail mem=1.00 GB")
    total = max(1, int(seconds * 10))
    for done in range(1, total + 1):
        time.sleep(0.1)
        percent = 100 * done // total
        sys.stderr.write(f"\rLoading safetensors checkpoint shards: {percent:3d}% Completed | {done}/{total} [00:01<00:01,  9.9it/s]\n")
    rank("Load weight end. type=Tiny, avail mem=0.50 GB")


class Handler(BaseHTTPRequestHandler):
    """Paths that a test may ask."""

    options: argparse.Namespace

    def reply(self, status: int, body: bytes = b"", kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def is_warm(self) -> bool:
        return not self.options.warm_until or os.path.exists(self.options.warm_until)

    def do_GET(self) -> None:
        if self.path == "/health":
            self.reply(200 if self.is_warm() else 503)
        elif self.path == "/get_server_info":
            self.reply(
                200,
                json.dumps(
                    {"model_path": self.options.says_model or self.options.model_path, "port": self.options.port, "tp_size": 1}
                ).encode(),
            )
        elif self.path == "/die":
            say("Traceback (most recent call last):\nRuntimeError: the draft has no fc")
            os._exit(9)
        elif self.path.startswith("/echo"):
            self.reply(200, json.dumps({"path": self.path, "headers": dict(self.headers)}).encode())
        else:
            self.reply(404, b"no such page", "text/plain")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if asked.get("stream"):
            return self.stream()
        for step in range(asked.get("steps", 0)):
            time.sleep(0.1)
            rank(
                f"Decode batch, #running-req: 1, #token: {40 * (step + 1)}, accept len: {asked.get('accept', 4.0):.2f}, gen throughput (token/s): 9.00, #queue-req: 0"
            )
        self.reply(200, json.dumps({"choices": [{"message": {"content": "1 2 3"}}], "meta_info": asked.get("meta", {})}).encode())

    def stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for word in ("one ", "two ", "three"):
            self.wfile.write(f"data: {json.dumps({'choices': [{'delta': {'content': word}}]})}\n\n".encode())
            self.wfile.flush()
            time.sleep(0.05)
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: object) -> None:
        say(f'INFO:     {self.client_address[0]} - "{self.requestline}" {args[1]}')


def main() -> None:
    """Load, listen, warm up, serve."""
    options = ARGS.parse_args()
    say(f"server_args=ServerArgs(model_path={options.model_path!r})")
    load(options.load)
    if options.fails:
        raise ValueError(options.fails)
    Handler.options = options
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    say(f"INFO:     Uvicorn running on http://127.0.0.1:{options.port}")
    if not options.warm_until:
        say("The server is fired up and ready to roll!")
    server.serve_forever()


main()
