"""httpx's transport over relay streams, and the translation of what httpx and httpcore raise. Imported with the first request."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from typing import Any

import httpcore
import httpx

from runbook.hosts.relay_stream import RelayStream, StreamFailed, TlsStream
from runbook.hosts.session import Session

EXCHANGE = "runbook.exchange"
"""Key of the request extension that holds the `Exchanging`."""

_OUTCOMES: tuple[tuple[type[Exception], str], ...] = (  # most specific first
    (httpcore.ConnectTimeout, "timeout"),
    (httpcore.ConnectError, "refused"),
    (httpcore.TimeoutException, "timeout"),
    (httpcore.NetworkError, "reset"),
    (httpcore.LocalProtocolError, "error"),
    (httpcore.RemoteProtocolError, "error"),
    (httpcore.ProtocolError, "error"),
    (httpcore.ProxyError, "error"),
    (httpcore.UnsupportedProtocol, "error"),
    (httpcore.ConnectionNotAvailable, "error"),
    (httpx.ConnectError, "refused"),
    (httpx.TimeoutException, "timeout"),
    (httpx.NetworkError, "reset"),
    (httpx.HTTPError, "error"),
    (httpx.InvalidURL, "error"),
    (httpx.StreamError, "error"),
    (httpx.CookieConflict, "error"),
)


FAILURES: tuple[type[Exception], ...] = (StreamFailed, *(kind for kind, _ in _OUTCOMES))
"""All that one exchange may raise and that is an outcome of it. HostError is not: that is about the host."""


def client(session: Session, headers: dict[str, str]) -> httpx.Client:
    """A client whose every request goes through the session's relay. The stream keeps the deadline, so httpx has none."""
    return httpx.Client(transport=RelayTransport(session), trust_env=False, timeout=None, headers=headers)


def outcome_of(error: Exception, head: bytes = b"") -> tuple[str, str]:
    """(refused, timeout, reset or error; the reason in words). `head`: the first bytes that the server sent."""
    text = str(error) or type(error).__name__
    if isinstance(error, StreamFailed):
        return error.outcome, text
    if isinstance(error, httpcore.RemoteProtocolError) and "without sending" in text:
        # the same class says that the server closed early and that it does not speak HTTP
        return ("reset", text) if not head or head.startswith(b"HTTP/") else ("error", f"the server does not answer in HTTP: {head!r}")
    return next((outcome for kind, outcome in _OUTCOMES if isinstance(error, kind)), "error"), text


class RelayTransport(httpx.BaseTransport):
    """A fresh connection for each request: a kept one can hide that the server has stopped accepting."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tls: ssl.SSLContext | None = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """One request over one connection; its stream ends with the response's."""
        parts = request.url
        url = httpcore.URL(scheme=parts.raw_scheme, host=parts.raw_host, port=parts.port, target=parts.raw_path)
        if url.scheme not in (b"http", b"https") or not url.host:
            raise httpx.UnsupportedProtocol(f"`{request.url}` is not an http or https address")
        if url.port is not None and url.port > 65535:
            raise httpx.UnsupportedProtocol(f"`{request.url}` has no port of TCP: the last is 65535")
        assert isinstance(request.stream, httpx.SyncByteStream)
        connection = httpcore.HTTPConnection(
            url.origin,
            ssl_context=self._context() if url.scheme == b"https" else None,
            network_backend=_Backend(self._session, request.extensions[EXCHANGE]),
        )
        try:
            response = connection.handle_request(httpcore.Request(request.method, url, headers=request.headers.raw, content=request.stream))
        except BaseException:
            connection.close()
            raise
        return httpx.Response(response.status, headers=response.headers, stream=_Body(connection, response))

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()  # reads the CA bundle: only for https
        return self._tls


class _Body(httpx.SyncByteStream):
    def __init__(self, connection: httpcore.HTTPConnection, response: httpcore.Response) -> None:
        self._connection, self._response = connection, response

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._response.stream, Iterable)
        yield from self._response.stream

    def close(self) -> None:
        self._response.close()
        self._connection.close()


class _Backend(httpcore.NetworkBackend):
    """Opens relay streams for one exchange; httpcore's own timeouts are not used."""

    def __init__(self, session: Session, exchange: Any) -> None:
        self._session, self._exchange = session, exchange

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None, socket_options: Any = None
    ) -> httpcore.NetworkStream:
        self._exchange.stream = RelayStream(self._session, host, port, self._exchange.rest_s, self._exchange.cancel)
        return _Stream(self._exchange.stream)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: RelayStream | TlsStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        assert isinstance(self._stream, RelayStream)
        try:
            return _Stream(TlsStream(self._stream, ssl_context, server_hostname or ""))
        except BaseException:
            self._stream.close()  # httpcore forgets a stream whose handshake failed
            raise

    def get_extra_info(self, info: str) -> Any:
        return self._stream.ssl_object if info == "ssl_object" and isinstance(self._stream, TlsStream) else None
