"""The fenced blocks of README.md and docs/, each with the note that says how it is tried.

A note is an HTML comment on the line before the fence, `<!-- block: KIND WORDS -->`:

- `run`: its commands are run, in the order of the page, in one shell; `console` blocks must show what they then print;
- `file NAME`: at its place in that order it becomes this file;
- `output NAME, FILE`: the test in FILE compares it with what a run of its own printed, by this name;
- `part of FILE`: its lines stand in this file, in this order;
- `shown: REASON`: nothing tries it, for this reason.

Without a note the language decides: see tests/docs. Between `<!-- made by: COMMAND -->` and `<!-- end of what was made -->`, and on a page
that says "Made by `COMMAND`; do not edit", blocks are that command's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)(```+)([^\n`]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
MADE = re.compile(r"<!-- made by: (.+?) -->|<!-- end of what was made -->")
MADE_PAGE = re.compile(r"^Made by `(python[^`]*)`; do not edit", re.MULTILINE)
NOTE = re.compile(r"<!-- block: (run|file|output|part of|shown)[: ]*([^\n]*?) *-->\s*$")


class Block(NamedTuple):
    """A fenced block without its indentation. `kind` and `words` are those of its note, empty without one."""

    page: Path
    line: int
    language: str
    text: str
    kind: str = ""
    words: str = ""

    @property
    def place(self) -> str:
        """For test ids and messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """All blocks of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        pad, _, language, body = match.groups()
        above = text[: match.start()]
        note = NOTE.search(above)
        maker = _maker(above)
        plain = "\n".join(line.removeprefix(pad) for line in body.splitlines())
        line = above.count("\n") + 1
        said = ("made", maker) if maker else note.groups() if note else ()
        found.append(Block(page, line, language.strip(), plain, *said))
    return found


def _maker(above: str) -> str:
    """The command that makes what follows; empty where somebody wrote it."""
    page = MADE_PAGE.search(above)
    regions = MADE.findall(above)
    return page[1] if page else regions[-1] if regions else ""


def every_block() -> list[Block]:
    """All blocks of all pages."""
    return [block for page in PAGES for block in blocks_of(page)]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def commands_in(block: Block) -> list[tuple[str, str]]:
    """The commands of a `console` block, each with what it is shown to print; of another block all its text as one, which prints nothing."""
    if block.language != "console":
        return [(block.text, "")]
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not parts[0].strip(), f"{block.place}: output without a command"
    found = []
    for part in parts[1:]:
        command = re.match(r"(?:.*\\\n)*.*", part)
        assert command
        found.append((command[0], part[command.end() :].strip("\n")))
    return found


_SAME = (
    (re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{4}\b"), "RUN"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "HASH"),
    (re.compile(r"\d+(?:\.\d+)?(?:[KMG]i)?B\b"), "SIZE"),
    (re.compile(r"\b\d+(?:\.\d+)?(?:ms|s|m|h)\b"), "TIME"),
    (re.compile(r"\d+(?:\.\d+)?"), "N"),
    (re.compile(r"\s+"), " "),
)


def _plain(text: str) -> str:
    for pattern, word in _SAME:
        text = pattern.sub(word, text)
    return text.strip()


def missing(shown: str, printed: str) -> str | None:
    """The first line of `shown` that `printed` lacks, or has at an earlier place only; None when it has all.

    Numbers, times, sizes, hashes and run ids count as equal, so do all blanks; `…` stands for anything.
    """
    rest = _plain(printed)
    for line in shown.splitlines():
        for piece in line.split("…"):
            wanted = _plain(piece)
            at = rest.find(wanted)
            if at < 0:
                return line
            rest = rest[at + len(wanted) :]
    return None


def shown_as(page: str, name: str) -> str:
    """What the block with the note `output NAME, …` of a page shows to be printed."""
    found = [block for block in blocks_of(ROOT / page) if block.kind == "output" and block.words.split(",")[0] == name]
    assert len(found) == 1, f"{page}: {len(found)} blocks are noted as `output {name}`"
    return "\n".join(output for _, output in commands_in(found[0]))
