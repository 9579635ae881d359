"""Every fenced block of README.md and docs/ is tried by something, or says why not."""

from __future__ import annotations

import re

import pytest

from tests.docs.claims import wrong
from tests.docs.shell import mistake, simple_commands
from tests.support.pages import ROOT, Block, blocks_of, every_block, missing, prose


@pytest.mark.parametrize("page", sorted({block.page for block in every_block()}), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_tried(page, tmp_path):
    assert [f"{block.place}: {problem}" for block in blocks_of(page) if (problem := wrong(block, tmp_path))] == []


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("", "anything"),
        ("text", "anything"),
        ("ruby", "puts 1"),
        ("sh", "runbook run story.yaml --no-such-option"),
        ("sh", "runbook report last --format no_such_format"),
        ("sh", "runbook walk"),
        ("sh", "make no-such-target"),
        ("sh", "frobnicate"),
        ("sh", "cp playbooks/no_such_file.yaml here.yaml"),
        ("sh", "pip install 'gpu-runbook[no_such_extra]'"),
        ("sh", "echo 'open"),
        ("console", "$ runbook list\nnobody compares this"),
        ("yaml", "runbook: 1\nhosts: {box: local}\nsteps:\n  - walk: far"),
        ("yaml", "- walk: far"),
        ("yaml", "profile: odd\nno_such_key: 1"),
        ("yaml", "- {at: f, no_such_key: 1}"),
        ("yaml", "other: 1"),
    ],
)
def test_a_block_that_is_wrong_is_noticed(language, text, tmp_path):
    assert wrong(Block(ROOT / "README.md", 1, language, text), tmp_path)


def test_a_reason_and_a_part_must_be_true(tmp_path):
    block = Block(ROOT / "README.md", 1, "text", "[project]\nnot in it", "part of", "pyproject.toml")
    assert wrong(block, tmp_path)
    assert wrong(block._replace(text='[project]\n…\nname = "gpu-runbook"   # its name'), tmp_path) is None
    assert wrong(block._replace(kind="shown", words="why not"), tmp_path)
    assert wrong(block._replace(kind="made", words="python -m tests.no_such_program"), tmp_path)
    assert wrong(block._replace(kind="output", words="no_such_name, tests/e2e/test_story.py"), tmp_path)


def test_no_note_is_misspelt():
    """A comment that looks like a note and is none would leave its block to the language."""
    for page in sorted({block.page for block in every_block()}):
        text = page.read_text(encoding="utf-8")
        assert len(re.findall(r"^ *<!-- block", text, re.MULTILINE)) == sum(block.kind not in ("", "made") for block in blocks_of(page)), (
            page
        )
        assert "```" not in prose(page), f"{page}: a fence without an end"


def test_the_commands_of_a_line_are_found():
    text = "a=1 runbook show last | grep 'x; y' > out.txt  # don't\nid=$(runbook run s.yaml --detach)"
    assert list(simple_commands(text)) == [["runbook", "show", "last"], ["grep", "x; y"], ["runbook", "run", "s.yaml", "--detach"]]
    assert mistake(["runbook", "lab", "up", "--port", "no number"])


def test_shown_output_is_compared_but_for_numbers():
    printed = "ok up [lab] 6.4s  ready after 1s\nrun 20261130-083304-1a2b ended\nPASSED (exit 0): every step passed\n"
    assert missing("ok up [lab] 12s  ready …\nPASSED (exit 0): every\nstep passed", printed) is None
    assert missing("PASSED (exit 0): …\nok up [lab] 6s", printed) == "ok up [lab] 6s", "the order counts"
    assert missing("ok down", printed) == "ok down"
    assert missing("run 20250101-010203-ffff ended", printed) is None
