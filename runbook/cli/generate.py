"""Files that are made from the step types and committed: the schema for editors and the reference page."""

from __future__ import annotations

import json
from pathlib import Path

from runbook.cli.sources import PACKAGE
from runbook.playbook.reference import steps_page
from runbook.playbook.schema import playbook_schema
from runbook.steps import TABLE

ROOT = PACKAGE.parent
REPAIR = "make generate"


def schema_text() -> str:
    """The schema as it is committed."""
    return json.dumps(playbook_schema(TABLE), indent=2, ensure_ascii=False) + "\n"


def generated() -> dict[Path, str]:
    """Every generated file and what it should hold."""
    return {ROOT / "schemas" / "playbook.schema.json": schema_text(), ROOT / "docs" / "reference" / "steps.md": steps_page(TABLE)}


def write_all() -> list[Path]:
    """Write what is out of date; answers what was written."""
    written = []
    for path, text in generated().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(path)
    return written


def out_of_date() -> list[str]:
    """Generated files that differ from what would be written, as sentences that end in the command that repairs them."""
    return [
        f"{path.relative_to(ROOT)} is out of date\nrun: {REPAIR}"
        for path, text in generated().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
