"""HTML that is right by construction: every text is made visible and escaped, every element is closed.

Text comes from hosts that may be hostile. It can never become an element or an attribute, reorder what stands around it, or hide
in it: terminal sequences are dropped, control, bidirectional and invisible characters are shown as escapes.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from html import escape
from typing import Any

ANSI = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,2048}(?:\x07|\x1b\\)|[@-Z\\^_])")
HARMLESS = re.compile(r"[A-Za-z0-9 _.,:;/()\[\]{}=+*#%@!?$^~|-]*").fullmatch
"""Text that is the same before and after: most of it."""
CODE = re.compile(r"`([^`\n]+)`")
VOID = frozenset({"meta", "rect", "path", "line", "polyline", "col", "br"})
LONG_CELL = 40
"""Characters of markup from which a cell may be broken anywhere, not only between words."""
CELL = 1_000
"""Bytes of markup that one value may take; the journal has the whole."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def visible(text: str) -> str:
    """The text as it may be shown: no terminal sequences; what cannot be seen stands there as an escape."""
    text = ANSI.sub("", text).replace("\r\n", "\n")
    return text if text.isprintable() else "".join(map(_seen, text))


def _seen(char: str) -> str:
    if char.isprintable() or char in "\n\t" or unicodedata.category(char) == "Zs":
        return char
    return char.encode("unicode_escape").decode("ascii")


def text(value: object, most: int = CELL) -> Markup:
    """Any value as escaped text of at most `most` bytes; a cut one says how many characters are missing."""
    whole = value if isinstance(value, str) else plain(value)
    if len(whole) <= most and HARMLESS(whole):
        return Markup(whole)
    kept = len(whole) if len(whole) <= most else most
    while True:
        shown = escape(visible(whole[:kept]))
        left = len(whole) - kept
        tail = f" … ({left:,} more characters)" if left else ""
        size = len(shown.encode()) + len(tail)
        if size <= most or kept == 0:
            return Markup(shown + tail)
        kept = max(0, min(kept - 1, kept * (most - 40) // size))


def prose(value: str, most: int = CELL) -> Markup:
    """A sentence; what stands between backticks is code."""
    return Markup(CODE.sub(r"<code>\1</code>", text(value, most)))


def plain(value: object) -> str:
    """A value in one line: text as it is, nothing as a dash, everything else as JSON."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e15 else repr(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def mappings(value: object) -> list[dict[str, Any]]:
    """The mappings in a list that a journal holds; none when it holds something else there."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, (list, tuple)) else []


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. Children that are not markup are escaped; an attribute that is None or False is left out.

    `class_` and `for_` lose their last underscore, inner ones become hyphens: `aria_label`.
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value, 4 * CELL)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in VOID:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(parts: Iterable[object]) -> Markup:
    """All parts one after the other; nothing for None."""
    return Markup("".join(part if isinstance(part, Markup) else text(part) for part in parts if part is not None and part != ""))


def table(head: Iterable[object], rows: Iterable[Iterable[object]], *, caption: str, class_: str | None = None) -> Markup:
    """A table that scrolls by itself when it is too wide, also with the keyboard. The first cell of a row names it."""
    titles = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    body = join(tag("tr", *(_cell(number, cell) for number, cell in enumerate(row))) for row in rows)
    inner = tag("table", tag("caption", caption), tag("thead", titles), tag("tbody", body), class_=class_)
    return tag("div", inner, class_="wide", tabindex="0", role="region", aria_label=caption)


def _cell(number: int, cell: object) -> Markup:
    if number == 0:
        return tag("th", cell, scope="row")
    return tag("td", cell, class_="long" if isinstance(cell, str) and len(cell) > LONG_CELL else None)


def details(summary: object, *children: object, open_: bool = False, id: str | None = None) -> Markup:
    """A part that is folded away at first."""
    return tag("details", tag("summary", summary), *children, open=open_, id=id)


def pre(value: str, most: int, class_: str | None = None) -> Markup:
    """Text as it was printed."""
    return tag("pre", tag("code", text(value, most)), class_=class_, tabindex="0")


def listing(items: Iterable[object], class_: str | None = None) -> Markup:
    """A list."""
    return tag("ul", *(tag("li", item) for item in items), class_=class_)


def link(anchor: str, label: object) -> Markup:
    """A link inside the page. `anchor` is one of ours, never text of a host."""
    return tag("a", label, href=f"#{anchor}")
