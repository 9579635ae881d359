"""Shows a run while it happens: a live terminal, or plain lines with a heartbeat at least every 30 s.

On stderr; on stdout for who only follows it.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import click

from runbook.model.clock import Clock
from runbook.model.event import AnyEvent, Interrupted, RunEnded, RunStarted, RunSuspended
from runbook.render.actions import GroupedLines
from runbook.render.gitlab_log import SectionLines
from runbook.render.lines import Lines

HEARTBEAT_S = 25.0
REFRESH_S = 0.25


class Follower(Protocol):
    """Something that shows events."""

    def __enter__(self) -> Follower:
        """Begin."""
        ...

    def __exit__(self, *_: object) -> None:
        """End."""
        ...

    def follow(self, event: AnyEvent) -> None:
        """Show one event."""
        ...

    def catch_up(self, events: Sequence[AnyEvent]) -> None:
        """Take in what has been before, and show which run it is and where it stands."""
        ...


def follower(clock: Clock, quiet: bool, *, err: bool = True, plain: bool = False) -> Follower:
    """The right follower for this stderr, or stdout; `plain`: one that leaves the terminal's last line to questions."""
    if quiet:
        return Silent()
    stream = sys.stderr if err else sys.stdout
    if not plain and stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI"):
        return LiveFollower(clock, err=err)
    return PlainFollower(clock, ci_lines(os.environ), err=err)


def ci_lines(environ: Mapping[str, str]) -> Lines:
    """Lines with the log groups of the CI that runs us."""
    if environ.get("GITHUB_ACTIONS") == "true":
        return GroupedLines()
    return SectionLines() if environ.get("GITLAB_CI") == "true" else Lines()


def let_go_of_terminal(event: AnyEvent) -> None:
    """When the terminal was closed, what is still said goes nowhere: a write to it would be an error."""
    if isinstance(event, Interrupted) and event.by == "SIGHUP":
        null = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):
            if stat.S_ISCHR(os.fstat(number).st_mode):
                os.dup2(null, number)
        os.close(null)


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def follow(self, event: AnyEvent) -> None:
        """Nothing."""

    def catch_up(self, events: Sequence[AnyEvent]) -> None:
        """Nothing."""


class _Ticking:
    """Calls `tick` from a thread of its own until it ends. Shows nothing more once its stream is gone: the run must not end of that."""

    every_s = 1.0

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.gone = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="runbook-live", daemon=True)

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """Stop the thread."""
        self._stop.set()
        self._thread.join(timeout=2.0)

    def show(self, act: Callable[..., object], *args: object) -> None:
        """Do what writes: a closed terminal answers with an error, and so does a pipe that nobody reads."""
        if not self.gone:
            try:
                act(*args)
            except OSError:
                self.gone = True

    def tick(self) -> None:
        """What happens every `every_s`."""
        raise NotImplementedError

    def _work(self) -> None:
        while not self.clock.wait(self._stop, self.every_s):
            with self.lock:
                self.tick()


class PlainFollower(_Ticking):
    """One line an event; a heartbeat when nothing was printed for 25 s."""

    def __init__(self, clock: Clock, lines: Lines | None = None, *, err: bool = True) -> None:
        super().__init__(clock)
        self._lines = lines or Lines()
        self._err = err
        self._spoke = clock.monotonic()

    def __enter__(self) -> PlainFollower:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def follow(self, event: AnyEvent) -> None:
        """Print the event's lines."""
        with self.lock:
            for line in self._lines.lines(event):
                self.show(self._print, line)

    def catch_up(self, events: Sequence[AnyEvent]) -> None:
        """The first line and the last ones, or what is running."""
        with self.lock:
            for event in events:
                for line in self._lines.lines(event):
                    if isinstance(event, RunStarted) or event is self._lines.story.closing is events[-1]:
                        self.show(self._print, line)
            if self._lines.story.closing is None:
                self.show(self._print, self._lines.heartbeat(self.clock.now()))

    def tick(self) -> None:
        """Break a silence."""
        if self.clock.monotonic() - self._spoke >= HEARTBEAT_S:
            self.show(self._print, self._lines.heartbeat(self.clock.now()))

    def _print(self, line: str) -> None:
        click.echo(line, err=self._err, color=True)  # the only escapes in a line are a CI's own
        self._spoke = self.clock.monotonic()


class LiveFollower(_Ticking):
    """The rich terminal."""

    every_s = REFRESH_S

    def __init__(self, clock: Clock, *, err: bool = True) -> None:
        from runbook.render.terminal import Terminal  # rich costs 70 ms

        super().__init__(clock)
        colour = not os.environ.get("NO_COLOR") and os.environ.get("FORCE_COLOR") != "0"
        self._terminal = Terminal(sys.stderr if err else sys.stdout, colour=colour)
        self._over = False

    def __enter__(self) -> LiveFollower:
        self.show(self._terminal.start)
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self.show(self._terminal.stop)

    def follow(self, event: AnyEvent) -> None:
        """Print what is finished."""
        with self.lock:
            self._over = self._over or isinstance(event, (RunEnded, RunSuspended))
            self.show(self._terminal.follow, event)

    def catch_up(self, events: Sequence[AnyEvent]) -> None:
        """The first line and the last ones; what is running is drawn anyway."""
        with self.lock:
            for event in events:
                shown = isinstance(event, RunStarted) or (event is events[-1] and isinstance(event, (RunEnded, RunSuspended)))
                self._over = self._over or isinstance(event, RunEnded)
                self.show(self._terminal.follow if shown else self._terminal.take_in, event)

    def tick(self) -> None:
        """Redraw."""
        if not self._over:
            self.show(self._terminal.refresh, self.clock.now())
