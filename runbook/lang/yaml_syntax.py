"""The parser's complaints, said so that the author knows what to type."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import yaml

from runbook.lang.document import LINE_BREAK
from runbook.lang.yaml_build import no_key, too_deep
from runbook.lang.yaml_mend import ENTRY, VALUE, content_column, in_brackets, value_at
from runbook.model.diagnostic import Diagnostic, Span

_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"\\]|\\.)*\"")


class _Place(NamedTuple):
    """Where the parser stopped, and where the construct began in which it stopped; lines and columns from 0."""

    problem: str
    context: str
    line: int
    column: int
    first_line: int
    first_column: int
    lines: list[str]

    def text(self, line: int) -> str:
        return self.lines[line] if 0 <= line < len(self.lines) else ""

    @property
    def char(self) -> str:
        return self.text(self.line)[self.column : self.column + 1]

    @property
    def value(self) -> str:
        """The value on this line: what stands behind `key: ` and `- `."""
        line = self.text(self.line)
        found = VALUE.match(line)
        return line[found.end() if found else 0 :].strip()


class _Said(NamedTuple):
    code: str
    summary: str
    hint: str
    line: int
    column: int
    length: int = 1


def syntax_problem(error: yaml.YAMLError, file: str, text: str, quoted: Any = None) -> Diagnostic:
    """A scanner's or parser's error with its place and a hint.

    quoted: the event before it, if that was a quoted text over several lines.
    """
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if not isinstance(error, yaml.MarkedYAMLError) or mark is None:
        return Diagnostic(code="yaml-syntax", summary=f"this is not YAML: {str(error).splitlines()[0]}", span=Span(file, 1, 1))
    first: Any = error.context_mark or mark
    at = _Place(error.problem or "", error.context or "", mark.line, mark.column, first.line, first.column, LINE_BREAK.split(text))
    said = _swallowed(at, quoted) or next((found for rule in _RULES if (found := rule(at)) is not None), None)
    if said is None:
        said = _Said("yaml-syntax", f"this is not YAML: {at.problem} {at.context}".strip(), "quote the text", at.line, at.column)
    return Diagnostic(code=said.code, summary=said.summary, hint=said.hint, span=Span(file, said.line + 1, said.column + 1, said.length))


def _swallowed(at: _Place, quoted: Any) -> _Said | None:
    """A quote that was never closed ends at the next quote of the file, some keys later, and the complaint comes there."""
    if quoted is None or at.line != quoted.end_mark.line:
        return None
    begin = quoted.start_mark
    if not any(ENTRY.match(line) for line in at.lines[begin.line + 1 : quoted.end_mark.line + 1]):
        return None
    return _unclosed(at.text(begin.line)[begin.column : begin.column + 1], begin.line, begin.column)


def _unclosed(quote: str, line: int, column: int) -> _Said:
    return _Said("unclosed-quote", f"the quote `{quote}` is never closed", f"add the closing {quote}", line, column)


def _deep(at: _Place) -> _Said | None:
    return _Said(*too_deep(), at.line, at.column) if "nesting depth" in at.problem else None


def _directive(at: _Place) -> _Said | None:
    if not at.text(at.line).startswith("%"):
        return None
    return _Said("directive", "lines that begin with `%` are not allowed", "remove the line, or quote the text", at.line, at.column)


def _expression(at: _Place) -> _Said | None:
    """`{a: ${{ x }}}`: inside braces and brackets the braces of an expression open a mapping."""
    if "flow" not in at.context and at.char not in ("{", "}", "]", ","):
        return None
    for line in range(at.line, max(at.first_line, at.line - 50) - 1, -1):
        bare = _QUOTED.sub(lambda found: " " * len(found[0]), at.text(line))
        start = bare.find("${{")
        if start >= 0 and (line < at.line or start <= at.column):
            end = bare.find("}}", start)
            shown = at.text(line)[start : end + 2] if end > 0 else "${{ … }}"
            summary = "an expression inside `{ }` or `[ ]` must be quoted"
            return _Said("unquoted-expression", summary, f"quote it: '{shown}'", line, start, len(shown))
    return None


def _tab(at: _Place) -> _Said | None:
    line = at.text(at.line)
    blanks = line[: len(line) - len(line.lstrip())]
    if at.char != "\t" and "tab" not in at.problem and not ("\t" in blanks and at.column <= len(blanks)):
        return None
    column = blanks.find("\t") if "\t" in blanks else at.column
    return _Said("tab-indentation", "a tab in the indentation", "indent with spaces: YAML does not allow tabs here", at.line, column)


def _reserved(at: _Place) -> _Said | None:
    if "cannot start any token" not in at.problem and "expected node content" not in at.problem:
        return None
    return _begins(at.text(at.line), at.line, at.column)


def _begins(line: str, number: int, column: int) -> _Said:
    rest = value_at(line, column)
    hint = f"quote it: {_quoted(rest)}" if rest else "write a value"
    return _Said("reserved-character", f"text cannot begin with `{line[column : column + 1]}`", hint, number, column, max(1, len(rest)))


def _colon(at: _Place) -> _Said | None:
    if "mapping values are not allowed" not in at.problem:
        return None
    line = at.text(at.line)
    if re.match(r".+:\s", at.value + " ") and at.value != line.strip():
        summary = "the value has a `: ` in it, which starts a mapping"
        column = line.index(at.value)
        return _Said("unquoted-colon", summary, f"quote it: {_quoted(at.value)}", at.line, column, len(at.value))
    if (known := _deeper(at) or _no_key_above(at)) is not None:
        return known
    hint = "is a blank missing after the `:` of the line before, or is this line indented too far?"
    return _Said("unexpected-mapping", "a key is not expected here", hint, at.line, at.column)


def _deeper(at: _Place) -> _Said | None:
    """A key further right than the one above it, which has a value already."""
    above, line = at.text(at.line - 1), at.text(at.line)
    column, wanted = content_column(line), content_column(above)
    key = line[column:].split(":")[0]
    if not re.search(r":\s+\S", above) or column <= wanted or line.lstrip().startswith("- "):
        return None
    hint = f"begin it in column {wanted + 1}, below `{above[wanted:].split(':')[0]}`"
    return _Said("bad-indentation", f"`{key}` is indented further than the key above it", hint, at.line, column, len(key))


def _no_key_above(at: _Place) -> _Said | None:
    """The first of the lines above that stand where a key should and have no `: `; they were read as text, and this key ends it."""
    column = content_column(at.text(at.line))
    first, number = None, at.line - 1
    while number >= 0 and (not (text := at.text(number)).strip() or content_column(text) == column):
        if text.strip() and not text.lstrip().startswith("#"):
            if re.search(r":(\s|$)", text):
                break
            first = number
        number -= 1
    if first is None or (content_column(at.text(number)) < column and re.search(r":\s+\S", at.text(number))):
        return None
    return _no_key(at, first)


def _quote(at: _Place) -> _Said | None:
    if "quoted scalar" not in at.context:
        return None
    if "escape" in at.problem or "hexdecimal" in at.problem:
        hint = "in double quotes `\\` starts an escape: use single quotes, as for regular expressions, or write `\\\\`"
        return _Said("bad-escape", "unknown escape in double quotes", hint, at.line, at.column)
    quote = at.text(at.first_line)[at.first_column : at.first_column + 1] or '"'
    return _unclosed(quote, at.first_line, at.first_column)


def _after_value(at: _Place) -> _Said | None:
    """`[ -f x ] && y`, `"a" b`: something follows a value that was complete."""
    value = at.value
    line = at.text(at.line)
    if value[:1] not in ("[", "{", '"', "'") or "flow" in at.context or not line[: at.column].strip():
        return None
    if value[:1] in ("[", "{") and in_brackets(line, min(at.first_column, at.column)):
        return None
    hint = f"text that begins with `{value[0]}` must be quoted as a whole: {_quoted(value)}"
    if value.startswith("{{"):
        hint = "an expression is written `${{ … }}` and quoted; a condition is written without braces"
    elif value[0] == value[-1] and value[0] in "'\"":
        hint = f"write it as {_quoted(value[1:-1])}" if value[0] == "'" else 'write `\\"` for a quote inside double quotes'
    code = "text-after-braces" if value.startswith("{{") else "text-after-value"
    return _Said(code, "text after the end of the value", hint, at.line, at.column)


def _anchor(at: _Place) -> _Said | None:
    if not any(word in at.context for word in ("anchor", "alias", "tag")):
        return None
    return _begins(at.text(at.first_line), at.first_line, at.first_column)


def _bracket(at: _Place) -> _Said | None:
    if "flow" not in at.context:
        return None
    opening = at.text(at.first_line)[at.first_column : at.first_column + 1]
    closing = {"[": "]", "{": "}"}.get(opening, "]")
    hint = f"add `,` or `{closing}`; text that begins with `{opening}` must be quoted"
    return _Said("unclosed-bracket", f"the `{opening}` is not closed", hint, at.first_line, at.first_column)


def _key(at: _Place) -> _Said | None:
    if "expected ':'" not in at.problem:
        return None
    return _no_key(at, at.first_line)


def _no_key(at: _Place, number: int) -> _Said:
    """A line where a key should be and none is: text that should stand deeper, or a key without its colon."""
    line = at.text(number).rstrip()
    column = content_column(line)
    above = next((text for text in reversed(at.lines[:number]) if text.strip()), "")
    block = re.search(r"([^\s:]+): +([|>])[-+0-9]*\s*$", above)
    if block is not None:
        summary = f"the text of `{block[1]}: {block[2]}` stands no deeper than its key"
        return _Said("unindented-text", summary, f"begin it in column {content_column(above) + 3}", number, column, len(line) - column)
    return _Said(*no_key(line[column:]), number, column, len(line) - column)


def _first(at: _Place) -> _Said | None:
    """The file begins further right than it goes on."""
    if "document start" not in at.problem:
        return None
    begin = next((number for number, line in enumerate(at.lines) if line.strip() and line.lstrip()[0] not in "#%"), 0)
    line = at.text(begin)
    column = content_column(line)
    if begin >= at.line or column <= content_column(at.text(at.line)):
        return None
    key = line[column:].split(":")[0]
    return _Said("bad-indentation", f"`{key}` is indented further than line {at.line + 1}", "begin it in column 1", begin, column, len(key))


def _block_text(at: _Place) -> _Said | None:
    if "block scalar" not in at.context:
        return None
    return _Said("bad-block-text", "nothing may follow `|` or `>` on its line", "begin the text on the next line", at.line, at.column)


def _indentation(at: _Place) -> _Said | None:
    if "block" not in at.context:
        return None
    above, line = at.text(at.line - 1), at.text(at.line)
    key, wanted = line[at.column :].split(":")[0], content_column(above)
    if re.match(r"\s*- +[^\s:]+:", above) and wanted > at.column and ENTRY.match(line) and not line.lstrip().startswith("- "):
        summary = f"`{key}` stands beside the `-` of its item, not in it"
        return _Said("bad-indentation", summary, f"begin it in column {wanted + 1}, below the key above", at.line, at.column, len(key))
    item = next(
        (text for text in reversed(at.lines[: at.line]) if re.match(r" *- ", text) and len(text) - len(text.lstrip()) < at.column), None
    )
    if line.lstrip().startswith("- ") and item is not None and "'-'" not in at.problem:
        hint = f"begin it in column {len(item) - len(item.lstrip()) + 1}, below the `-` of `{item.strip()[2:40]}`"
        return _Said("bad-indentation", "this item does not stand below the ones before it", hint, at.line, at.column)
    what = "a `- ` item" if "'-'" in at.problem else "a key"
    hint = f"{what} is expected: indent this line like the ones beside it; the block began at line {at.first_line + 1}"
    return _Said("bad-indentation", "this line does not fit the block above it", hint, at.line, at.column)


def _quoted(text: str) -> str:
    """Text in single quotes, cut."""
    text = text.strip().replace("'", "''")
    return f"'{text if len(text) <= 60 else text[:60] + '…'}'"


_RULES = (
    *(_deep, _directive, _first, _expression, _tab, _quote, _reserved, _colon, _after_value, _anchor),
    *(_bracket, _key, _block_text, _indentation),
)
