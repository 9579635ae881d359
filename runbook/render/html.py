"""`transcript.html`: one file that opens anywhere, without a script and without a request. A pure fold over the events."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from runbook.model.event import AnyEvent, MainEnded
from runbook.render.page import answer, record
from runbook.render.page.budget import Section, cut_note, fit
from runbook.render.page.clock import day
from runbook.render.page.journal import LIST_BYTES, Listing
from runbook.render.page.markup import Markup, join, link, tag, text
from runbook.render.page.observed import Observed
from runbook.render.page.style import sheet
from runbook.render.page.timeline import Timeline
from runbook.render.story import Story

LIMIT = 1_000_000
FRAME = 3_000
"""Bytes that the line at the top and the notes at the end take at most."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def html(events: Iterable[AnyEvent], limit: int = LIMIT) -> str:
    """The page of these events in at most `limit` bytes. What gives way is said in it; verdict, evidence and step never do."""
    story, observed, listing, main = Story(), Observed(), Listing(), None
    for event in events:
        story.apply(event)
        observed.apply(event)
        listing.apply(event)
        main = main or (event if isinstance(event, MainEnded) else None)
    observed.finish()
    head, banner = _head(story), answer.banner(story, observed)
    sections = _sections(story, observed, listing, main)
    room = limit - sum(len(part.encode()) for part in (head, banner)) - FRAME
    note = cut_note(fit(sections, room), limit)
    body = join([_top(story, sections), tag("main", banner, *(section.markup() for section in sections)), _foot(story, note)])
    return (
        f'<!DOCTYPE html>\n<html lang="en">{head}<body>{tag("a", "To the verdict", href="#verdict", class_="skip")}{body}</body></html>\n'
    )


def _sections(story: Story, observed: Observed, listing: Listing, main: MainEnded | None) -> list[Section]:
    time = Timeline(story, observed, main)
    origin = story.header.t if story.header else 0.0
    return [
        Section(id="evidence", title="Evidence", forms=[partial(answer.evidence, story, observed)]),
        Section(id="step", title="The step that decided", forms=[partial(answer.step, story, observed)]),
        Section(id="time", title="Where time went", forms=[time.whole, time.coarse, time.only_lanes]),
        Section(id="probes", title="Probes", forms=[partial(record.probes, story), partial(record.probes, story, 5)]),
        Section(id="changes", title="Changes to files", forms=[partial(record.changes, story)]),
        Section(id="findings", title="Findings", forms=[partial(record.findings, story)]),
        Section(id="environment", title="Environment", forms=[partial(record.environment, story, observed)]),
        Section(id="steps", title="All steps", forms=[partial(record.steps, story), partial(record.steps, story, passed=False)]),
        Section(id="playbook", title="Playbook", forms=[partial(record.playbook, story)]),
        Section(id="files", title="Files", forms=[partial(record.files, story)]),
        Section(id="events", title="Events", forms=[partial(listing.markup, origin, most) for most in (LIST_BYTES, LIST_BYTES // 8)]),
    ]


def _head(story: Story) -> Markup:
    closing, header = story.closing, story.header
    name = (header.name or header.playbook) if header else "run"
    title = f"{name}: {closing.verdict if closing else 'running'}"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width,initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", text(title, 300)),
        tag("style", Markup(sheet())),
    )


def _top(story: Story, sections: Iterable[Section]) -> Markup:
    header = story.header
    parts: list[object] = []
    if header:
        parts = [
            tag("strong", text(header.name or header.playbook, 200)),
            tag("span", text(f"run {header.run}", 100)),
            tag("span", day(header.t)),
        ]
    links = [
        link(section.id, section.title)
        for section in sections
        if section.body and section.id in ("evidence", "time", "environment", "steps", "events")
    ]
    return tag("header", tag("div", *parts, tag("nav", *links, aria_label="Sections"), class_="top"))


def _foot(story: Story, note: Markup) -> Markup:
    version = f"Made by runbook {story.header.version} from events.jsonl." if story.header else "Made by runbook from events.jsonl."
    return tag("footer", note, tag("p", text(version, 100), " Times are UTC. Durations after + count from the start of the run."))
