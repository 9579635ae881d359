"""The files that `post` attaches or hands to a program, and the mask over all that leaves."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from runbook.engine.redact import Mask, looks_secret
from runbook.model.event import AnyEvent
from runbook.render.markdown import markdown
from runbook.render.summary import summary
from runbook.tickets.base import File
from runbook.tickets.marker import safe_run

SHORTEST_IN_ENVIRONMENT = 8
WHOLE = 1 << 30
"""Bytes of Markdown in a file: all."""
MOST_IN_ARCHIVE = 64 << 20
"""Bytes of one evidence file that go into an archive."""

Make = Callable[[Path, list[AnyEvent]], bytes]


class Kind(NamedTuple):
    """One form of the transcript."""

    name: str
    media: str
    make: Make


def secrets(declared: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Values that must not leave: the run's declared secrets that are set here, and variables that are secrets by their name.

    A number, a path or a short word under such a name is none: masking it would blank the transcript.
    """
    known = set(declared)
    return {
        name: value
        for name, value in environ.items()
        if value
        and (
            name in known
            or (looks_secret(name) and len(value) >= SHORTEST_IN_ENVIRONMENT and not value.isdigit() and value[0] not in "/~.")
        )
    }


def masked_events(events: list[AnyEvent], mask: Mask) -> list[AnyEvent]:
    """The events without these secrets. Masked as data: the renderers' escaping would hide a secret from a later mask."""
    return [msgspec.convert(mask.value(msgspec.to_builtins(event)), AnyEvent) for event in events]


def build(kind: str, folder: Path, run: str, events: list[AnyEvent], mask: Mask) -> File:
    """One file. Its name holds the run and a digest of the content, so that a second post knows it again."""
    made = KINDS[kind]
    data = _archive(folder, events, mask) if kind == "zip" else mask.bytes(made.make(folder, events))
    return File(f"{safe_run(run)}.{hashlib.sha256(data).hexdigest()[:8]}.{made.name}", made.media, data)


def _markdown(folder: Path, events: list[AnyEvent]) -> bytes:
    return markdown(events, WHOLE).encode()


def _summary(folder: Path, events: list[AnyEvent]) -> bytes:
    return json.dumps(summary(events, folder.name, {}), ensure_ascii=False, indent=1).encode()


def _events(folder: Path, events: list[AnyEvent]) -> bytes:
    return b"".join(msgspec.json.encode(event) + b"\n" for event in events)


def _page(folder: Path, events: list[AnyEvent]) -> bytes:
    from runbook.render.html import html

    return html(events).encode()


def _archive(folder: Path, events: list[AnyEvent], mask: Mask) -> bytes:
    """All forms and the evidence, masked one by one; equal runs give equal archives."""
    members = {kind.name: kind.make(folder, events) for key, kind in KINDS.items() if key != "zip"}
    for path in sorted((folder / "evidence").rglob("*")):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= MOST_IN_ARCHIVE:
            members[path.relative_to(folder).as_posix()] = path.read_bytes()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), mask.bytes(data), zipfile.ZIP_DEFLATED)
    return out.getvalue()


KINDS: dict[str, Kind] = {
    "md": Kind("transcript.md", "text/markdown", _markdown),
    "html": Kind("transcript.html", "text/html", _page),
    "json": Kind("summary.json", "application/json", _summary),
    "events": Kind("events.jsonl", "application/x-ndjson", _events),
    "zip": Kind("runbook.zip", "application/zip", lambda folder, events: b""),
}
"""What --attach takes, and the braces of --post-command."""
