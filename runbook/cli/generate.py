"""Files that are made from the structs and committed: the schemas of playbook, journal and answers, and the reference page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from runbook.cli.expression_reference import expressions_page
from runbook.cli.profile_reference import profiles_page
from runbook.cli.reference import commands_page, events_page, exit_codes_page
from runbook.cli.sources import PACKAGE
from runbook.model.answer import DiagnoseAnswer, EventsPage, InvalidAnswer, RunAnswer, StandsAt, UnclearAnswer
from runbook.model.event import AnyEvent
from runbook.playbook.reference import steps_page
from runbook.playbook.schema import DIALECT, playbook_schema, profile_schema
from runbook.steps import BUILT_IN

ROOT = PACKAGE.parent
REPAIR = "make generate"


def schema_text(table: Mapping[str, type[msgspec.Struct]] = BUILT_IN) -> str:
    """The playbook's schema; with the step types that come with runbook it is the one that is committed."""
    return _text(playbook_schema(table))


def profile_text() -> str:
    """The schema of an engine profile as it is committed."""
    return _text(profile_schema())


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def events_schema() -> dict[str, Any]:
    """One line of `events.jsonl`. Events may gain keys; those that are there keep their meaning within a format number."""
    (union,), defs = msgspec.json.schema_components([AnyEvent], ref_template="#/$defs/{name}")
    return {"$schema": DIALECT, "title": "one line of events.jsonl", "anyOf": union["anyOf"], "$defs": defs}


def run_schema() -> dict[str, Any]:
    """What `run`, `show` and `cancel` print with `--json`: a run, where one stands, some of its events, or why nothing ran."""
    forms, defs = msgspec.json.schema_components([RunAnswer, StandsAt, EventsPage, InvalidAnswer], ref_template="#/$defs/{name}")
    return {"$schema": DIALECT, "title": "the answer of runbook run --json", "anyOf": list(forms), "$defs": defs}


def diagnose_schema() -> dict[str, Any]:
    """What `diagnose --json` prints."""
    forms, defs = msgspec.json.schema_components([DiagnoseAnswer, UnclearAnswer, InvalidAnswer], ref_template="#/$defs/{name}")
    return {"$schema": DIALECT, "title": "the answer of runbook diagnose --json", "anyOf": list(forms), "$defs": defs}


def words_text() -> str:
    """The words of every command, for the completion."""
    from importlib import import_module

    from runbook.cli.main import COMMANDS

    commands = {name: _described(import_module(f"runbook.cli.{entry.module}").command) for name, entry in COMMANDS.items()}
    return _text(commands)


def _described(command: click.Command) -> dict[str, Any]:
    """The words of a command: its parameters, and the commands of a group."""
    params = [_words(one) for one in command.params if not getattr(one, "hidden", False)]
    found: dict[str, Any] = {"help": command.get_short_help_str(80), "params": params}
    if isinstance(command, click.Group):
        found["commands"] = {name: _described(inner) for name, inner in command.commands.items()}
    return found


def _words(one: click.Parameter) -> dict[str, Any]:
    return {
        "name": one.name,
        "argument": isinstance(one, click.Argument),
        "opts": [*one.opts, *one.secondary_opts] if isinstance(one, click.Option) else [],
        "flag": bool(getattr(one, "is_flag", False)),
        "multiple": one.multiple if isinstance(one, click.Option) else False,
        "nargs": one.nargs,
        "choices": [str(choice) for choice in one.type.choices] if isinstance(one.type, click.Choice) else [],
        "help": getattr(one, "help", None) or "",
    }


def generated() -> dict[Path, str]:
    """Every generated file and what it should hold."""
    schemas = {
        "playbook": schema_text(),
        "profile": profile_text(),
        "run": _text(run_schema()),
        "diagnose": _text(diagnose_schema()),
        "events": _text(events_schema()),
    }
    return {
        **{ROOT / "schemas" / f"{name}.schema.json": text for name, text in schemas.items()},
        **{ROOT / "docs" / "reference" / f"{name}.md": text for name, text in _pages().items()},
        PACKAGE / "cli" / "words.json": words_text(),
    }


def _pages() -> dict[str, str]:
    readme = (PACKAGE.parent / "README.md").read_text(encoding="utf-8")
    return {
        "steps": steps_page(BUILT_IN),
        "commands": commands_page(),
        "events": events_page(),
        "exit_codes": exit_codes_page(readme),
        "expressions": expressions_page(),
        "profiles": profiles_page(),
    }


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
