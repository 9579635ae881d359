"""Posting: find ours, attach, write or change, read back. The same for every tracker.

find ──none──▶ create ──answer lost──▶ find again ──none──▶ create …
  │               │                       │
  └──found──▶ update ◀────────────────────┘ found
                  │
                  └──▶ read back: the digest in the marker is the one that was sent
"""

from __future__ import annotations

import io
import zipfile
from typing import Any

import msgspec

from runbook.tickets.base import Client, Comment, Draft, File, OutcomeUnknown, Refused, TicketError, TooLong, Tracker
from runbook.tickets.fit import fitted
from runbook.tickets.marker import Mark, marked

TRIES = 3


class Posted(msgspec.Struct, kw_only=True):
    """What came of it. `action`: created, updated, sent (a webhook) or planned (a dry run)."""

    tracker: str
    action: str
    comment: Comment
    attached: list[str] = []
    not_attached: dict[str, str] = {}
    """File name -> why."""
    files_refused: bool = False
    """Whether one of them is missing because the tracker said no, not because it takes none."""


def post(tracker: Tracker, client: Client, draft: Draft, files: list[File]) -> Posted:
    """Post one transcript. Raises TicketError; files that were refused are told in the answer, because the comment stands."""
    found = tracker.find(client, draft)
    done = Posted(tracker=tracker.name, action="", comment=Comment(""))
    shown = _attach_all(tracker, client, draft, files, found, done)
    draft = msgspec.structs.replace(draft, footer=draft.footer + _footer(shown, done.not_attached))
    most = tracker.limit.most
    for _ in range(TRIES):
        payload, signed = fitted(tracker, draft, most)
        try:
            done.comment, done.action = _write(tracker, client, draft, payload, found)
            break
        except TooLong as refused:
            most = refused.most if refused.most and refused.most < most else most // 2
            told = refused
    else:
        raise told
    if client.dry:
        done.action = "planned"
    elif tracker.keeps_comments:
        _check(tracker, client, done.comment, signed)
    else:
        done.action = "sent"
    return done


def _write(tracker: Tracker, client: Client, draft: Draft, payload: Any, found: Comment | None) -> tuple[Comment, str]:
    if found is not None:
        return tracker.update(client, draft, found, payload), "updated"
    for left in range(TRIES - 1, -1, -1):
        try:
            return tracker.create(client, draft, payload), "created"
        except OutcomeUnknown as lost:
            if not tracker.keeps_comments:
                raise OutcomeUnknown(lost.summary, "it may have arrived: look before you post again") from lost
            client.pause(lost.wait_s)
            found = tracker.find(client, draft)
            if found is not None:
                return tracker.update(client, draft, found, payload), "created"
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def _check(tracker: Tracker, client: Client, comment: Comment, signed: Mark) -> None:
    """What the tracker keeps must end in the marker that was sent."""
    kept = marked(tracker.read(client, comment))
    if kept != signed:
        state = "an older text" if kept and kept.run == signed.run else "another text"
        raise Refused(
            f"{tracker.name} answered that all is well, and comment {comment.id} holds {state}",
            "it may be over a limit of this tracker, or changed by an automation; look at the ticket",
        )


def _attach_all(tracker: Tracker, client: Client, draft: Draft, files: list[File], found: Comment | None, done: Posted) -> dict[str, str]:
    """File name -> the Markdown that shows it."""
    if not files:
        return {}
    if not tracker.takes_files:
        done.not_attached = {file.name: tracker.no_files for file in files}
        return {}
    there = tracker.attached(client, found, draft)
    shown: dict[str, str] = {}
    for file in files:
        try:
            name, markdown = _attach(tracker, client, draft, file, found, there)
        except Refused as refused:
            done.not_attached[file.name] = refused.summary
            done.files_refused = True
            continue
        shown[name] = markdown
        done.attached.append(name)
    return shown


def _attach(tracker: Tracker, client: Client, draft: Draft, file: File, found: Comment | None, there: dict[str, str]) -> tuple[str, str]:
    """(name, Markdown). A page that is refused for its kind goes as a zip; one whose answer was lost is looked for first."""
    for left in range(TRIES - 1, -1, -1):
        if file.name in there:
            return file.name, there[file.name]
        try:
            return file.name, tracker.attach(client, file)
        except OutcomeUnknown as lost:
            if not left:
                raise
            client.pause(lost.wait_s)
            there = tracker.attached(client, found, draft)
        except TooLong:
            raise
        except Refused as refused:
            if refused.status not in (400, 406, 415, 422) or file.name.endswith(".zip"):
                raise
            file = zipped(file)
    raise AssertionError("the last try returns or raises")


def zipped(file: File) -> File:
    """The file in an archive of its own; equal files give equal archives."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(file.name), file.data, zipfile.ZIP_DEFLATED)
    return File(f"{file.name}.zip", "application/zip", out.getvalue())


def _footer(shown: dict[str, str], not_attached: dict[str, str]) -> str:
    links = [markdown for markdown in shown.values() if markdown]
    lines = ["Attached: " + ", ".join(links) + "."] if links else []
    lines += [f"Not attached: `{name}` ({why})." for name, why in not_attached.items()]
    return "".join(f"\n{line}\n" for line in lines)


def failed(error: TicketError) -> dict[str, Any]:
    """An error as plain data."""
    return {"summary": error.summary, "hint": error.hint, "exit_code": error.exit_code}
