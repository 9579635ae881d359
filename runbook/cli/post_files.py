"""The files that `post` attaches or hands to a program, and the mask over all that leaves."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from runbook.cli.report import FORMATS
from runbook.engine.recording import evidence_path
from runbook.engine.redact import Mask, looks_secret
from runbook.engine.redaction.redactor import Place, Redactor, Report, tag_of
from runbook.model.event import AnyEvent, EvidenceSaved
from runbook.render.budget import Budget
from runbook.render.markdown import markdown
from runbook.tickets.base import File
from runbook.tickets.marker import safe_run

SHORTEST_IN_ENVIRONMENT = 8


class Kind(NamedTuple):
    """One form of the transcript: its file name and media type."""

    name: str
    media: str


KINDS: dict[str, Kind] = {
    "md": Kind("transcript.md", "text/markdown"),
    "html": Kind("transcript.html", "text/html"),
    "junit": Kind("junit.xml", "application/xml"),
    "json": Kind("summary.json", "application/json"),
    "trace": Kind("trace.json", "application/json"),
    "events": Kind("events.jsonl", "application/x-ndjson"),
    "zip": Kind("runbook.zip", "application/zip"),
}
"""What --attach takes, and the braces of --post-command."""


def secrets(declared: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Values that must not leave: the run's declared secrets that are set here, and variables that are secrets by their name.

    A number, a path or a short word under such a name is none: masking it would blank the transcript.
    """
    known = set(declared)
    return {name: value for name, value in environ.items() if value and (name in known or (looks_secret(name) and _is_value(value)))}


def _is_value(value: str) -> bool:
    return len(value) >= SHORTEST_IN_ENVIRONMENT and not value.isdigit() and value[0] not in "/~."


def masked_events(events: list[AnyEvent], mask: Mask) -> list[AnyEvent]:
    """The events without these secrets. Masked as data: the renderers' escaping would hide a secret from a later mask."""
    written = msgspec.json.encode(events)
    if mask.bytes(written) == written:
        return events
    return [msgspec.convert(mask.value(msgspec.to_builtins(event)), AnyEvent) for event in events]


def suspicious(events: list[AnyEvent], folder: Path, kinds: Iterable[str], known: Mapping[str, str], allow: Collection[str]) -> Report:
    """What still looks like a secret in all that would be sent, when the `known` ones are masked."""
    redactor = Redactor({}, allow=allow)
    mask = Mask(known, shapes=False)
    for number, event in enumerate(events):
        plain = mask.value(msgspec.to_builtins(event))
        redactor.data(plain, Place("events", event=event.n if event.n >= 0 else number, tag=tag_of(plain)))
    if "zip" in kinds:
        for name in dict.fromkeys(event.file for event in events if isinstance(event, EvidenceSaved)):
            path = evidence_path(folder, name)
            if path is not None:
                redactor.text(mask.bytes(path.read_bytes()).decode("utf-8", "replace"), Place(name))
    return redactor.report


def build(kind: str, folder: Path, journal: str, run: str, events: list[AnyEvent], mask: Mask) -> File:
    """One file. Its name holds the run and a digest of the content, so that a second post knows it again."""
    made = KINDS[kind]
    data = _made(kind, folder, journal, events)
    data = _masked_archive(data, mask) if kind == "zip" else mask.bytes(data)
    return File(f"{safe_run(run)}.{hashlib.sha256(data).hexdigest()[:8]}.{made.name}", made.media, data)


def _made(kind: str, folder: Path, journal: str, events: list[AnyEvent]) -> bytes:
    if kind == "md":
        return markdown(events, Budget()).encode()
    if kind == "events":
        return b"".join(msgspec.json.encode(event) + b"\n" for event in events)
    # The summary names its folder: the run's own name is enough for others.
    return FORMATS[kind](events, folder if kind == "zip" else Path(folder.name), journal)


def _masked_archive(data: bytes, mask: Mask) -> bytes:
    """The same archive, each member masked: evidence is read from the disk as it lies there."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as after:
        for member in before.infolist():
            after.writestr(member, mask.bytes(before.read(member)), zipfile.ZIP_DEFLATED)
    return out.getvalue()
