"""A TCP relay between a client and a real server: counts round trips and bytes, delays, and can turn into a black hole.

A round trip is counted when the client sends after the server has answered, so bytes that travel in one direction without
waiting count once.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field


@dataclass
class Relay:
    """Listens on a free loopback port and passes bytes to `host:port`, each way `delay_s` later."""

    host: str
    port: int
    delay_s: float = 0.0
    round_trips: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    listen_port: int = 0
    _answered: bool = True
    _open: asyncio.Event = field(default_factory=asyncio.Event)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def start(self) -> Relay:
        """Serve from a thread; returns when the port listens."""
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def black_hole(self) -> None:
        """From now on nothing passes, and nobody is told: open connections stay open, new ones are accepted."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def heal(self) -> None:
        """Let bytes pass again, the held ones too."""
        self._loop.call_soon_threadsafe(self._open.set)

    def reset_counts(self) -> None:
        """Start counting anew."""
        self.round_trips = self.bytes_up = self.bytes_down = 0
        self._answered = True

    def close(self) -> None:
        """Drop all connections and stop listening."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._stop, self._open = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._open.set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.listen_port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._stop.wait()
        server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        await self._open.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(far_writer)
        with contextlib.suppress(asyncio.CancelledError):  # the relay is closed
            await asyncio.gather(self._pass(reader, far_writer, up=True), self._pass(far_reader, writer, up=False))
        self._writers -= {writer, far_writer}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool) -> None:
        line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        deliver = asyncio.create_task(self._deliver(line, writer))
        try:
            while data := await reader.read(65536):
                self._count(len(data), up)
                line.put_nowait((self._loop.time() + self.delay_s, data))
        except OSError:
            pass
        line.put_nowait((self._loop.time() + self.delay_s, b""))
        await deliver

    async def _deliver(self, line: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            due, data = await line.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            await self._open.wait()
            if not data:
                writer.close()
                return
            writer.write(data)

    def _count(self, size: int, up: bool) -> None:
        if up:
            self.bytes_up += size
            self.round_trips += self._answered
        else:
            self.bytes_down += size
        self._answered = not up
