"""The commands of a shell text, parsed as the real programs would: options and choices that do not exist are mistakes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from runbook.cli.main import app

ROOT = Path(__file__).parents[2]
CHECKED_BY_BASH = {
    ".",
    "cat",
    "cd",
    "cp",
    "curl",
    "echo",
    "export",
    "git",
    "grep",
    "jq",
    "kill",
    "mkdir",
    "printf",
    "python3",
    "sed",
    "seq",
    "ssh",
    "test",
    "true",
}
"""Programs of which only the grammar of the line is checked, and the files of this repository that it names."""
INSTALLERS = {"pip", "pipx", "uv"}
_BREAKS = re.compile(r"^[();<>|&]+$")
_QUOTED_OR_NOT = re.compile(r"""('[^']*'|"[^"]*")|((?:^|(?<=\s))\#.*$)|(\n)""", re.MULTILINE)


def simple_commands(text: str) -> Iterator[list[str]]:
    """Each simple command as words: without comments, assignments before it and redirections behind it."""
    lexer = shlex.shlex(_one_line(text.replace("\\\n", " ")), posix=True, punctuation_chars=True)
    lexer.wordchars += "$:,@{}%+!^[]\\…#"
    lexer.commenters = ""
    words: list[str] = []
    redirected = False
    for token in [*lexer, ";"]:
        if redirected:
            redirected = False
        elif token in (">", ">>", "<", ">&"):
            redirected = True
        elif _BREAKS.match(token):
            if words:
                yield words
            words = []
        elif words or not re.match(r"^\w+=", token):
            words.append(token)


def _one_line(text: str) -> str:
    """Comments go, and a line ends in `;`: neither of both inside quotes."""
    return _QUOTED_OR_NOT.sub(lambda found: found[1] or (" ; " if found[3] else ""), text)


def mistake(words: list[str]) -> str | None:
    """What is wrong with a simple command; None when nothing is seen."""
    program = words[0].rpartition("/")[2]
    if program == "runbook":
        return _parsed(words[1:])
    if program in INSTALLERS:
        return _installed(words[1:])
    if program == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        return next((f"no target {word}" for word in words[1:] if "=" not in word and word not in targets), None)
    if program == "python" and words[1:2] == ["-m"]:
        return None if (ROOT / words[2].replace(".", "/")).with_suffix(".py").exists() else f"no module {words[2]}"
    if program not in CHECKED_BY_BASH:
        return f"no check for `{program}`"
    return next((f"no file {word}" for word in words if word.startswith(("playbooks/", "docs/")) and not (ROOT / word).exists()), None)


def _parsed(words: list[str]) -> str | None:
    context = click.Context(app, info_name="runbook", **app.context_settings)
    if words in (["--help"], ["--version"], []):
        return None
    name, command, rest = words[0], app.get_command(context, words[0]), words[1:]
    while isinstance(command, click.Group) and rest:
        name, command, rest = rest[0], command.commands.get(rest[0]), rest[1:]
    if command is None:
        return f"no command {name}"
    try:
        command.make_context(name, list(rest), parent=context)
    except click.exceptions.Exit:
        return None
    except click.UsageError as wrong:
        return wrong.format_message()
    return None


def _installed(words: list[str]) -> str | None:
    """Extras that are named exist."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for extra in (extra for word in words for found in re.findall(r"\[([\w,]+)\]", word) for extra in found.split(",")):
        if not re.search(rf"^{extra} = \[", project, re.MULTILINE):
            return f"no extra {extra}"
    return None
