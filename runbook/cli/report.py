"""`runbook report`: a run in another format. And what is written at the end of every run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from runbook.cli import store
from runbook.engine.journal import EVENTS, JournalError
from runbook.engine.recording import evidence_path, open_recording
from runbook.engine.redact import Mask
from runbook.model.event import AnyEvent, EvidenceSaved, RunStarted
from runbook.model.units import Size, UnitError
from runbook.render.budget import DEFAULT, SMALLEST, TARGETS, Budget
from runbook.render.junit import junit
from runbook.render.markdown import markdown
from runbook.render.summary import summary
from runbook.render.trace import trace

if TYPE_CHECKING:
    from runbook.render.bundle import Piece

LARGEST_READ = 8 * 1024 * 1024
"""Bytes of one evidence file that go into a zip; of a larger one its end."""
STREAMED = ("md", "html", "junit", "json")
"""Formats that are one pass over the events: a journal may be larger than memory."""
NAMES = ("md", "html", "junit", "json", "trace", "zip")


class _Report(click.Command):
    """`--md`, as `show` has it, is answered with `--format md`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as wrong:
            form = wrong.option_name.lstrip("-")
            if form not in NAMES:
                raise
            raise click.UsageError(f"No such option '{wrong.option_name}'. Did you mean `--format {form}`?", ctx) from None


@click.command(cls=_Report)
@click.argument("run", default="last")
@click.option("--format", "form", type=click.Choice(NAMES), default="md", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File to write [stdout].")
@click.option("--budget", metavar="SIZE", help="md: at most this long, as `60kB` [60kB].")
@click.option("--for", "target", type=click.Choice(sorted(TARGETS)), help="md: as long as this tracker takes.")
def command(run: str, form: str, output: Path | None, budget: str | None, target: str | None) -> int:
    """Write RUN (an id, its beginning, `last`, a folder, or an events.jsonl) in another format.

    Old files, files of a newer version, torn ones and ones from another machine are read as far as they go; what is missing is said.
    """
    limit = _limit(form, budget, target)
    folder, file = find(run)
    try:
        with open_recording(folder, file) as recording:
            events = recording if form in STREAMED else list(recording)
            data = markdown(events, limit).encode() if form == "md" else FORMATS[form](events, folder, file)
    except JournalError as problem:
        raise click.UsageError(f"{run}: {problem}") from problem
    _write(data, output, form)
    for note in recording.notes:
        click.echo(f"note: {note.finding.text}", err=True)
    return 0


def find(run: str) -> tuple[Path, str]:
    """The folder and the journal's name, of a run or of a file that somebody sent."""
    path = Path(run)
    if path.is_file():
        return path.parent, path.name
    return store.find_run(run), EVENTS


def _limit(form: str, budget: str | None, target: str | None) -> Budget:
    if budget is None:
        return TARGETS[target] if target else DEFAULT
    if target is not None:
        raise click.UsageError("--budget and --for exclude each other")
    if form != "md":
        raise click.UsageError(f"--budget is for Markdown: `{form}` has a size of its own")
    try:
        found = int(Size.parse(budget))
    except UnitError as problem:
        raise click.UsageError(f"--budget: {problem}; {problem.hint}") from problem
    if found < SMALLEST:
        raise click.UsageError(f"--budget: {found} bytes cannot hold verdict, evidence and failing step: give {SMALLEST}B or more")
    return Budget(bytes=found)


def _write(data: bytes, output: Path | None, form: str) -> None:
    if output is not None and str(output) != "-":
        try:
            output.write_bytes(data)
        except OSError as problem:
            raise click.UsageError(f"cannot write {output}: {problem.strerror}") from problem
        click.echo(f"written: {output}", err=True)
    elif form == "zip" and sys.stdout.isatty():
        raise click.UsageError("a zip is not for a terminal: name a file with -o")
    else:
        click.echo(data, nl=False)  # bytes: UTF-8 whatever the terminal's encoding is


def _page(events: Iterable[AnyEvent]) -> str:
    from runbook.render.html import html

    return html(events)


def _summary(events: Iterable[AnyEvent], folder: Path) -> str:
    return json.dumps(summary(events, str(folder), store.transcripts(folder)), ensure_ascii=False, indent=1) + "\n"


def _zip(events: list[AnyEvent], folder: Path, file: str) -> bytes:
    from runbook.render.bundle import bundle

    texts = {
        "transcript.md": markdown(events),
        "transcript.html": _page(events),
        "junit.xml": junit(events),
        "summary.json": _summary(events, Path()),
        "trace.json": trace(events),
    }
    files, missing = {EVENTS: _read(folder / file)}, []
    for name in dict.fromkeys(event.file for event in events if isinstance(event, EvidenceSaved)):
        path = evidence_path(folder, name)
        if path is None:
            missing.append(name)
        else:
            files[f"evidence/{path.relative_to((folder / 'evidence').resolve()).as_posix()}"] = _read(path)
    return bundle(texts, files, missing)


def _read(path: Path) -> Piece:
    """The end of a file: that is where a log tells why it ended."""
    from runbook.render.bundle import Piece

    size = path.stat().st_size
    with path.open("rb") as source:
        source.seek(max(0, size - LARGEST_READ))
        return Piece(source.read(LARGEST_READ), size)


FORMATS: dict[str, Callable[[Any, Path, str], bytes]] = {
    "html": lambda events, folder, file: _page(events).encode(),
    "junit": lambda events, folder, file: junit(events).encode(),
    "json": lambda events, folder, file: _summary(events, folder).encode(),
    "trace": lambda events, folder, file: trace(events).encode(),
    "zip": _zip,
}


def at_the_end(folder: Path, events: list[AnyEvent], environ: Mapping[str, str]) -> None:
    """`junit.xml` and, in GitHub Actions, the job summary. A file that cannot be written is a note, never a failed run."""
    try:
        (folder / "junit.xml").write_text(junit(events), encoding="utf-8")
    except OSError as problem:
        click.echo(f"note: junit.xml was not written: {problem.strerror}", err=True)
    if environ.get("GITHUB_STEP_SUMMARY"):
        note = append_step_summary(events, environ)
        if note:
            click.echo(f"note: {note}", err=True)


def append_step_summary(events: list[AnyEvent], environ: Mapping[str, str]) -> str | None:
    """Append the transcript to the file that `GITHUB_STEP_SUMMARY` names; answers why it was not done.

    The file belongs to the whole job step, and GitHub refuses it as a whole when it is too large. It leaves this machine, so the mask runs
    once more, over the data: escaping would hide a secret from it.
    """
    path = Path(environ["GITHUB_STEP_SUMMARY"])
    secrets = {name for event in events if isinstance(event, RunStarted) for name in event.secrets}
    events = _masked(events, Mask({name: environ[name] for name in secrets if environ.get(name)}))
    try:
        taken = path.stat().st_size if path.exists() else 0
        room = (TARGETS["github_summary"].bytes or 0) - taken - 2
        if room < SMALLEST:
            return f"the job summary is full ({taken:,} bytes): the transcript is not in it"
        text = markdown(events, min(room, DEFAULT.bytes or room))
        with path.open("ab") as summary_file:
            summary_file.write((b"\n" if taken else b"") + text.encode())
    except OSError as problem:
        return f"the job summary {path} cannot be written: {problem.strerror}"
    return None


def _masked(events: list[AnyEvent], mask: Mask) -> list[AnyEvent]:
    plain = [mask.value(msgspec.to_builtins(event)) for event in events]
    return [msgspec.convert(event, AnyEvent) for event in plain] if mask.count else events
