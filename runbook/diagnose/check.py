"""Does an HTTP answer hold what a step expects? Pure: the exchange itself is made elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from runbook.model.question import Expectation
from runbook.model.sample import CheckSample

HEAD_BYTES = 500
KEPT_HEADERS = ("content-type", "content-length", "server", "via", "location", "retry-after", "www-authenticate")


def check_sample(
    url: str,
    outcome: str,
    latency_s: float,
    expect: Expectation,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    error: str = "",
) -> CheckSample:
    """Judge one exchange. `outcome` is answer, refused, timeout, reset or error; only an answer can match."""
    answer = outcome == "answer"
    mismatch, why = difference(expect, status, body) if answer else ("", "")
    return CheckSample(
        url=url,
        outcome=outcome,
        latency_s=latency_s,
        status=status,
        body_bytes=len(body) if answer else None,
        body_head=body[:HEAD_BYTES].decode("utf-8", "replace"),
        headers={name.lower(): value for name, value in (headers or {}).items() if name.lower() in KEPT_HEADERS},
        matched=answer and not mismatch,
        mismatch=mismatch,
        error=error or why,
    )


def difference(expect: Expectation, status: int | None, body: bytes) -> tuple[str, str]:
    """(part, sentence) of the first part that does not hold: status, body or json; ("", "") when all do."""
    if expect.status and status not in expect.status:
        return "status", f"status {status} is not {' or '.join(str(one) for one in expect.status[:5])}"
    text = body.decode("utf-8", "replace")
    if expect.body is not None:
        try:
            if re.search(expect.body, text) is None:
                return "body", f"`{expect.body}` is not found in {len(body)} bytes"
        except re.error as problem:
            return "body", f"`{expect.body}` is no regular expression: {problem}"
    if expect.json is not None:
        try:
            actual = json.loads(text)
        except ValueError:
            return "json", f"the body of {len(body)} bytes is not JSON"
        except RecursionError:
            return "json", "the body is nested too deep"
        why = subset(expect.json, actual)
        if why is not None:
            return "json", why
    return "", ""


def subset(wanted: Any, actual: Any, path: str = "") -> str | None:
    """Where `actual` lacks something of `wanted`, as a sentence; None when all is there.

    Mappings may hold more than is wanted; lists must be equally long. True is not 1.
    """
    here = path or "the value"
    if isinstance(wanted, Mapping):
        if not isinstance(actual, Mapping):
            return f"{here} is {actual!r:.80}, not a mapping"
        for key, value in wanted.items():
            below = f"{path}.{key}" if path else str(key)
            if key not in actual:
                return f"`{below}` is missing; there are: {', '.join(map(str, list(actual)[:12]))}"
            why = subset(value, actual[key], below)
            if why is not None:
                return why
        return None
    if isinstance(wanted, (list, tuple)):
        if not isinstance(actual, (list, tuple)) or len(actual) != len(wanted):
            return f"{here} is {actual!r:.80}, wanted {list(wanted)!r:.80}"
        return next((why for index, value in enumerate(wanted) if (why := subset(value, actual[index], f"{path}[{index}]"))), None)
    if isinstance(wanted, bool) is not isinstance(actual, bool) or wanted != actual:
        return f"{here} is {actual!r:.80}, wanted {wanted!r:.80}"
    return None
