"""A strict, stateful server for tests: keeps what it was sent, and can lose an answer, fail, or ask to wait."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

LOST = "lost"
"""Do it and answer nothing: the connection is closed."""


class Seen(NamedTuple):
    """One request as it arrived; header names in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


Reply = tuple[int, dict[str, str], Any]


class Stub:
    """Subclasses give `answer(seen)`. `script` holds, by method, what to do with the next requests instead: a reply, or LOST."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.script: dict[str, list[Reply | str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.host = f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, seen: Seen) -> Reply:
        """(status, headers, data)."""
        raise NotImplementedError

    def count(self, method: str, ending: str = "") -> int:
        """Requests of this method whose path ends so."""
        return sum(seen.method == method and seen.path.endswith(ending) for seen in self.seen)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                parts = urlsplit(self.path)
                query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                seen = Seen(
                    self.command, parts.path, query, {k.lower(): ", ".join(self.headers.get_all(k) or ()) for k in self.headers}, body
                )
                stub.seen.append(seen)
                planned = (stub.script.get(self.command) or [None]).pop(0) if stub.script.get(self.command) else None
                reply = planned if isinstance(planned, tuple) else stub.answer(seen)
                if planned == LOST:
                    self.close_connection = True
                    return
                status, headers, data = reply
                content = data if isinstance(data, bytes) else b"" if data is None else json.dumps(data).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = _serve

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def form(seen: Seen) -> dict[str, tuple[str, str, bytes]]:
    """A multipart body: field -> (file name, type, content)."""
    import email.parser
    import email.policy

    head = f"Content-Type: {seen.headers['content-type']}\r\n\r\n".encode()
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + seen.body)
    found = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        found[name] = (part.get_filename() or "", part.get_content_type(), part.get_payload(decode=True))
    return found


Starter = Callable[..., Any]
