"""What real runs put into the documentation: tables of verdicts, and transcripts cut to their essence."""

from __future__ import annotations

from tests.real.place import ROOT

PAGE = ROOT / "docs" / "concepts" / "real_engines.md"
END = "<!-- end of what was made -->"


def replace(begin: str, text: str) -> None:
    """Put a text between this line and the next end mark."""
    before, found, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    if not found:
        raise ValueError(f"{PAGE} has no line {begin}")
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{begin}\n\n{text}\n\n{END}{after}", encoding="utf-8")
