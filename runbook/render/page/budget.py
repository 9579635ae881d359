"""The byte budget of a page: what gives way first, and what never does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from runbook.model.units import format_size
from runbook.render.page.markup import Markup, join, listing, tag

DROP_ORDER = ("events", "playbook", "probes", "changes", "time", "steps", "environment", "files", "findings")
"""Sections in the order in which they give way: what the journal repeats, plots, passed steps, environment. All others stay."""


class Section(msgspec.Struct, kw_only=True):
    """A part of the page in one or more forms, the whole one first. A section whose form is empty is left out.

    The forms of those that are not in DROP_ORDER are bounded by how they are made.
    """

    id: str
    title: str
    forms: Sequence[Callable[[], Markup]]
    body: Markup = Markup()
    cuts: int = 0

    def __post_init__(self) -> None:
        self.body = self.forms[0]()

    def shorten(self) -> bool:
        """Take the next shorter form, after the last one nothing at all; false when there is nothing left to give."""
        if not self.body:
            return False
        self.cuts += 1
        self.body = self.forms[self.cuts]() if self.cuts < len(self.forms) else Markup()
        return True

    def markup(self) -> Markup:
        """The section with its heading; nothing when it is empty."""
        if not self.body:
            return Markup()
        return tag("section", tag("h2", self.title, id=f"h-{self.id}"), self.body, id=self.id, aria_labelledby=f"h-{self.id}")

    @property
    def size(self) -> int:
        """Bytes of the section with its heading."""
        return len(self.markup().encode())


def fit(sections: Sequence[Section], room: int) -> list[str]:
    """Shorten sections until all fit into `room` bytes; answers what was cut, in words."""
    by_id = {section.id: section for section in sections}
    said: dict[str, str] = {}
    sizes = {section.id: section.size for section in sections}
    for id in DROP_ORDER:
        section = by_id.get(id)
        while section is not None and sum(sizes.values()) > room:
            before = sizes[id]
            if not section.shorten():
                break
            sizes[id] = section.size
            how = "shortened" if section.body else "left out"
            said[id] = f"{section.title}: {how}, {format_size(before)} before" if id not in said else said[id].replace("shortened", how)
    return list(said.values())


def cut_note(cuts: Sequence[str], limit: int) -> Markup:
    """What was cut, for the end of the page."""
    if not cuts:
        return Markup()
    lead = f"To stay below {format_size(limit)}, parts of this page were cut; the whole is in events.jsonl:"
    return join([tag("p", lead), listing(cuts)])
