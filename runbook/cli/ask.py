"""The cancel of a run that another process does: its controller is asked, and its cleanup is waited for."""

from __future__ import annotations

import getpass
import os
import socket
import threading
from pathlib import Path
from typing import Any

import click

from runbook.cli import attend, store
from runbook.engine import requests
from runbook.engine.following import Tail
from runbook.model.clock import Clock
from runbook.model.event import Interrupted, MainEnded, RunEnded, RunSuspended
from runbook.model.verdict import EXIT_CODES
from runbook.render.story import Story

TAKEN_WITHIN_S = 30.0
"""A controller looks twice a second; over a network file system a new file may take longer to be seen."""
EVERY_S = 0.1
STOPPING = (Interrupted, MainEnded, RunSuspended, RunEnded)


def ask_to_cancel(folder: Path, story: Story, clock: Clock, *, for_s: float, as_json: bool) -> int | None:
    """Ask, follow the cleanup, tell the answer; the exit code is 0 when it is complete, 75 when `for_s` was too short for it.

    None: the controller is gone and has left the end to the caller: it died, or the run was suspended just then. 8: it does not hear.
    Where `for_s` is too short to know that, the request stays and is taken when it looks next.
    """
    controller = story.controller
    who = f"pid {controller.get('pid')} on {controller.get('host')}"
    try:
        requests.ask(folder, f"{getpass.getuser()} on {socket.gethostname()} (pid {os.getpid()})")
    except OSError as problem:
        raise click.UsageError(f"cannot write into {folder}: {problem.strerror}; end {who} by Ctrl-C or SIGTERM") from problem
    stays = False
    try:
        click.echo(f"asked {who} to stop; its cleanup is waited for", err=True)
        if not _is_heard(folder, controller, clock, min(TAKEN_WITHIN_S, for_s)) and store.is_alive(controller):
            stays = for_s < TAKEN_WITHIN_S
            if not stays:
                click.echo(_unheard(controller, who), err=True)
            code = attend.tell_standing(story, folder, as_json, lost=False)
            return code if stays else EXIT_CODES["refused"]
        seen = attend.followed(folder, clock, for_s=for_s)
    except KeyboardInterrupt:
        return attend.let_go(folder, as_json)
    finally:
        if not stays:
            requests.take(folder)
    ended = seen.story.ended
    if ended is None and (seen.stale or seen.story.suspended):
        return None
    code = attend.tell(seen, folder, as_json)
    return EXIT_CODES["passed"] if ended is not None and ended.cleanup != "failed" else code


def _is_heard(folder: Path, controller: dict[str, Any], clock: Clock, most_s: float) -> bool:
    """Whether the controller stops its run, for this request or anything else, before it is gone or the time is over."""
    tail, never, deadline = Tail(folder), threading.Event(), clock.monotonic() + most_s
    while True:
        if any(isinstance(event, STOPPING) for event in tail.more()):
            return True
        if clock.monotonic() >= deadline or not store.is_alive(controller):
            return False
        clock.wait(never, EVERY_S)


def _unheard(controller: dict[str, Any], who: str) -> str:
    if controller.get("host") != socket.gethostname():
        return f"{who} did not hear: does that machine have this folder? Log in there and cancel the run, or press Ctrl-C where it runs"
    return f"{who} did not hear: it may be stopped (`fg` or `kill -CONT {controller.get('pid')}` lets it go on)"
