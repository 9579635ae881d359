"""Playbooks as they come out of other editors and broken copies: read as they are, or refused with a reason; never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from runbook.cli.main import exit_code

ROOT = Path(__file__).parents[2]
BOOKS = sorted((ROOT / "playbooks").glob("**/*.yaml"))
MARK = "\ufeff"


def _validated(text: str, folder: Path, capsys) -> tuple[int, str]:
    path = folder / "book.yaml"
    path.write_text(text, encoding="utf-8", newline="")
    code = exit_code(["validate", str(path)])
    return code, capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("book", BOOKS, ids=lambda path: path.stem)
def test_a_playbook_with_other_line_ends_is_the_same_and_a_damaged_one_is_refused(book, tmp_path, capsys):
    text = book.read_text()
    plain = _validated(text, tmp_path, capsys)
    assert _validated(text.replace("\n", "\r\n"), tmp_path, capsys) == plain
    assert _validated(MARK + text, tmp_path, capsys) == plain
    lines = text.splitlines()
    middle = len(lines) // 2
    tabbed = [*lines[:middle], "\t" + lines[middle], *lines[middle + 1 :]]
    for damaged in ("\n".join(tabbed), text.rstrip()[:-7], text[: len(text) // 2]):
        code, err = _validated(damaged, tmp_path, capsys)
        assert code in (0, 2) and "bug in runbook" not in err
        assert code == 0 or ": error[" in err
