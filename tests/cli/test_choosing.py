"""A part of a playbook that is no part: refused before anything is begun, with the tags that there are."""

from __future__ import annotations

import json

import pytest

from runbook.cli.main import exit_code

BOOK = """\
runbook: 1
hosts: {box: local}
steps:
  - {id: one, tags: [look], run: echo a}
  - block:
      - {id: two, tags: [smoke], run: echo b}
    rescue:
      - {tags: [fix], run: echo r}
always:
  - {id: tidy, tags: [tidy], run: echo t}
"""
ALL = "the tags of this playbook are `fix`, `look`, `smoke`, `tidy`"
MAIN = "the tags of its steps are `look`, `smoke`"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tags", ""], f"`--tags ''` names no tag; {ALL}"),
        (["--tags", " ,"], f"`--tags ' ,'` names no tag; {ALL}"),
        (["--skip-tags", ""], f"`--skip-tags ''` names no tag; {ALL}"),
        (["--tags", "lok"], f"no step carries the tag `lok`; did you mean `look`? {ALL}"),
        (["--tags", "look,zzz"], f"no step carries the tag `zzz`; {ALL}"),
        (["--start-at", ""], "`--start-at ''` names no step"),
        (["--start-at", "tw"], "no step has the id `tw`; did you mean `two`?"),
        (["--tags", "tidy"], f"`--tags tidy` leaves no step to run, so there would be nothing to judge; {MAIN}"),
        (["--tags", "look", "--skip-tags", "look"], f"`--tags look --skip-tags look` leaves no step to run, so there would be nothing to judge; {MAIN}"),
        (["--skip-tags", "look,smoke"], f"leaves no step to run, so there would be nothing to judge; {MAIN}"),
        (["--tags", "look", "--start-at", "two"], f"`--tags look --start-at two` leaves no step to run, so there would be nothing to judge; {MAIN}"),
    ],
)  # fmt: skip
def test_what_chooses_nothing_is_a_usage_error(tmp_path, monkeypatch, capsys, options, said):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    book = tmp_path / "book.yaml"
    book.write_text(BOOK)
    assert exit_code(["run", str(book), "--json", *options]) == 2
    assert said in json.loads(capsys.readouterr().out)["diagnostics"][0]["summary"]
    assert not (tmp_path / "state").exists()


def test_a_playbook_without_tags_says_so(tmp_path, capsys):
    book = tmp_path / "book.yaml"
    book.write_text("runbook: 1\nhosts: {box: local}\nsteps: [{run: echo a}]\n")
    assert exit_code(["run", str(book), "--tags", "look"]) == 2
    assert "no step carries the tag `look`; no step of this playbook carries a tag" in capsys.readouterr().err
