"""Making a text fit: first a smaller budget for the renderer, then whole sections from the end, at last a cut that closes what is open."""

from __future__ import annotations

import re
from typing import Any

from runbook.tickets.base import DEFAULT_BUDGET, Draft, TooLong, Tracker
from runbook.tickets.marker import Mark, mark

ROUNDS = 8
SMALLEST = 400
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^`]*)$")
KEPT = ("## Evidence", "## The step")


def fitted(tracker: Tracker, draft: Draft, most: int) -> tuple[Any, Mark]:
    """The largest comment of at most `most` units of the tracker, in its markup and after masking, and its mark."""
    budget = min(DEFAULT_BUDGET, most)
    for _ in range(ROUNDS):
        text = shorten(draft.render(budget), budget) + draft.footer
        signed = mark(draft.run, text)
        payload = tracker.compose(draft, text, signed)
        size = tracker.length(payload)
        if size <= most:
            return payload, signed
        budget = max(SMALLEST, int(budget * most / size * 0.97))
    raise TooLong(
        f"not even the verdict fits into the {most} {tracker.limit.unit} that {tracker.name} takes", "attach the transcript instead"
    )


def shorten(text: str, most: int) -> str:
    """At most about `most` bytes of Markdown: the last sections go first; verdict, evidence and failing step are cut last, by lines."""
    if len(text.encode()) <= most:
        return text
    head, *sections = _sections(text)
    gone: list[str] = []
    while sections and len("".join([head, *sections]).encode()) > most - 200:
        last = next((i for i in range(len(sections) - 1, -1, -1) if not sections[i].startswith(KEPT)), None)
        if last is None:
            break
        gone.insert(0, sections.pop(last).splitlines()[0].removeprefix("## "))
    kept = cut_lines("".join([head, *sections]), most - 200)
    what = ", ".join(gone)[:120] or "the end"
    return kept.rstrip() + f"\n\n*Cut to fit: without {what}. The whole is in the run's `transcript.md`.*\n"


def _sections(text: str) -> list[str]:
    """The text before the first `## ` heading, then each section; a heading inside a fence is none."""
    found, fence = [""], ""
    for line in text.splitlines(keepends=True):
        if not fence and line.startswith("## "):
            found.append("")
        fence, _ = _state(line.rstrip("\n"), fence, 0)
        found[-1] += line
    return found


def cut_lines(text: str, most: int) -> str:
    """Whole lines, at most `most` bytes; an open fence and open `<details>` are closed."""
    if len(text.encode()) <= most:
        return text
    kept: list[str] = []
    room, fence, details = most, "", 0
    for line in text.splitlines():
        closing = len(fence) + 1 + details * len("</details>\n")
        size = len(line.encode()) + 1
        if size + closing + 24 > room:
            piece = line.encode()[: max(0, room - closing - 24)].decode("utf-8", "ignore")
            if (fence or not kept) and piece and not _FENCE.match(line):
                kept.append(piece + " …")
            break
        kept.append(line)
        room -= size
        fence, details = _state(line, fence, details)
    return "\n".join([*kept, *([fence] if fence else []), *["</details>"] * details]) + "\n"


def _state(line: str, fence: str, details: int) -> tuple[str, int]:
    found = _FENCE.match(line)
    if fence:
        closes = found is not None and found[1].startswith(fence) and not found[2].strip()
        return ("" if closes else fence), details
    if found is not None:
        return found[1], details
    return "", max(0, details + line.count("<details") - line.count("</details>"))
