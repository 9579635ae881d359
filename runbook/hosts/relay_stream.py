"""A TCP connection inside a host as a byte stream here: one `relay` operation of the helper."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from runbook.hosts.base import CallTimeout, CancelToken, RemoteError
from runbook.hosts.session import Exchange, Session, answer

CHUNK = 1 << 16
HEAD = 60


class StreamFailed(Exception):
    """The connection failed on the host's side. `outcome` is refused, timeout, reset or error."""

    def __init__(self, outcome: str, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


class RelayStream:
    """One connection. Opening costs no round trip of its own: bytes are sent before it is known to stand, and a failure to connect
    comes out of the first read. `rest_s` says how long a read may still wait.
    """

    def __init__(self, session: Session, host: str, port: int, rest_s: Callable[[], float], cancel: CancelToken | None) -> None:
        self._rest_s = rest_s
        self._exchange: Exchange = session.begin("relay", {"host": host, "port": port, "connect_s": max(0.05, rest_s())}, cancel=cancel)
        self._buffer = bytearray()
        self._ended = False
        self.peer = ""
        self.head = b""
        """The first bytes that came."""

    def write(self, data: bytes) -> None:
        """Send on. After the peer has ended the connection the bytes go nowhere; the next read says so."""
        if not self._ended:
            self._exchange.feed(bytes(data))

    def read(self, most: int) -> bytes:
        """Some bytes, b"" after the peer's end. Raises StreamFailed, Cancelled, LinkLost."""
        while not self._buffer and not self._ended:
            self._take()
        data = bytes(self._buffer[:most])
        del self._buffer[:most]
        return data

    def _take(self) -> None:
        try:
            header, blob = self._exchange.next(self._rest_s())
            if "event" in header:
                self.peer = header["event"].get("connected", self.peer)
                self._buffer += blob
                self.head = self.head or blob[:HEAD]
            else:
                self._ended = True
                answer(header, blob)
        except CallTimeout:
            raise StreamFailed("timeout", "no answer in time" if self.peer else "no connection in time") from None
        except RemoteError as error:
            outcome = error.data.get("outcome", "error")
            raise StreamFailed(outcome if outcome in ("refused", "timeout", "reset") else "error", error.summary) from error

    def close(self) -> None:
        """End the connection. Idempotent."""
        self._ended = True
        self._exchange.stop()


class TlsStream:
    """TLS over another stream. The handshake runs in the constructor."""

    def __init__(self, below: RelayStream, context: ssl.SSLContext, server_hostname: str) -> None:
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        self._advance(self._tls.do_handshake)

    @property
    def ssl_object(self) -> ssl.SSLObject:
        """For the negotiated protocol."""
        return self._tls

    def _advance(self, act: Callable[[], object]) -> object:
        while True:
            try:
                done = act()
            except ssl.SSLWantReadError:
                self._flush()
                data = self._below.read(CHUNK)
                self._incoming.write(data) if data else self._incoming.write_eof()
            except ssl.SSLError as error:
                self._flush()  # the alert that tells the other side why
                raise StreamFailed("error", f"TLS: {error}") from error
            else:
                self._flush()
                return done

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._below.write(self._outgoing.read())

    def write(self, data: bytes) -> None:
        """Encrypt and send."""
        self._advance(lambda: self._tls.write(data))

    def read(self, most: int) -> bytes:
        """Decrypted bytes, b"" at the end."""
        try:
            data = self._advance(lambda: self._tls.read(most))
        except StreamFailed as error:
            if isinstance(error.__cause__, (ssl.SSLZeroReturnError, ssl.SSLEOFError)):
                return b""
            raise
        assert isinstance(data, bytes)
        return data

    def close(self) -> None:
        """End the connection."""
        self._below.close()
