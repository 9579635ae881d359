"""A comparison for people: text with both sides aligned, and one HTML page that opens offline."""

from __future__ import annotations

import textwrap
from html import escape

from runbook.render.compare import NOT_THERE, Comparison, Difference, Section, Side
from runbook.render.inert import one_line
from runbook.render.sections import moment

NARROWEST = 20
WIDEST_NAME = 44
STYLE = """
:root{color-scheme:light dark;--soft:#59636e;--line:#d1d9e0;--new:#0a6b2d;--old:#a40e26}
@media(prefers-color-scheme:dark){:root{--soft:#9198a1;--line:#3d444d;--new:#4ac26b;--old:#ff7b72}}
body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:80rem;padding:0 1rem}
table{border-collapse:collapse;width:100%;table-layout:fixed}
th,td{border-bottom:1px solid var(--line);padding:.3rem .6rem;text-align:left;vertical-align:top;overflow-wrap:anywhere}
td{font-family:ui-monospace,monospace;font-size:.9rem}.a{color:var(--old)}.b{color:var(--new)}.soft{color:var(--soft)}
"""


def as_text(comparison: Comparison, width: int = 100) -> str:
    """Plain lines of at most about `width` columns."""
    lines = [*_head("A", comparison.a, width), *_head("B", comparison.b, width), ""]
    for section in comparison.sections:
        lines += [section.name, *_rows(section, width), ""]
    last = [closing(comparison), *(f"note: {note}" for note in map(one_line, comparison.notes))]
    return "\n".join([*lines, *(textwrap.fill(line, max(NARROWEST, width), subsequent_indent="  ") for line in last)]) + "\n"


def closing(comparison: Comparison) -> str:
    """What is equal, in one line."""
    if not comparison.sections:
        return "no difference"
    return f"no difference in: {', '.join(comparison.equal)}" if comparison.equal else "every part differs"


def _head(letter: str, side: Side, width: int) -> list[str]:
    name = f"{side.run or '(no run id)'}{f' and {side.runs - 1} more' if side.runs > 1 else ''}"
    when = moment(side.started) if side.started is not None else "no header"
    return [_cut(one_line(f"{letter}  {name}  {_word(side)}  {when}  {side.name}"), width)]


def _word(side: Side) -> str:
    return f"{side.verdict}{'/' + side.kind if side.kind else ''}"


def _rows(section: Section, width: int) -> list[str]:
    if section.name == "log lines":
        lines = [_cut(f"  {'+' if row.a is None else '-'} {one_line(row.b if row.a is None else row.a)}", width) for row in section.rows]
        return [*lines, *([f"  and {section.more} more"] if section.more else [])]
    names = [_cut(one_line(row.what), WIDEST_NAME) for row in section.rows]
    column = max(map(len, names))
    room = max(NARROWEST, (width - column - 8) // 2)
    left = min(room, max(len(one_line(row.a or NOT_THERE)) for row in section.rows))
    return [line for name, row in zip(names, section.rows, strict=True) for line in _row(f"{name:<{column}}", row, left, room, width)]


def _row(name: str, row: Difference, left: int, room: int, width: int) -> list[str]:
    a, b = one_line(row.a or NOT_THERE), one_line(row.b or NOT_THERE)
    note = f"  ({one_line(row.note)})" if row.note else ""
    if len(a) <= left and len(b) <= room and len(name) + left + len(b) + 6 <= max(width, 40):
        line = f"  {name}  {a:<{left}}  {b}"
        return [line + note] if len(line + note) <= width else [line, *([f"    {note.strip()}"] if note else [])]
    return [f"  {name.rstrip()}{note}", f"    A {_cut(a, width - 6)}", f"    B {_cut(b, width - 6)}"]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(1, width - 1)] + "…"


def as_html(comparison: Comparison) -> str:
    """One page: no script, no request."""
    title = f"{_word(comparison.a)} and {_word(comparison.b)}"
    body = [f"<h1>{_safe(title)}</h1>", "<table><tr><th></th><th>run</th><th>verdict</th><th>started</th><th>playbook</th></tr>"]
    for letter, side in (("A", comparison.a), ("B", comparison.b)):
        when = moment(side.started) if side.started is not None else ""
        more = f" and {side.runs - 1} more" if side.runs > 1 else ""
        body.append(
            "<tr>" + "".join(f"<td>{_safe(cell)}</td>" for cell in (letter, side.run + more, _word(side), when, side.name)) + "</tr>"
        )
    body.append("</table>")
    for section in comparison.sections:
        body.append(f"<h2>{_safe(section.name)}</h2><table><tr><th>what</th><th>A</th><th>B</th><th></th></tr>")
        body += [_table_row(row) for row in section.rows]
        body.append("</table>" + (f"<p>and {section.more} more</p>" if section.more else ""))
    body.append(f'<p class="soft">{_safe(closing(comparison))}</p>')
    body += [f'<p class="soft">note: {_safe(note)}</p>' for note in comparison.notes]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}"><title>{_safe(title)}</title>'
    view = '<meta name="viewport" content="width=device-width">'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}{view}<style>{STYLE}</style></head><body>{"".join(body)}</body></html>\n'


def _table_row(row: Difference) -> str:
    a, b = (_safe(value) if value is not None else NOT_THERE for value in (row.a, row.b))
    return f'<tr><th>{_safe(row.what)}</th><td class="a">{a}</td><td class="b">{b}</td><td class="soft">{_safe(row.note)}</td></tr>'


def _safe(text: str) -> str:
    return escape(one_line(text))
