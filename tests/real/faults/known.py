"""What became of the faults, kept in $REAL_DIR/faults, and the tables of it in the documentation."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path

from tests.real import pages
from tests.real.faults.playing import Ended
from tests.real.faults.table import STARTS
from tests.real.parts import SGLANG, VLLM
from tests.real.place import real_dir
from tests.real.verdicts import table

BEGIN = "<!-- made by: python -m tests.real.faults --write -->"
HEADS = "| fault | verdict | rule | naming | after | left | suspected meanwhile | as expected |"
VERSIONS = {"sglang": SGLANG, "vllm": VLLM}


def row(one: Ended) -> tuple[str, ...]:
    """For people."""
    who = f"`{one.culprit.split()[0].rpartition('/')[2]}`" if one.culprit else "nobody"
    suspected = ", ".join(one.suspected) or "nothing"
    expected = "yes" if one.right else "no"
    return one.fault.says, one.verdict, f"`{one.rule}`", who, f"{one.after_s:.0f} s", str(one.left), suspected, expected


def keep(engine: str, ended: Sequence[Ended]) -> None:
    """Beside what was known of others."""
    rows = _rows(engine)
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    rows |= {one.fault.name: [today, *row(one)] for one in ended}
    _file(engine).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def write() -> None:
    """A table for each engine, in the order of the faults."""
    parts = []
    for engine, starts in STARTS.items():
        rows = _rows(engine)
        mine = [rows[fault.name] for start in starts for fault in start.faults if fault.name in rows]
        if mine:
            dates = sorted({days[0] for days in mine})
            played = sum(start.name in rows for start in starts)
            said = f"`{VERSIONS[engine]}`, {len(mine)} faults in {played} starts, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}:"
            parts.append(f"{said}\n\n{table(HEADS, [tuple(cells[1:]) for cells in mine])}")
    pages.replace(BEGIN, "\n\n".join(parts))


def _rows(engine: str) -> dict[str, list[str]]:
    return dict(json.loads(_file(engine).read_text())) if _file(engine).exists() else {}


def _file(engine: str) -> Path:
    return real_dir() / "faults" / f"{engine}.json"
