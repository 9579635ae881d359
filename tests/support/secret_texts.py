"""The corpora of secrets: lines that must be masked, that may be, that must not. Secrets are made here, so that no file holds one."""

from __future__ import annotations

import random
import re
import string
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "data" / "redaction"
ALPHABETS = {
    "a": string.ascii_letters + string.digits,
    "h": "0123456789abcdef",
    "u": string.ascii_uppercase + string.digits,
    "b": string.ascii_letters + string.digits + "+/",
    "w": string.ascii_letters + string.digits + "-_",
}
_HOLE = re.compile(r"«([^»]*?):(\d+)(?::([a-z]))?»")


class Line(NamedTuple):
    """A line with its secrets in it."""

    kind: str
    text: str
    secrets: tuple[str, ...]


def made(prefix: str, length: int, alphabet: str = "a", seed: int = 0) -> str:
    """A made-up secret: the same for the same arguments. It holds at least one digit, one capital and one small letter where it can."""
    letters = ALPHABETS[alphabet]
    source = random.Random(f"{prefix}{length}{alphabet}{seed}")
    body = "".join(source.choice(letters) for _ in range(length))
    must = [char for char in ("7", "Q", "d") if char in letters][:length]
    return prefix + body[: length - len(must)] + "".join(must)


def corpus(name: str) -> list[Line]:
    """The lines of must_mask or may_mask."""
    found = []
    for number, raw in enumerate((FOLDER / f"{name}.txt").read_text("utf-8").splitlines()):
        if not raw or raw.startswith("#"):
            continue
        kind, template = raw.split(" | ", 1)
        secrets = []

        def fill(hole: re.Match[str], number: int = number, secrets: list[str] = secrets) -> str:
            secrets.append(made(hole[1], int(hole[2]), hole[3] or "a", number * 10 + len(secrets)))
            return secrets[-1]

        text = _HOLE.sub(fill, template).replace("\\x1b", "\x1b")
        found.append(Line(kind, text, tuple(secrets)))
    return found


def harmless() -> list[str]:
    """Lines that must stay as they are."""
    return [line for line in (FOLDER / "must_not_mask.txt").read_text("utf-8").splitlines() if line and not line.startswith("#")]
