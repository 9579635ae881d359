"""What a wait wants to know of a server: the question that samples are judged by."""

from __future__ import annotations

from typing import Any

import msgspec

from runbook.model.usual import Usual


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """What a check must answer: status, a regex searched in the body, a subset of its JSON, a subset of the server's info."""

    status: tuple[int, ...] = (200,)
    body: str | None = None
    json: Any = None
    info: dict[str, Any] = {}


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a wait wants to know. `about` is healthy, request, settle, gpu_free or state (of a server that is only looked at).

    `since` is when the wait began, `box_s` its time box, `final` that the box has ended: then `judge` must answer.
    `stall_after_s` overrides the phase's budget; `on_suspect`: continue, collect or fail; `in_flight`: requests known to be open.
    """

    about: str
    since: float
    box_s: float
    final: bool = False
    expect: Expectation = Expectation()
    path: str = "/health"
    consecutive: int = 1
    below: int = 0
    stable_for_s: float = 0.0
    usual: Usual | None = None
    stall_after_s: float | None = None
    on_suspect: str = "collect"
    in_flight: int = 0
    ranks: int | None = None
    """How many ranks there should be, when it is known from the launch's arguments."""
    limited_by: str | None = None
