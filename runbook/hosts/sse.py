"""Server-sent events out of a byte stream. Pure."""

from __future__ import annotations

import re

_LINE_END = re.compile(rb"\r\n|\n|\r")


class SseReader:
    """Gives the data of each event as soon as it is complete; comments, ids and event names are passed over."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[str]:
        """Events that `chunk` completes."""
        text = self._rest + chunk
        # a carriage return at the end may be half of a line end
        held = text[-1:] if text.endswith(b"\r") else b""
        *lines, last = _LINE_END.split(text[: len(text) - len(held)])
        self._rest = last + held
        return [event for line in lines for event in self._line(line)]

    def end(self) -> list[str]:
        """The event that the stream's end cut off, if it has data."""
        rest, self._rest = self._rest.rstrip(b"\r"), b""
        return [*self._line(rest), *self._line(b"")] if rest else self._line(b"")

    def _line(self, line: bytes) -> list[str]:
        if line.startswith(b"data:"):
            value = line[5:].decode("utf-8", "backslashreplace")
            self._data.append(value[1:] if value.startswith(" ") else value)
        elif line == b"data":
            self._data.append("")
        elif not line and self._data:
            event, self._data = "\n".join(self._data), []
            return [event]
        return []
