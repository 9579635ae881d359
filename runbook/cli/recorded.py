"""A run as its journal has it: which one is meant, its playbook, its options and its secrets, for `resume` and `cancel`."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from runbook.cli import secrets, store
from runbook.engine.journal import EVENTS, JournalError
from runbook.engine.redact import looks_secret
from runbook.model.event import RunStarted
from runbook.model.playbook import Playbook, Target

if TYPE_CHECKING:
    from runbook.engine.runtime import Options


def options(folder: Path, header: RunStarted, overrides: dict[str, Any], unmasked: list[str], *, no_suspend: bool, keep: bool) -> Options:
    """What the run was asked for, so that whoever goes on with it leaves out the same steps."""
    from runbook.engine.runtime import Options

    return Options(
        run=header.run,
        dir=str(folder.absolute()),
        overrides=overrides,
        check=header.check,
        no_suspend=no_suspend,
        keep=keep,
        argv=header.argv,
        unmasked=unmasked,
        tags=header.tags,
        skip_tags=header.skip_tags,
        start_at=header.start_at,
    )


def secrets_of(folder: Path, header: RunStarted) -> tuple[dict[str, str], list[str]]:
    """The run's secrets that their sources give now, and the names of those that were masked then and cannot be now."""
    journal = (folder / EVENTS).read_text("utf-8", "replace")
    masked = set(re.findall(r"\*\*\*(\w+)\*\*\*", journal)) & {*header.secrets, *filter(looks_secret, header.overrides)}
    known = {name: os.environ[name] for name in {*header.secrets, *masked} if os.environ.get(name)}
    if any(name not in known for name in header.secrets):
        where = Path(header.controller.get("cwd") or "") / header.playbook
        known.update(secrets.read(rebuild(header).secrets, os.environ, where.parent)[0])
    return known, sorted(masked - set(known))


def rebuild(header: RunStarted) -> Playbook:
    """The playbook as it ran, from the journal alone: its text, its variables, its targets."""
    from runbook.cli.sources import profile_names
    from runbook.playbook.build import load_playbook
    from runbook.steps import TABLE

    playbook, problems = load_playbook(
        header.playbook_text.encode(),
        header.playbook,
        table=TABLE,
        profiles=profile_names(os.path.join(header.controller.get("cwd") or "", header.playbook)),
        host_vars=list(header.vars),
        read=lambda file: header.files.get(file, "").encode(),
        find=lambda name, file: header.includes.get(file, {}).get(name),
    )
    if playbook is None:
        raise click.UsageError(f"the playbook of this run is not valid for this version of runbook: {problems[0].summary}")
    targets: dict[str, Any] = {role: tuple(msgspec.convert(item, Target) for item in items) for role, items in header.targets.items()}
    return msgspec.structs.replace(playbook, vars=header.vars, hosts=targets)


def no_beginning(folder: Path) -> str:
    """Why a journal without a header tells nothing of its run."""
    if store.is_blank(folder):
        return "its journal is empty: it never began, or the file was emptied since"
    return "its journal has lost its beginning"


def last_open() -> Path:
    """The newest run that has not ended: what was looked at since is not meant. Without one, the newest."""
    from runbook.engine.recording import glance
    from runbook.model.event import RunEnded

    for folder in store.run_folders():
        with contextlib.suppress(JournalError):
            if not any(isinstance(event, RunEnded) for event in glance(folder)) and not store.answered(folder):
                return folder
    return store.find_run("last")
