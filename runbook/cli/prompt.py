"""Asking somebody at the terminal, in a way that Ctrl-C, a cancel and the end of a time box still work."""

from __future__ import annotations

import functools
import os
import select
import sys

import click

from runbook.engine.stepping import Ask
from runbook.hosts.base import Cancelled, CancelToken
from runbook.model.clock import Clock

EVERY_S = 0.2
MOST_BYTES = 4096


def at_terminal() -> bool:
    """Whether there is somebody to ask: questions go to stderr, answers come from stdin."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def asker(clock: Clock) -> Ask | None:
    """How to ask; None when nobody can be asked."""
    return functools.partial(_ask, clock) if at_terminal() else None


def _ask(clock: Clock, text: str, seconds: float, cancel: CancelToken) -> str | None:
    """A line, or None when none came in time or the terminal is gone."""
    click.echo(text, err=True, nl=False)
    deadline = clock.monotonic() + seconds
    while not cancel.is_set():
        left = deadline - clock.monotonic()
        if left <= 0:
            click.echo("", err=True)
            return None
        if select.select([sys.stdin], [], [], min(EVERY_S, left))[0]:
            line = os.read(sys.stdin.fileno(), MOST_BYTES)  # a terminal gives one line a read
            return line.decode("utf-8", "replace").strip() if line else None
    click.echo("", err=True)
    raise Cancelled("interrupted while asking")
