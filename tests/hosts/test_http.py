"""HTTP from inside a host: exact outcomes, one deadline, streams as they come."""

from __future__ import annotations

import http.server
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpcore
import httpx
import pytest

from runbook.hosts import relay_transport
from runbook.hosts.base import Cancelled, CancelToken, Host, LinkLost
from runbook.hosts.local import connect_local


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    connected = connect_local()
    yield connected
    connected.close()


class Handler(http.server.BaseHTTPRequestHandler):
    """Paths that behave as servers do in bad moments."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        port = self.server.server_address[1]
        if self.path == "/health":
            self.answer(200, b"", X_Seen=self.headers.get("X-Mine", ""), X_Port=str(port))
        elif self.path == "/missing":
            self.answer(404, b"not here")
        elif self.path == "/big":
            self.answer(200, bytes(range(256)) * 24_000)
        elif self.path == "/slow":
            self.server.gate.wait(30)  # type: ignore[attr-defined]
        elif self.path == "/half":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"half of it")
            self.close_connection = True
        elif self.path == "/dribble":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            while not self.server.gate.wait(0.05):  # type: ignore[attr-defined]
                self.wfile.write(b".")
        elif self.path == "/moved":
            self.answer(302, b"", Location="/health")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/echo":
            return self.answer(200, body, Content_Type=self.headers["Content-Type"])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in (b": comment\n\n", b'data: {"n": 1}\n\n', b'data: {"n": 2}\r\n\r\n', b"data: [DO", b"NE]\n\n"):
            self.wfile.write(event)
            self.wfile.flush()
            time.sleep(0.02)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    gate: threading.Event

    def handle_error(self, request: object, address: object) -> None:
        pass  # clients that go away are part of these tests


@pytest.fixture
def server() -> Iterator[str]:
    with Server(("127.0.0.1", 0), Handler) as one:
        one.gate = threading.Event()
        threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{one.server_address[1]}"
        one.gate.set()
        one.shutdown()


@contextmanager
def raw_server(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that says what `talk` says to its first client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(65536)
                talk(client)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"


def test_an_empty_200_is_an_answer_with_no_body(host: Host, server: str) -> None:
    answer = host.http.request("GET", server + "/health", headers={"X-Mine": "yes"}, timeout_s=5)
    assert (answer.outcome, answer.status, answer.body, answer.error) == ("answer", 200, b"", "")
    assert answer.headers["x-seen"] == "yes" and 0 < answer.latency_s < 5


def test_every_status_is_an_answer_and_redirects_are_not_followed(host: Host, server: str) -> None:
    missing = host.http.request("GET", server + "/missing", timeout_s=5)
    moved = host.http.request("GET", server + "/moved", timeout_s=5)
    assert (missing.outcome, missing.status, missing.body) == ("answer", 404, b"not here")
    assert (moved.status, moved.headers["location"]) == (302, "/health")


def test_a_body_is_posted_and_comes_back(host: Host, server: str) -> None:
    body = json.dumps({"text": "ü" * 300_000}).encode()
    answer = host.http.request("POST", server + "/echo", headers={"Content-Type": "application/json"}, content=body, timeout_s=10)
    assert answer.body == body and answer.headers["content-type"] == "application/json"


def test_a_large_body_arrives_whole(host: Host, server: str) -> None:
    """Larger than what the helper may send unacknowledged."""
    assert host.http.request("GET", server + "/big", timeout_s=20).body == bytes(range(256)) * 24_000


def test_many_requests_run_side_by_side(host: Host, server: str) -> None:
    answers: list[int | None] = []
    threads = [
        threading.Thread(target=lambda: answers.append(host.http.request("GET", server + "/health", timeout_s=10).status))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 16


def test_environment_proxies_are_not_used(host: Host, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert connect_and_get(server + "/health") == 200


def connect_and_get(url: str) -> int | None:
    host = connect_local()
    try:
        return host.http.request("GET", url, timeout_s=5).status
    finally:
        host.close()


def test_nobody_listening_is_refused(host: Host) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        answer = host.http.request("GET", f"http://127.0.0.1:{unused.getsockname()[1]}/", timeout_s=5)
    assert answer.outcome == "refused" and answer.status is None and "Connection refused" in answer.error


def test_a_server_that_accepts_and_says_nothing_is_a_timeout(host: Host, server: str) -> None:
    answer = host.http.request("GET", server + "/slow", timeout_s=0.4)
    assert answer.outcome == "timeout" and 0.4 <= answer.latency_s < 2


def test_a_full_accept_queue_is_a_timeout(host: Host) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        answer = host.http.request("GET", f"http://127.0.0.1:{port}/", timeout_s=0.4)
        for one in waiting:
            one.close()
    assert answer.outcome == "timeout" and "connect" in answer.error


def test_the_deadline_covers_the_body_and_what_came_is_kept(host: Host, server: str) -> None:
    """Bytes that drip in for ever must not renew the time."""
    answer = host.http.request("GET", server + "/dribble", timeout_s=0.5)
    assert (answer.outcome, answer.status) == ("timeout", 200)
    assert answer.body.startswith(b"..") and answer.latency_s < 2


@pytest.mark.parametrize(
    ("talk", "outcome"),
    [
        (lambda client: None, "reset"),  # closes without a word
        (lambda client: client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"), "reset"),  # sends RST
        (lambda client: client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"), "error"),  # something else than HTTP
    ],
    ids=["closes at once", "resets", "speaks another protocol"],
)
def test_servers_that_break_off(host: Host, talk: Callable[[socket.socket], None], outcome: str) -> None:
    with raw_server(talk) as url:
        answer = host.http.request("GET", url, timeout_s=5)
    assert answer.outcome == outcome and answer.error


def test_a_body_that_breaks_off_is_reset_and_what_came_is_kept(host: Host, server: str) -> None:
    answer = host.http.request("GET", server + "/half", timeout_s=5)
    assert (answer.outcome, answer.status, answer.body) == ("reset", 200, b"half of it")


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "http://", "127.0.0.1:80", "http://[::1", "http://127.0.0.1:99999/"])
def test_an_address_that_cannot_be_asked_is_an_error_value(host: Host, url: str) -> None:
    answer = host.http.request("GET", url, timeout_s=5)
    assert answer.outcome == "error" and answer.error


def test_a_name_that_does_not_resolve_is_an_error(host: Host) -> None:
    answer = host.http.request("GET", "http://no-such-host.invalid/", timeout_s=10)
    assert answer.outcome == "error" and "does not resolve" in answer.error


def test_a_stream_gives_its_events_and_the_time_of_the_first(host: Host, server: str) -> None:
    answer = host.http.request("POST", server + "/stream", content=b"{}", timeout_s=5, stream=True)
    assert answer.events == ('{"n": 1}', '{"n": 2}', "[DONE]") and answer.status == 200
    assert answer.ttft_s is not None and 0 < answer.ttft_s < answer.latency_s
    assert answer.body.endswith(b"data: [DONE]\n\n")


def test_cancel_ends_a_request_at_once(host: Host, server: str) -> None:
    token = CancelToken()
    threading.Timer(0.2, token.set).start()
    began = time.monotonic()
    with pytest.raises(Cancelled):
        host.http.request("GET", server + "/slow", timeout_s=20, cancel=token)
    assert time.monotonic() - began < 3


def test_a_lost_host_is_unreachable_and_says_nothing_about_the_server(server: str) -> None:
    host = connect_local()
    host.close()
    with pytest.raises(LinkLost):
        host.http.request("GET", server + "/health", timeout_s=5)


@pytest.mark.slow
def test_tls_is_verified(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(("127.0.0.1", 0), Handler) as one:
        one.socket = server_context(tmp_path).wrap_socket(one.socket, server_side=True)
        one.gate = threading.Event()
        threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        url = f"https://127.0.0.1:{one.server_address[1]}/health"
        unknown = host.http.request("GET", url, timeout_s=5)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        assert connect_and_get(url) == 200
        one.shutdown()
    assert unknown.outcome == "error" and "certificate" in unknown.error


def server_context(folder: Path) -> ssl.SSLContext:
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=127.0.0.1"
    subprocess.run(
        [*words.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def test_every_exception_of_the_libraries_is_an_outcome() -> None:
    """A new exception class of httpx or httpcore must not come out as a traceback."""
    bases = {httpx.HTTPError, httpx.TransportError, httpx.RequestError}
    kinds = {
        kind
        for library in (httpx, httpcore)
        for kind in vars(library).values()
        if isinstance(kind, type) and issubclass(kind, Exception) and kind not in bases
    }
    assert len(kinds) > 20
    assert {kind for kind in kinds if not issubclass(kind, relay_transport.FAILURES)} == set()
    assert relay_transport.outcome_of(httpcore.ReadTimeout())[0] == "timeout"
    assert relay_transport.outcome_of(httpcore.WriteError())[0] == "reset"


@pytest.mark.slow
def test_a_controller_that_asks_nothing_does_not_import_httpx() -> None:
    code = "import sys; from runbook.hosts.local import connect_local; connect_local().close(); sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
