"""A run or a file redacted, and the report: how many of which kind were masked, and where."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from runbook.engine.redact import Mask
from runbook.engine.redaction.named import judge, kind_of
from runbook.engine.redaction.public import Aliases
from runbook.engine.redaction.scan import Found, is_short_and_clean, masked
from runbook.engine.redaction.stream import blocks
from runbook.model.masked import MARK, mark, marks

PLACES = 5
"""Places of one kind that a report names."""


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where something was masked: a line of a file, or of a text in an event."""

    file: str
    line: int = 1
    event: int | None = None
    tag: str = ""
    field: str = ""

    def __str__(self) -> str:
        if self.event is None:
            return f"{self.file}:{self.line}"
        line = f", line {self.line}" if self.line > 1 else ""
        return f"event {self.event} ({self.tag}), {self.field}{line}"


class Report(msgspec.Struct):
    """What was found. `replaced` counts names that got an alias; `before` are marks that were there already."""

    masked: dict[str, int] = {}
    places: dict[str, list[Place]] = {}
    replaced: dict[str, int] = {}
    before: dict[str, int] = {}
    not_read: list[str] = []

    def add(self, kind: str, place: Place) -> None:
        """Count one."""
        self.masked[kind] = self.masked.get(kind, 0) + 1
        known = self.places.setdefault(kind, [])
        if len(known) < PLACES and place not in known:
            known.append(place)


class Redactor:
    """Masks what was declared and what looks like a secret, sure or not; then gives aliases, when it has some."""

    def __init__(self, secrets: Mapping[str, str], *, allow: Collection[str] = (), aliases: Aliases | None = None) -> None:
        self._declared = Mask(secrets, shapes=False)
        self._allow = frozenset(allow)
        self._aliases = aliases
        self.report = Report()

    def text(self, text: str, place: Place, path: tuple[object, ...] = ()) -> str:
        """One text; `place` is that of its first line, `path` leads to it inside an event."""
        if "***" not in text and is_short_and_clean(text) and self._declared.text(text) == text:
            return self._aliased(text)
        if path:
            place = msgspec.structs.replace(place, field=".".join(map(str, path)))
        before = marks(text)
        for kind, number in before.items():
            self.report.before[kind] = self.report.before.get(kind, 0) + number
        text = self._declared.text(text)
        for kind, number in (marks(text) - before).items():
            found = next(each for each in MARK.finditer(text) if each[1] == kind)
            for _ in range(number):
                self._count(Found(found.start(), found.end(), kind), text, place)
        text = masked(text, allow=self._allow, count=lambda found, text: self._count(found, text, place))
        return self._aliased(text)

    def _count(self, found: Found, text: str, place: Place) -> None:
        line = place.line + text.count("\n", 0, found.start)
        self.report.add(found.kind, msgspec.structs.replace(place, line=line))

    def _aliased(self, text: str) -> str:
        if self._aliases is None:
            return text
        text = self._aliases.text(text)
        self.report.replaced = dict(self._aliases.count)
        return text

    def named(self, name: str) -> str:
        """A file's name with aliases: the journal names it so."""
        return self._aliased(name)

    def data(self, value: Any, place: Place, name: str = "", path: tuple[object, ...] = ()) -> Any:
        """Plain data, keys included. `name` is the key or flag that the value belongs to."""
        if isinstance(value, str):
            text = self.text(value, place, path)
            if name and judge(name, text) is not None and kind_of(name) not in self._allow:
                self.report.add(kind_of(name), msgspec.structs.replace(place, field=".".join(map(str, path))))
                return mark(kind_of(name))
            return text
        if isinstance(value, dict):
            return {self.text(key, place, path): self.data(item, place, key, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            flags = [before[2:] if isinstance(before, str) and before.startswith("--") else "" for before in [None, *value]]
            return [self.data(item, place, flag, (*path, index)) for index, (item, flag) in enumerate(zip(value, flags, strict=False))]
        return value

    def journal(self, lines: Iterable[str], file: str) -> Iterator[str]:
        """The lines of a journal, as data; one that is none, or is torn, as text."""
        for number, line in enumerate(lines):
            try:
                yield self._event(json.loads(line), number, file)
            except (ValueError, RecursionError):  # torn, or nested deeper than any event
                yield self.text(line, Place(file, number + 1))

    def _event(self, event: Any, number: int, file: str) -> str:
        """One line of a journal. Raises ValueError for what is no event."""
        if not isinstance(event, dict):
            raise ValueError("no event")
        n = event.get("n")
        place = Place(file, event=n if isinstance(n, int) else number, tag=tag_of(event))
        return json.dumps(self.data(event, place), ensure_ascii=False, separators=(",", ":")) + "\n"

    def file(self, pieces: Iterable[str], file: str) -> Iterator[str]:
        """The text of a file, however long."""
        line = 1
        for block in blocks(pieces):
            yield self.text(block, Place(file, line))
            line += block.count("\n")


def tag_of(event: Mapping[str, Any]) -> str:
    """What an event is, and of which step."""
    step = event.get("step")
    return f"{event.get('event', '?')} of `{step}`" if isinstance(step, str) else str(event.get("event", "?"))


def masked_lines(report: Report) -> Iterator[str]:
    """A line for each kind: how many, and where."""
    for kind, number in sorted(report.masked.items(), key=lambda item: (-item[1], item[0])):
        places = report.places[kind]
        more = f" and {number - len(places)} more" if number > len(places) else ""
        yield f"{kind} ×{number}: {'; '.join(map(str, places))}{more}"


def lines(report: Report) -> Iterator[str]:
    """The report for people."""
    total = sum(report.masked.values())
    yield f"masked {total} value{'' if total == 1 else 's'}" + (":" if total else "")
    yield from (f"  {line}" for line in masked_lines(report))
    if report.replaced:
        yield "replaced: " + ", ".join(f"{kind} ×{number}" for kind, number in sorted(report.replaced.items()))
    if report.before:
        yield "masked before: " + ", ".join(f"{kind} ×{number}" for kind, number in sorted(Counter(report.before).items()))
    for name in report.not_read:
        yield f"not looked into, because it is no text: {name}"
