"""What real runs put into the documentation: tables of verdicts, and transcripts cut to their essence."""

from __future__ import annotations

from collections.abc import Sequence

from tests.real.place import ROOT

PAGE = ROOT / "docs" / "concepts" / "real_engines.md"
END = "<!-- end of what was made -->"


def write_table(engine: str, rows: Sequence[Sequence[object]]) -> None:
    """Put the table of an engine's faults in its place."""
    table = "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)
    replace(
        f"<!-- made by: python -m tests.real.faults {engine} --write -->",
        f"| what is done | verdict | naming | after |\n|---|---|---|---|\n{table}",
    )


def replace(begin: str, text: str) -> None:
    """Put a text between this line and the next end mark."""
    before, found, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    if not found:
        raise ValueError(f"{PAGE} has no line {begin}")
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{begin}\n\n{text}\n\n{END}{after}", encoding="utf-8")
