"""`runbook new`: a playbook to begin with, from a template or from a shell script."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from runbook.cli.sources import read_bounded

TEMPLATE = Path(__file__).with_name("template.yaml")
SCHEMA = "playbook.schema.json"
NAME = re.compile(r"[A-Za-z0-9_][\w.-]*")


@click.command()
@click.argument("name", required=False)
@click.option("--from-shell", "script", metavar="FILE|-", help="Translate a shell script; the playbook goes to stdout.")
def command(name: str | None, script: str | None) -> int:
    """Write NAME.yaml from a commented template: into ./playbooks when there is one, else here.

    With --from-shell a script of the kind `pkill …; nohup … &; while ! curl …; curl …; grep … log` is translated and printed on
    stdout. Each trap in it is a warning on stderr; what has no step of its own becomes a `run` step with the text as it was.
    """
    if script is not None:
        return _from_shell(script, name)
    if name is None:
        raise click.UsageError("name the playbook, as in `runbook new my_check`, or a script: `--from-shell FILE`")
    stem = name.removesuffix(".yaml")
    if not NAME.fullmatch(stem):
        raise click.UsageError(f"`{name}` cannot be the name of a playbook: use letters, digits, `_`, `-` and `.`")
    path = (Path("playbooks") if Path("playbooks").is_dir() else Path()) / f"{stem}.yaml"
    text = TEMPLATE.read_text(encoding="utf-8").replace("NAME", stem).replace(f"$schema={SCHEMA}", f"$schema={_schema(path.parent)}")
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise click.UsageError(f"{path} is there already: choose another name") from None
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}") from None
    click.echo(f"wrote {path}; next: runbook run {path}", err=True)
    if not _has_schema(path.parent):
        click.echo(f"for completion in your editor: runbook schema > {path.parent / SCHEMA}", err=True)
    return 0


def _schema(folder: Path) -> str:
    """The schema as seen from a playbook in that folder."""
    return f"../schemas/{SCHEMA}" if (folder / "../schemas" / SCHEMA).is_file() else SCHEMA


def _has_schema(folder: Path) -> bool:
    return (folder / _schema(folder)).is_file()


def _from_shell(file: str, name: str | None) -> int:
    """Print the playbook, warn of the traps. Exit code 2 when the file is no shell script."""
    from runbook.lang.yaml_format import format_yaml
    from runbook.model import extras
    from runbook.model.diagnostic import Diagnostic
    from runbook.playbook.order import ORDER
    from runbook.render.diagnostics import as_text
    from runbook.shell_script.syntax import NoParser, parser
    from runbook.shell_script.translate import translate
    from runbook.shell_script.write import write

    text = _text(file)
    try:
        found = translate(text, file, parser())
    except NoParser:
        raise click.UsageError(
            f"a shell script is read by the program `shfmt`, which is not here: from your system's packages, or {extras.how('shell')}"
        ) from None
    if isinstance(found, Diagnostic):
        click.echo(as_text([found], {file: text}), err=True, nl=False)
        return 2
    title = name or ("a shell script" if file == "-" else Path(file).stem)
    written = write(found, title, f"# yaml-language-server: $schema={_schema(Path())}" if _has_schema(Path()) else "")
    click.echo(format_yaml(written, f"{title}.yaml", ORDER).text or written, nl=False)
    if found.traps:
        click.echo(as_text(found.traps, {file: text}), err=True)
        count = len(found.traps)
        click.echo(
            f"{count} warning{'' if count == 1 else 's'}; the hints say what the playbook avoids, and what it does not take over", err=True
        )
    return 0


def _text(file: str) -> str:
    try:
        source = sys.stdin.buffer.read() if file == "-" else read_bounded(file)
        return source.decode()
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{file} is not UTF-8 text: name a shell script") from None
