"""Stubs that end with their test, a client without waits, and a run to post."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from runbook.tickets.base import Draft, File, Tracker
from runbook.tickets.client import HttpClient
from runbook.tickets.flow import Posted, post


class JumpingClock:
    """A clock whose waits take no time and are remembered."""

    def __init__(self) -> None:
        self.t = 1_800_000_000.0
        self.waits: list[float] = []

    def now(self) -> float:
        return self.t

    def monotonic(self) -> float:
        return self.t

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        self.t += seconds
        return event.is_set()


TEXT = "# Fusion check: hung / deadlock\n\nno progress for 90s\n\n## Evidence\n\n| signal | value |\n| --- | --- |\n| quiet\\_s | 90 |\n\n## All steps\n\n| # | step |\n| --- | --- |\n| 1 | up |\n"


def draft(text: str = TEXT, run: str = "20260301-101500-ab12", **more: Any) -> Draft:
    """A transcript of one run."""
    return Draft(run=run, started=1_799_990_000.0, render=lambda budget: text, **more)


def page(run: str = "20260301-101500-ab12", data: bytes = b"<h1>hung</h1>\xff\x00") -> File:
    """A file whose name holds its digest."""
    return File(f"{run}.0a1b2c3d.transcript.html", "text/html", data)


class Poster:
    """Posts through a real client, with a clock that jumps."""

    def __init__(self) -> None:
        self.clock = JumpingClock()
        self.told: list[str] = []
        self.clients: list[HttpClient] = []
        self.mask: Callable[[str], str] = lambda text: text

    def client(self, tracker: Tracker, environ: dict[str, str], timeout_s: float = 5.0) -> HttpClient:
        """A client for a tracker."""
        login = tracker.login(environ)
        made = HttpClient(
            tracker.base,
            login,
            mask=lambda text: self.mask(text),
            tell=self.told.append,
            clock=self.clock,
            timeout=httpx.Timeout(timeout_s),
        )
        self.clients.append(made)
        return made

    def __call__(self, tracker: Tracker, environ: dict[str, str], what: Draft | None = None, files: tuple[File, ...] = ()) -> Posted:
        return post(tracker, self.client(tracker, environ), what or draft(), list(files))


@pytest.fixture
def poster() -> Iterator[Poster]:
    """A poster whose connections are closed at the end."""
    made = Poster()
    yield made
    for client in made.clients:
        client.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    """Start stubs: `start(GitHubStub)`."""
    stubs: list[Any] = []

    def begin(kind: Callable[..., Any], *args: Any) -> Any:
        stubs.append(kind(*args))
        return stubs[-1]

    yield begin
    for stub in stubs:
        stub.close()
