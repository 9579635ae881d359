"""The real command at a real terminal: --step and pause ask, Ctrl-C ends a question, without a terminal nothing asks."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e.cli import runbook
from tests.support.terminal import Terminal

pytestmark = pytest.mark.e2e

BOOK = """\
runbook: 1
hosts: {box: local}
steps:
  - {id: one, run: echo 1}
  - {id: two, run: echo 2}
  - {id: ask, pause: {prompt: Go on?, default: 'no'}}
  - {id: three, run: 'echo said ${{ steps.ask.answer }}'}
always:
  - {id: last, run: echo tidy}
"""
PROMPT = "[q]uit: "


def at_terminal(folder: Path, *argv: str, typed: list[tuple[str, str]]) -> tuple[str, int]:
    """Run a command line on a terminal of its own; each time a prompt appears, type. What the terminal showed, and the exit code."""
    there = Terminal(folder, *argv, env={"XDG_STATE_HOME": str(folder / "state")})
    begin, deadline = 0, time.monotonic() + 60
    while there.read(1) and time.monotonic() < deadline:
        if typed and typed[0][0] in there.shown[begin:]:
            begin = len(there.shown)
            there.type(typed.pop(0)[1])
    code = there.process.wait(10)
    there.hang_up()
    assert not typed, f"never asked: {typed}\n{there.shown}"
    return there.shown, code


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "book.yaml").write_text(BOOK)
    return tmp_path


def test_step_asks_before_each_step_and_pause_takes_the_answer(folder):
    typed = [(PROMPT, "r\n"), (PROMPT, "s\n"), (PROMPT, "c\n"), ("Go on? [no] ", "yes\n")]
    shown, code = at_terminal(folder, "run", "book.yaml", "--step", typed=typed)
    assert code == 0, shown
    assert "skipped at the prompt" in shown and "said yes" in shown and "ok one" in shown and "ok two" not in shown


@pytest.mark.parametrize("keys", ["q\n", "\x03"])
def test_quit_and_ctrl_c_end_the_run_and_clean_up(folder, keys):
    shown, code = at_terminal(folder, "run", "book.yaml", "--step", typed=[(PROMPT, "r\n"), (PROMPT, keys)])
    assert code == 130 and "ok last" in shown and "ok two" not in shown, shown


def test_without_a_terminal_nothing_asks(folder):
    state = folder / "state"
    done = runbook("run", "book.yaml", "--json", state=state, cwd=folder)
    assert done.json["verdict"] == "passed" and "said no" in done.err
    refused = runbook("run", "book.yaml", "--step", "--json", state=state, cwd=folder)
    assert refused.code == 2 and "this is no terminal" in refused.out
    (folder / "book.yaml").write_text(BOOK.replace(", default: 'no'", ""))
    assert runbook("run", "book.yaml", "--json", state=state, cwd=folder).json["verdict"] == "refused"


def test_check_and_diff_show_what_would_change_and_change_nothing(folder):
    (folder / "a.txt").write_text("new\n")
    (folder / "b.txt").write_text("old\n")
    (folder / "m.py").write_text("x = 1\n")
    steps = f"  - copy: {{from: a.txt, to: {folder}/b.txt}}\n  - patch: {{file: {folder}/m.py, replace: [{{find: x = 1, with: x = 2}}]}}\n"
    (folder / "book.yaml").write_text(f"runbook: 1\nhosts: {{box: local}}\nsteps:\n{steps}")
    done = runbook("run", "book.yaml", "--check", "--diff", state=folder / "state", cwd=folder)
    assert done.code == 0 and all(line in done.err.splitlines() for line in ("  -old", "  +new", "  -x = 1", "  +x = 2")), done.err
    assert (folder / "b.txt").read_text() == "old\n" and (folder / "m.py").read_text() == "x = 1\n"
