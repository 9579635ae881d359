"""What a tracker said when it refused, in one line, and what to try."""

from __future__ import annotations

import re
from typing import Any

from runbook.tickets.base import Refused, TooLong

MOST = 300
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]+")
_NUMBER = re.compile(r"(?:maximum(?: is)?|limit of|than|is too long \(maximum is|exceeds?)\D{0,30}?(\d[\d,]{2,})", re.IGNORECASE)
_LONG = re.compile(r"too (?:long|big|large)|exceed|maximum|limit", re.IGNORECASE)
_HINTS = {
    400: "the tracker did not understand the request",
    401: "the token is wrong or has expired",
    403: "the token may not do this here: it needs the right to write comments on this ticket",
    404: "there is no such ticket, or this token may not see it",
    410: "tickets are switched off here, or this one was deleted",
    412: "somebody changed the ticket at the same moment: try again",
    413: "attach less, or a zip",
}


def sentence(data: Any, text: str) -> str:
    """The tracker's own words, out of the many places in which trackers put them."""
    found = list(_words(data)) if isinstance(data, (dict, list)) else []
    line = "; ".join(dict.fromkeys(found)) or re.sub(r"<[^>]*>", " ", text)
    line = " ".join(_CONTROL.sub(" ", line).split())
    return line if len(line) <= MOST else line[: MOST - 1] + "…"


def _words(data: Any) -> Any:
    if isinstance(data, str):
        yield data
    elif isinstance(data, list):
        for item in data:
            yield from _words(item)
    elif isinstance(data, dict):
        known = ("message", "msg", "error", "error_description", "errorMessages", "errors", "detail", "code", "field")
        for key in known:
            yield from _words(data.get(key))
        if not any(key in data for key in known):
            for key, value in data.items():
                yield from (f"{key}: {word}" for word in _words(value))


def refusal(what: str, status: int, data: Any, text: str, source: str) -> Refused:
    """The error for an answer that is a no. `what` names the request, `source` the token's variable."""
    words = sentence(data, text)
    summary = f"{what}: HTTP {status}" + (f": {words}" if words else "")
    hint = _HINTS.get(status, "the tracker has trouble: try again later" if status >= 500 else "")
    if source and status in (401, 403, 404):
        hint += f" (token from {source})"
    if status == 413 or (status in (400, 422) and _LONG.search(words)):
        number = _NUMBER.search(words)
        return TooLong(summary, hint, status=status, most=int(number[1].replace(",", "")) if number else None)
    return Refused(summary, hint, status=status)
