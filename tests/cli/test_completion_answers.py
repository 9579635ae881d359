"""The form of an answer to each shell, and what is offered where; no process is needed to ask."""

from __future__ import annotations

import pytest

from runbook.cli.complete import answer, offers


def ask(shell, line):
    words = line.split(" ")
    cword = words[-1] if shell == "fish" else str(len(words) - 1)
    return answer(f"{shell}_complete", {"COMP_WORDS": line, "COMP_CWORD": cword})


@pytest.mark.parametrize(
    ("shell", "said"),
    [
        ("bash", "plain,validate"),
        ("zsh", "plain\nvalidate\nCheck playbooks and engine profiles without touching any host."),
        ("fish", "plain,validate\tCheck playbooks and engine profiles without touching any host."),
    ],
)
def test_each_shell_is_answered_in_the_form_that_its_script_reads(shell, said):
    assert ask(shell, "runbook val") == said


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("runbook validate --format sa", ["sarif"]),
        ("runbook lab st", ["status"]),
        ("runbook completion f", ["fish"]),
        ("runbook run x --no-such-option --ch", ["--check"]),
        ("runbook validate --format=sa", ["--format=sarif"]),
        ("runbook validate --format=", ["--format=text", "--format=json", "--format=sarif", "--format=github"]),
        ("runbook validate --json=", []),
        ("runbook run x --no-such=", []),
        ("runbook diagnose --port=3 lo", ["local"]),
        ("runbook nonsense ", None),
        ("runbook run 'half a quo", []),
    ],
)
def test_what_may_follow(line, offered):
    words = line.split(" ")[1:]
    found = [text for text, _ in offers(words[:-1], words[-1])]
    assert offered is None or found == offered


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["validate", "--format", "=", "sa"], "plain,sarif"),
        (["validate", "--format", "="], "plain,text\nplain,json\nplain,sarif\nplain,github"),
        (["validate", "--format=sa"], "plain,--format=sarif"),
        (["run", "x", "-H", "gpu", "=", "loc"], "plain,local"),
        (["run", "x", "-H", "gpu", "=", "me@box", ":", "22", "--ch"], "plain,--check"),
        (["run", "x", "--start-at", "=", ""], ""),
    ],
)
def test_bash_gives_words_that_it_broke_and_gets_what_follows_the_break(typed, said):
    """An answer is put behind the last `=` or `:`, where bash begins a word."""
    line = "\n".join(["runbook", *typed])
    assert answer("bash_complete", {"COMP_WORDS": line, "COMP_CWORD": str(len(typed))}) == said


@pytest.mark.parametrize("instruction", ["", "bash_source", "tcsh_complete", "bash_complete_x"])
def test_what_is_no_question_has_no_answer(instruction):
    assert answer(instruction, {}) == ""


@pytest.mark.parametrize("line", ["", "runbook", "runbook run \"it's", "runbook -", "\\"])
def test_any_line_is_answered(line):
    for number in ("", "0", "1", "7", "x", "-1"):
        assert isinstance(answer("bash_complete", {"COMP_WORDS": line, "COMP_CWORD": number}), str)
