"""Messages between controller and helper: two lengths, a JSON header, raw bytes.

    uint32 header length | uint32 blob length (big endian) | header | blob

Requests `{"id", "op", "args"}`; answers `{"id", "ok"}` or `{"id", "error": {code, message, hint, data}}`; events
`{"id", "event"}`. `cancel` and `feed` are requests without an answer: their args name the request they are about; a feed with
`credit` acknowledges that many streamed bytes. `bye` and `alive` have no answer either, and no number.
"""

import json
import struct
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

FORMAT = 1
MOST_HEADER = 64 << 20
MOST_BLOB = 256 << 20
WINDOW = 1 << 20  # bytes that an operation may stream ahead of the controller's acknowledgement
_LENGTHS = struct.Struct(">II")

Message = Tuple[Dict[str, Any], bytes]


class BrokenFrame(Exception):
    """The bytes are not a message: the stream is lost."""


def encode(header: Dict[str, Any], blob: bytes = b"") -> bytes:
    """One message. Raises BrokenFrame when it is larger than the other side accepts."""
    head = json.dumps(header, separators=(",", ":")).encode("utf-8", "surrogatepass")
    if len(head) > MOST_HEADER or len(blob) > MOST_BLOB:
        raise BrokenFrame("a message of %d + %d bytes is too large" % (len(head), len(blob)))
    return _LENGTHS.pack(len(head), len(blob)) + head + blob


def lengths(prefix: bytes) -> Tuple[int, int]:
    """Header and blob length from the first eight bytes."""
    head, blob = _LENGTHS.unpack(prefix)
    if head > MOST_HEADER or blob > MOST_BLOB:
        raise BrokenFrame("a message of %d + %d bytes is too large" % (head, blob))
    return head, blob


def decode_header(raw: bytes) -> Dict[str, Any]:
    """The header as plain data."""
    try:
        header = json.loads(raw.decode("utf-8", "surrogatepass"))
    except ValueError as error:
        raise BrokenFrame("the header is not JSON: %s" % error) from error
    if not isinstance(header, dict):
        raise BrokenFrame("the header is not a mapping")
    return header


def read(take: Callable[[int], bytes]) -> Optional[Message]:
    """The next message from a blocking `take(n)`, which gives less than n bytes only at the end; None there."""
    prefix = take(_LENGTHS.size)
    if len(prefix) < _LENGTHS.size:
        return None
    head_length, blob_length = lengths(prefix)
    head = take(head_length)
    blob = take(blob_length) if blob_length else b""
    if len(head) < head_length or len(blob) < blob_length:
        return None
    return decode_header(head), blob


class Decoder:
    """Messages from bytes that arrive in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Take bytes; yields each message that they complete."""
        self._buffer += data
        while len(self._buffer) >= _LENGTHS.size:
            head_length, blob_length = lengths(bytes(self._buffer[: _LENGTHS.size]))
            end = _LENGTHS.size + head_length + blob_length
            if len(self._buffer) < end:
                return
            split = _LENGTHS.size + head_length
            message = decode_header(bytes(self._buffer[_LENGTHS.size : split])), bytes(self._buffer[split:end])
            del self._buffer[:end]
            yield message
