"""Bytes of a file to text that a YAML parser may see, or why they are refused."""

from __future__ import annotations

import re

from runbook.lang.document import LINE_BREAK
from runbook.model.diagnostic import Diagnostic, Span
from runbook.model.units import format_size

MAX_BYTES = 2 * 2**20

_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def decode(source: bytes | str, file: str) -> str | Diagnostic:
    """The text without a byte order mark; a Diagnostic for a file that is too large, binary, not UTF-8 or has control characters."""
    if len(source) > MAX_BYTES:
        summary = f"the file has {format_size(len(source))}, more than the {format_size(MAX_BYTES)} that a YAML file may have"
        return _refuse("file-too-large", summary, Span(file, 1, 1), "is it the right file? logs and data go elsewhere")
    if isinstance(source, bytes):
        try:
            text = source.decode("utf-8")
        except UnicodeDecodeError as error:
            return _not_utf8(source, error.start, file)
    else:
        text = source
    text = text.removeprefix("\ufeff")
    odd = _NOT_TEXT.search(text)
    return text if odd is None else _control(text, odd.start(), file)


def _not_utf8(source: bytes, at: int, file: str) -> Diagnostic:
    if b"\0" in source and not source.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _binary(file)
    summary = f"the file is not UTF-8: it has the byte 0x{source[at]:02x}"
    return _refuse("not-utf8", summary, _place(file, source[:at].decode("utf-8"), 1), "save it as UTF-8")


def _control(text: str, at: int, file: str) -> Diagnostic:
    if "\0" in text:
        return _binary(file)
    escape = text[at] == "\x1b"
    hint = 'remove it (pasted from a terminal?), or write it in double quotes: "\\x1b"' if escape else "remove it"
    summary = f"the control character U+{ord(text[at]):04X} is not allowed in YAML"
    return _refuse("control-character", summary, _place(file, text[:at], 1), hint)


def _binary(file: str) -> Diagnostic:
    return _refuse("not-text", "this is a binary file, not YAML: it has NUL bytes", Span(file, 1, 1), "name a YAML file")


def _place(file: str, before: str, length: int) -> Span:
    lines = LINE_BREAK.split(before)
    return Span(file, len(lines), len(lines[-1]) + 1, length)


def _refuse(code: str, summary: str, span: Span, hint: str) -> Diagnostic:
    return Diagnostic(code=code, summary=summary, span=span, hint=hint)
