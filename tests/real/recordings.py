"""Keeps the log of a real run, small and without places of this machine: python -m tests.real.recordings FOLDER NAME

FOLDER is a run's; its server's log goes to tests/data/real/NAME.log. Long lines are cut in their middle, of lines that differ in
numbers only the first and the last few are kept. tests/profiles/test_recorded.py holds the profiles against them.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
from pathlib import Path

from tests.real.place import ROOT, real_dir

KEPT = ROOT / "tests" / "data" / "real"
LONGEST, ALIKE = 400, 4
NUMBERS = re.compile(r"\d+")


def placed(text: str) -> str:
    """Places of this machine by name."""
    places = ((str(real_dir()), "$REAL_DIR"), (str(ROOT), "$ROOT"), (tempfile.gettempdir(), "$TMP"), (os.path.expanduser("~"), "$HOME"))
    for place, name in places:
        text = text.replace(place, name)
    return text.replace(socket.gethostname(), "HOST")


def small(text: str) -> str:
    """The log with its essence."""
    text = placed(text)
    kept: list[str] = []
    alike: dict[str, list[int]] = {}
    for line in text.splitlines():
        places = alike.setdefault(NUMBERS.sub("0", line), [])
        places.append(len(kept))
        kept.append(line if len(line) <= LONGEST else f"{line[: LONGEST - 100]} … {line[-100:]}")
    dropped = {place for places in alike.values() for place in places[ALIKE // 2 : -ALIKE // 2] if len(places) > ALIKE}
    return "\n".join(line for place, line in enumerate(kept) if place not in dropped) + "\n"


def main(folder: Path, name: str) -> None:
    """Read and write."""
    text = (folder / "evidence" / "server" / "server.log").read_text(encoding="utf-8", errors="replace")
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{name}.log").write_text(small(text), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
