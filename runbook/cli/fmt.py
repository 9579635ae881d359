"""`runbook fmt`: playbooks in one form; comments are kept."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import click


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--check", is_flag=True, help="Change nothing; exit 1 when a file is not in the form.")
def command(files: tuple[str, ...], check: bool) -> int:
    """Bring playbooks into one form: indentation, blank lines, the order of keys. Comments and what a file means stay.

    FILE is a file, a folder (all its .yaml and .yml files), or `-` for stdin to stdout. Exit code 0; 1 with `--check` when a file
    would change; 2 when one is no YAML.
    """
    from runbook.cli.sources import read_bounded, source_texts
    from runbook.cli.yaml_files import yaml_files
    from runbook.lang.yaml_format import format_yaml
    from runbook.playbook.order import ORDER
    from runbook.render.diagnostics import as_text

    changed, wrong = [], []
    for file in yaml_files(files):
        try:
            source = sys.stdin.buffer.read() if file == "-" else read_bounded(file)
        except OSError as error:
            raise click.UsageError(f"cannot read {file}: {error.strerror}") from None
        text, problems = format_yaml(source, file, ORDER)
        wrong += problems
        if text is None:
            continue
        if text.encode() != source:
            changed.append(file)
        if file == "-" and not check:
            click.echo(text, nl=False)
        elif text.encode() != source and not check:
            _replace(Path(file), text)
    if wrong:
        click.echo(as_text(wrong, source_texts(wrong)), err=True)
    for file in changed if check or files != ("-",) else ():
        click.echo(f"{'would change' if check else 'changed'} {file}", err=True)
    return 2 if wrong else 1 if check and changed else 0


def _replace(path: Path, text: str) -> None:
    """Write beside the file and rename, so that no half a playbook is ever there; its mode stays."""
    target = path.resolve()
    number, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(number, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
        os.chmod(name, target.stat().st_mode & 0o7777)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
