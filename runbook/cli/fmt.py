"""`runbook fmt`: playbooks in one form; comments are kept."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from runbook.model.diagnostic import Diagnostic


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--check", is_flag=True, help="Change nothing; exit 1 when a file is not in the form.")
def command(files: tuple[str, ...], check: bool) -> int:
    """Bring playbooks into one form: indentation, blank lines, the order of keys. Comments and what a file means stay.

    FILE is a file, a folder (the playbooks and profiles in it and below), or `-` for stdin to stdout. Other YAML is left alone. Exit
    code 0; 1 with `--check` when a file would change; 2 when one cannot be read as YAML.
    """
    from runbook.cli.sources import our_files, read_bounded, source_texts
    from runbook.render.diagnostics import as_text

    changed, wrong = [], []
    for file in our_files(files):
        try:
            source = sys.stdin.buffer.read() if file == "-" else read_bounded(file)
        except OSError as error:
            raise click.UsageError(f"cannot read {file}: {error.strerror}") from None
        new, problems = _formed(source, file)
        wrong += problems
        if new is None:
            continue
        if new != source:
            changed.append(file)
        if file == "-" and not check:
            click.echo(new, nl=False)
        elif new != source and not check:
            _replace(Path(file), new)
    if wrong:
        click.echo(as_text(wrong, source_texts(wrong)), err=True)
    for file in changed if check or files != ("-",) else ():
        click.echo(f"{'would change' if check else 'changed'} {file}", err=True)
    return 2 if wrong else 1 if check and changed else 0


def _formed(source: bytes, file: str) -> tuple[bytes | None, list[Diagnostic]]:
    """A playbook or profile in its form; other YAML as it is, which is said."""
    from runbook.cli.sources import OURS
    from runbook.lang.yaml_format import format_yaml
    from runbook.lang.yaml_loader import load
    from runbook.playbook.edge import EDGE
    from runbook.playbook.order import ORDER

    document, _ = load(source, file, EDGE)
    if document is not None and not (isinstance(document.data, dict) and any(key in document.data for key in OURS)):
        click.echo(f"left alone {file}: no playbook and no profile, which have `runbook:` or `profile:` at their left edge", err=True)
        return source, []
    text, problems = format_yaml(source, file, ORDER, EDGE)
    return None if text is None else text.encode(), problems


def _replace(path: Path, data: bytes) -> None:
    """Write beside the file and rename, so that no half a playbook is ever there; its mode stays."""
    target = path.resolve()
    number, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(data)
        os.chmod(name, target.stat().st_mode & 0o7777)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
