"""What another process asks of a run's controller: a file in the run's folder, which the controller looks for while it works.

No signal is sent: a pid may be used again or lie behind another machine, the folder is what both sides surely share. Whoever removes the
file has it, so a request is taken once: by the controller, or back by who asked.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

CANCEL = "cancel.request"
LONGEST = 200


def ask(folder: Path, who: str) -> None:
    """Ask the controller to cancel its run. Raises OSError when the folder cannot be written."""
    draft = folder / f"{CANCEL}.{os.getpid()}"
    draft.write_text(who, encoding="utf-8")
    draft.replace(folder / CANCEL)


def take(folder: Path) -> str | None:
    """Who asked, when somebody has; it is not asked any more."""
    path = folder / CANCEL
    with contextlib.suppress(OSError):
        who = path.read_text(encoding="utf-8", errors="replace")[:LONGEST]
        path.unlink()
        return who or "somebody"
    return None
