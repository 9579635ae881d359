"""The layout of a YAML text: which part stands where, without what it means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from runbook.lang.yaml_loader import PARSER

_EXPLICIT = re.compile(r"[|>][+-]?[1-9]")


class Part:
    """A scalar, an alias or a collection. Lines and columns count from 0; `children` of a mapping are key, value, key, value, …

    `end` is the line after its last one. `style` is that of a scalar: `|`, `>`, a quote, or empty.
    """

    __slots__ = ("block", "children", "column", "end", "is_map", "line", "style", "text")

    def __init__(self, event: Any) -> None:
        self.line: int = event.start_mark.line
        self.column: int = event.start_mark.column
        self.end = _end(event)
        self.is_map = isinstance(event, yaml.MappingStartEvent)
        self.block = isinstance(event, yaml.CollectionStartEvent) and not event.flow_style
        self.style: str = (event.style or "") if isinstance(event, yaml.ScalarEvent) else ""
        self.text: str = event.value if isinstance(event, yaml.ScalarEvent) else ""
        self.children: list[Part] = []

    def entries(self) -> Iterator[tuple[Part, Part]]:
        """Keys and values of a mapping."""
        return zip(self.children[::2], self.children[1::2], strict=True)

    def last(self, lines: list[str]) -> int:
        """Its last line; blank lines behind a block scalar are not its own."""
        line = max((child.last(lines) for child in self.children), default=self.end - 1) if self.block else self.end - 1
        while line > self.line and not lines[line].strip():
            line -= 1
        return line

    def is_literal(self) -> bool:
        """Whether it is a block scalar, `|` or `>`."""
        return self.style in ("|", ">") and not self.block

    def is_fixed(self, lines: list[str]) -> bool:
        """Whether a block scalar says itself how far it is indented, as in `|2`."""
        return self.is_literal() and _EXPLICIT.match(lines[self.line], self.column) is not None

    def keeps_blanks(self, lines: list[str]) -> bool:
        """Whether the blank lines at the end of a block scalar are part of it, as with `|+`."""
        return self.is_literal() and "+" in lines[self.line][self.column : self.column + 3]


def _end(event: Any) -> int:
    end: int = event.end_mark.line
    return max(event.start_mark.line + 1, end if event.end_mark.column == 0 else end + 1)


def _close(part: Part, event: Any) -> None:
    if not part.block:
        part.end = event.end_mark.line + 1


def parts(text: str) -> Part | None:
    """The layout of one document; None of an empty one. The text must be one that `yaml_loader.load` takes."""
    parser = PARSER(text)
    stack: list[Part] = []
    root: Part | None = None
    try:
        while parser.check_event():
            event: Any = parser.get_event()
            if isinstance(event, yaml.CollectionEndEvent):
                _close(stack.pop(), event)
            elif isinstance(event, yaml.NodeEvent):
                part = Part(event)
                if stack:
                    stack[-1].children.append(part)
                root = root or part
                if isinstance(event, yaml.CollectionStartEvent):
                    stack.append(part)
    finally:
        parser.dispose()
    return root


def walk(part: Part) -> Iterator[Part]:
    """A part and all below it, in the order of the text."""
    yield part
    for child in part.children:
        yield from walk(child)
