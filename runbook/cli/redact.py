"""`runbook redact`: a log or a run without its secrets, and with `--public` without the names of hosts and people."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from runbook.cli import post_files, store
from runbook.engine.journal import EVENTS, JournalError
from runbook.engine.recording import read_recording
from runbook.engine.redaction.public import Aliases, of_run
from runbook.engine.redaction.redactor import Redactor, lines
from runbook.engine.redaction.scan import KINDS
from runbook.model.event import AnyEvent, RunStarted

EXIT_FOUND = 1
READ = 1 << 18
TRANSCRIPTS = ("transcript.md", "transcript.html", "junit.xml")


@click.command()
@click.argument("what", metavar="FILE|RUN")
@click.option("--public", is_flag=True, help="Also replace hosts, users, addresses and homes by stable aliases.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), help="File, or of a run the folder, to write [stdout; ./RUN-redacted, or ./RUN-public]."
)
@click.option("--allow", "allowed", multiple=True, metavar="KIND", help="Leave this kind as it is; may be repeated.")
@click.option("--check", is_flag=True, help="Only tell what would be masked, and where; exit 1 when there is something.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object on stdout; the text needs --out then.")
def command(what: str, public: bool, out: Path | None, allowed: tuple[str, ...], check: bool, as_json: bool) -> int:
    """Mask what looks like a secret in FILE (`-` is stdin) or RUN (an id, its beginning, `last`, or a folder), and report it.

    Declared secrets that are set here count, and others by their shape. A redacted run is a folder that `show`, `report` and `post` take.
    """
    check_kinds(allowed)
    if what == "-" or Path(what).is_file():
        redactor = Redactor(post_files.secrets([], os.environ), allow=allowed, aliases=Aliases() if public else None)
        if as_json and out is None and not check:
            raise click.UsageError("stdout cannot hold both: name a file with --out")
        _file(redactor, what, None if check else out or Path("-"))
    else:
        folder = store.find_run(what)
        events = _events(folder)
        header = next((event for event in events if isinstance(event, RunStarted)), None)
        secrets = post_files.secrets(header.secrets if header else [], os.environ)
        redactor = Redactor(secrets, allow=allowed, aliases=of_run(events) if public else None)
        target = None if check else out or Path(f"{folder.name}-{'public' if public else 'redacted'}")
        _run(redactor, folder, target)
    return _tell(redactor, check, as_json)


def check_kinds(kinds: tuple[str, ...]) -> None:
    """A usage error for a kind that does not exist."""
    for kind in kinds:
        if kind not in KINDS:
            from runbook.playbook.near import suggestion

            raise click.UsageError(f"--allow: no kind is called `{kind}`; {suggestion(kind, KINDS)}")


def _events(folder: Path) -> list[AnyEvent]:
    try:
        return read_recording((folder / EVENTS).read_bytes())
    except (OSError, JournalError) as problem:
        raise click.UsageError(f"{folder.name}: {problem}") from problem


def _file(redactor: Redactor, name: str, out: Path | None) -> None:
    try:
        with open(0, "rb", closefd=False) if name == "-" else Path(name).open("rb") as source:
            _write(_redacted(redactor, source, name), out)
    except OSError as problem:
        raise click.UsageError(f"{problem.filename or name}: {problem.strerror}") from problem


def _redacted(redactor: Redactor, source: object, name: str) -> Iterator[str]:
    """As data when it is a journal, else as text."""
    begin = source.peek(16)[:16] if hasattr(source, "peek") else b""  # type: ignore[attr-defined]
    if begin.startswith(b'{"event":'):
        yield from redactor.journal((line.decode("utf-8", "surrogateescape") for line in source), name)  # type: ignore[attr-defined]
    else:
        yield from redactor.file(_pieces(source), name)


def _pieces(source: object) -> Iterator[str]:
    while data := source.read(READ):  # type: ignore[attr-defined]
        while data[-1] & 0xC0 == 0x80 or data[-1] >= 0xC0:  # not inside a character
            more = source.read(1)  # type: ignore[attr-defined]
            if not more:
                break
            data += more
        yield data.decode("utf-8", "surrogateescape")


def _write(texts: Iterator[str], out: Path | None) -> None:
    if out is None:
        for _ in texts:
            pass
    elif str(out) == "-":
        for text in texts:
            sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()
    else:
        with out.open("wb") as target:
            target.writelines(text.encode("utf-8", "surrogateescape") for text in texts)


def _run(redactor: Redactor, folder: Path, out: Path | None) -> None:
    """Journal, evidence, and the transcripts made anew of them."""
    if out is not None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise click.UsageError(f"{out} is there already: name another folder with --out")
        out.mkdir(parents=True, exist_ok=True)
    files = [folder / EVENTS, *sorted(path for path in (folder / "evidence").rglob("*") if path.is_file() and not path.is_symlink())]
    for path in files:
        name = path.relative_to(folder).as_posix()
        target = None if out is None else out / redactor.named(name)
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as source:
            if path.name != EVENTS and b"\0" in source.peek(READ)[:8192]:
                redactor.report.not_read.append(name)
                continue
            _write(_redacted(redactor, source, name), target)
    if out is not None:
        _transcripts(out)
        click.echo(f"written: {out}", err=True)


def _transcripts(folder: Path) -> None:
    from runbook.render.html import html
    from runbook.render.junit import junit
    from runbook.render.markdown import markdown

    events = _events(folder)
    for name, form in zip(TRANSCRIPTS, (markdown, html, junit), strict=True):
        (folder / name).write_text(form(events), encoding="utf-8")


def _tell(redactor: Redactor, check: bool, as_json: bool) -> int:
    report = redactor.report
    code = EXIT_FOUND if check and (report.masked or report.replaced) else 0
    if as_json:
        row = msgspec.to_builtins(report)
        click.echo(json.dumps({**row, "exit_code": code}, ensure_ascii=False))
    for line in lines(report):
        click.echo(line, err=True)
    return code
