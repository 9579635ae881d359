"""The report of a bug in runbook: ready to paste into a ticket, without the values of the command line."""

from __future__ import annotations

import platform
import sys
import traceback
from pathlib import Path

from runbook import __version__

PACKAGE = Path(__file__).resolve().parents[1]


def report(bug: BaseException, argv: list[str]) -> str:
    """What happened, in which versions, on which command, and where; values given with -e are left out."""
    frames = "\n".join(f"  {_short(frame.filename)}:{frame.lineno} in {frame.name}" for frame in traceback.extract_tb(bug.__traceback__))
    what = traceback.format_exception_only(type(bug), bug)[-1].strip()
    return (
        "runbook: this is a bug in runbook, not in your playbook or your server. Please report the lines below.\n"
        "--- 8< ---\n"
        f"runbook {__version__}, Python {sys.version.split()[0]}, {platform.system()} {platform.machine()}\n"
        f"command: runbook {' '.join(_masked(argv))}\n"
        f"error: {what}\n"
        f"{frames}\n"
        "--- 8< ---"
    )


def _short(filename: str) -> str:
    path = Path(filename)
    return str(Path("runbook") / path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else "/".join(path.parts[-2:])


def _masked(argv: list[str]) -> list[str]:
    """The command line with `name=value` reduced to `name=…`: a value may be a secret."""
    return [f"{word.split('=', 1)[0]}=…" if "=" in word else word for word in argv]
