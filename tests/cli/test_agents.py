"""The section for agents speaks of commands, options and exit codes that exist."""

from __future__ import annotations

import re

import click

from runbook.cli.main import COMMANDS, app, exit_code
from runbook.model.verdict import EXIT_CODES


def test_every_command_option_and_exit_code_in_it_exists(capsys):
    assert exit_code(["agents"]) == 0
    text = capsys.readouterr().out
    calls = re.findall(r"`runbook ([a-z]+)([^`]*)`", text)
    assert len(calls) >= 8
    for name, rest in calls:
        assert name in COMMANDS
        known = {option for one in app.get_command(click.Context(app), name).params for option in one.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, (name, rest)
    rows = dict(re.findall(r"^\| (\d+) \| ([a-z_, ]+) \|", text, re.MULTILINE))
    assert {(word, int(code)) for code, words in rows.items() for word in words.split(", ")} == {*EXIT_CODES.items(), ("still running", 75)}
    assert all(row.split("|")[3].strip() for row in text.splitlines() if re.match(r"\| \d", row)), "each says what to do"
    assert len(text) < 4000
