"""Reference pages made from what the program itself uses: the commands and the events of a journal. Their text is Markdown."""

from __future__ import annotations

import copy
from typing import Any, get_args

import click
import msgspec

from runbook.cli.main import COMMANDS, app
from runbook.model.event import AnyEvent
from runbook.playbook.shape import type_of, words_for

DO_NOT_EDIT = "by `make generate`; do not edit."
WIDTH = 100


def commands_page() -> str:
    """Every command with the help that it prints."""
    parts = [
        "# Commands",
        f"Made from the commands {DO_NOT_EDIT} The same text comes from `runbook COMMAND --help`."
        " What the numbers at the end mean: [exit codes](exit_codes.md).",
    ]
    root = click.Context(app, info_name="runbook", **app.context_settings)
    for name in COMMANDS:
        command = app.get_command(root, name)
        assert command is not None, f"{name} is in the table of commands"
        parts += _command(command, root, f"runbook {name}", 2)
    return "\n\n".join(parts) + "\n"


def _command(command: click.Command, above: click.Context, words: str, level: int) -> list[str]:
    command = copy.copy(command)
    command._help_option = None  # click keeps the first one that was asked for, with the names of that caller
    context = click.Context(command, info_name=words.rpartition(" ")[2], parent=above, max_content_width=WIDTH, terminal_width=WIDTH)
    parts = [f"{'#' * level} {words}", f"```text\n{command.get_help(context).strip()}\n```"]
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            parts += _command(inner, context, f"{words} {name}", level + 1)
    return parts


def events_page() -> str:
    """Every event of a journal: when it is written and what it holds."""
    parts = [
        "# Events",
        f"Made from the events {DO_NOT_EDIT} `events.jsonl` is the only truth of a run: one of these a line. Every event has `event`"
        " (its name), `t` (unix seconds on the controller) and `n` (its line number, from 0); a key that holds its default is left out."
        " The exact form is in `schemas/events.schema.json`; within a format number events may gain keys, and those that are there keep"
        " their meaning.",
    ]
    for event in get_args(AnyEvent):
        parts += [f"## {event.__struct_config__.tag}", _paragraphs(event), _fields(event)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _paragraphs(event: type[msgspec.Struct]) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (event.__doc__ or "").split("\n\n"))


def _fields(event: type[msgspec.Struct]) -> str:
    info: Any = type_of(event)
    rows = [
        f"| `{field.encode_name}` | {words_for(field.type).replace('|', chr(92) + '|')} | {'always' if field.required else ''} |"
        for field in info.fields
        if field.name not in ("t", "n")
    ]
    return "| key | type | there |\n|---|---|---|\n" + "\n".join(rows) if rows else ""


def exit_codes_page(readme: str) -> str:
    """The README's table of exit codes as a page that other pages can link to."""
    section = readme.split("## Exit codes\n", 1)[1].split("\n## ", 1)[0]
    for here, there in (("](docs/", "](../"), ("](schemas/", "](../../schemas/")):
        section = section.replace(here, there)
    return f"# Exit codes\n\nTaken from the README {DO_NOT_EDIT}\n{section}"
