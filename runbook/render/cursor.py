"""The events of a journal from a line on, for programs that come back for more: bounded, and the same for the same line.

`cursor` is a line number from 0. Only whole lines count, so a cursor that was answered once never skips an event.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import msgspec

from runbook.render.summary import OBJECT_CAP, cut, printed_bytes

EVENT_CAP = 4 * 1024
ROOM = OBJECT_CAP - 2 * 1024
"""For the events of one answer; the rest is for what stands around them."""
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def page(lines: Iterable[bytes], cursor: int, file: str = "events.jsonl") -> dict[str, Any]:
    """`events` from that line on, the next `cursor`, and whether there is `more` already."""
    events: list[dict[str, Any]] = []
    room, more = ROOM, False
    for line in islice(lines, cursor, None):
        if not line.endswith(b"\n"):
            break  # still being written
        event = _bounded(line, cursor, file)
        size = printed_bytes(event) + 2
        if size > room:
            more = True
            break
        events.append(event)
        room -= size
        cursor += 1
    return {"events": events, "cursor": cursor, "more": more}


def _bounded(line: bytes, number: int, file: str) -> dict[str, Any]:
    """An event of at most 4 KB: the largest values go first, and `cut` names them."""
    whole = f"line {number + 1} of {file}"
    try:
        event = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"event": "unreadable", "n": number, "cut": [whole]}
    event = cut({**event, "n": number})
    gone: list[str] = []
    while printed_bytes(event) > EVENT_CAP:
        largest = max(event, key=lambda key: printed_bytes(event[key]))
        del event[largest]
        gone.append(largest)
    return {**event, "cut": [f"{key[:100]} ({whole})" for key in gone]} if gone else event
