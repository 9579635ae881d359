"""`--post-command`: a program that posts. An argument list, no shell; files instead of pasted text."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable

from runbook.tickets.base import Misused, Refused

TIME_BOX_S = 300.0
MOST_OUTPUT = 2000
_SLOT = re.compile(r"\{(\w+)\}")


def words(command: str) -> list[str]:
    """The argument list. Raises Misused for an open quotation or an empty command."""
    try:
        found = shlex.split(command)
    except ValueError as problem:
        raise Misused(f"--post-command: {problem}", "quote it as for a shell; no shell is started") from problem
    if not found:
        raise Misused("--post-command is empty", "name a program, such as --post-command 'prog {md}'")
    return found


def slots(argv: list[str]) -> set[str]:
    """The names in braces."""
    return {name for word in argv for name in _SLOT.findall(word)}


def filled(argv: list[str], values: dict[str, str]) -> list[str]:
    """Each `{name}` replaced, one pass: a value is never read again. Raises Misused for an unknown name."""
    unknown = slots(argv) - set(values)
    if unknown:
        raise Misused(f"--post-command: no value for {{{sorted(unknown)[0]}}}", "there are " + ", ".join(f"{{{name}}}" for name in values))
    return [_SLOT.sub(lambda slot: values[slot[1]], word) for word in argv]


def perform(argv: list[str], mask: Callable[[str], str], time_box_s: float = TIME_BOX_S) -> str:
    """Run it to its end; answers the masked end of what it said. Raises Misused when it cannot start, Refused when it fails."""
    try:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    except OSError as problem:
        raise Misused(f"--post-command: cannot start `{argv[0]}`: {problem.strerror}", "is it installed, and on PATH?") from problem
    try:
        out, _ = child.communicate(timeout=time_box_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise Refused(
            f"`{argv[0]}` took more than {time_box_s:.0f} s and was killed", "does it ask a question? it has no terminal"
        ) from None
    said = mask(out.decode("utf-8", "replace"))[-MOST_OUTPUT:].strip()
    if child.returncode:
        raise Refused(f"`{argv[0]}` exited {child.returncode}" + (f": {said}" if said else ""), "run it by hand to see more")
    return said
