"""The mask: secrets leave every text before it is written.

Declared ones in the forms in which programs repeat them, all others by their shape.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from runbook.engine.redaction import scan
from runbook.engine.redaction.named import judge, kind_of
from runbook.model.masked import mark

SHORTEST = 6
"""A shorter value would blank ordinary text; it is refused before the run starts."""

LONG, TOO_LONG = 16 << 10, 4 << 20
LONGEST_LINE = 8 << 20
"""A longer one is cut: then only what `Mask` says of the ends of texts protects a secret that lies across."""

SECRET_NAME = re.compile(r"(?i)(?:^|[_\-.])(token|secrets?|passwords?|passwd|api_?keys?|credentials?)$|(?:^|_)key$")
"""Names of `-e` values that count as secrets."""


def looks_secret(name: str) -> bool:
    """Whether a variable of this name is masked without being declared. `num_draft_tokens` is not: it counts."""
    return SECRET_NAME.search(name) is not None


def forms(value: str) -> set[str]:
    """The value as shells, URLs, JSON and base64 repeat it; several lines count one by one as well."""
    found = {value}
    for piece in [value, *value.splitlines()]:
        if len(piece) < SHORTEST:
            continue
        found |= {piece, quote(piece), quote(piece, safe=""), quote_plus(piece), shlex.quote(piece), repr(piece)[1:-1]}
        found |= {json.dumps(piece)[1:-1], json.dumps(piece, ensure_ascii=False)[1:-1]}
        found |= _base64_forms(piece.encode())
    return {form for form in found if len(form) >= SHORTEST}


def _base64_forms(data: bytes) -> set[str]:
    """Base64 of the value at each of the three alignments, cut to the characters that depend on it alone."""
    found = set()
    for lead in range(3):
        text = base64.b64encode(b"\0" * lead + data).decode()
        skip = (lead * 8 + 5) // 6
        whole = (lead + len(data)) * 8 // 6
        found.add(text[skip:whole])
    return {form for form in found if len(form) >= 8} | {base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()}


Bytes = bytes  # in the class that is a method


class Mask:
    """Replaces secrets by `***NAME***` in text, bytes and plain data: declared ones by value, all others that are sure by their shape,
    but for the kinds in `allow`. Idempotent.

    Texts are cut before they get here: a last line, a window of a log, a piece of output. So what begins a secret at the end of a
    text, or ends one at its beginning, goes as well.
    """

    def __init__(self, secrets: Mapping[str, str], *, shapes: bool = True, allow: Collection[str] = ()) -> None:
        pairs = sorted(((form, name) for name, value in secrets.items() for form in forms(value)), key=lambda pair: -len(pair[0]))
        self._names = dict(reversed(pairs))
        self._text = re.compile("|".join(re.escape(form) for form, _ in pairs)) if pairs else None
        self._heads = {form[:end]: name for form, name in reversed(pairs) for end in range(SHORTEST, len(form))}
        self._tails = {form[-end:]: name for form, name in reversed(pairs) for end in range(SHORTEST, len(form))}
        self._longest = len(pairs[0][0]) - 1 if pairs else 0
        self._shapes, self._allow = shapes, frozenset(allow)
        self.count = 0
        self._long: dict[str, tuple[str, int]] = {}
        """The last two long texts, masked: a command's output is written down three times."""

    def text(self, value: str) -> str:
        """The text without secrets."""
        if not LONG <= len(value) <= TOO_LONG:
            return self._masked(value)
        known = self._long.get(value)
        if known is None:
            before = self.count
            known = self._masked(value), self.count - before
            self._long = {**dict(list(self._long.items())[-1:]), value: known}
        else:
            self.count += known[1]
        return known[0]

    def _masked(self, value: str) -> str:
        if self._text is not None:
            value, count = self._text.subn(lambda found: mark(self._names[found[0]]), value)
            self.count += count
            value = self._ends(value)
        return self._unshaped(value) if self._shapes else value

    def _unshaped(self, value: str) -> str:
        if scan.is_short_and_clean(value):
            return value
        return scan.masked(value, sure_only=True, allow=self._allow, count=self._counted)

    def _counted(self, *_: object) -> None:
        self.count += 1

    def _ends(self, value: str) -> str:
        """Without the parts of secrets that the text's ends cut off; the longest counts."""
        for length in range(min(self._longest, len(value)), SHORTEST - 1, -1):
            if name := self._heads.get(value[-length:]):
                self.count += 1
                value = f"{value[:-length]}{mark(name)}"
                break
        for length in range(min(self._longest, len(value)), SHORTEST - 1, -1):
            if name := self._tails.get(value[:length]):
                self.count += 1
                value = f"{mark(name)}{value[length:]}"
                break
        return value

    def bytes(self, value: bytes) -> bytes:
        """The bytes without secrets; what is not UTF-8 stays as it is."""
        return self.text(value.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def pieces(self, source: Iterable[Bytes]) -> Iterator[Bytes]:
        """The same for what is too large for memory: cut between lines, where there are any."""
        held = b""
        for piece in source:
            held += piece
            cut = held.rfind(b"\n") + 1 or (len(held) if len(held) > LONGEST_LINE else 0)
            if cut:
                yield self.bytes(held[:cut])
                held = held[cut:]
        if held:
            yield self.bytes(held)

    def value(self, value: Any, name: str = "") -> Any:
        """Plain data without secrets, keys included. `name` is the key or the flag that the value belongs to."""
        if isinstance(value, str):
            return self._named(name, self.text(value)) if name else self.text(value)
        if isinstance(value, dict):
            return {self.text(key) if isinstance(key, str) else key: self.value(item, _name(key)) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item, _flag(before)) for before, item in zip([None, *value], value, strict=False)]
        return value

    def _named(self, name: str, value: str) -> str:
        if not self._shapes or not judge(name, value) or kind_of(name) in self._allow:
            return value
        self.count += 1
        return mark(kind_of(name))


def _name(key: Any) -> str:
    return key if isinstance(key, str) else ""


def _flag(word: Any) -> str:
    """The name in `--api-key`, whose value is the next word of a command line."""
    return word.lstrip("-") if isinstance(word, str) and word.startswith("--") and "=" not in word else ""


def too_short(secrets: Mapping[str, str]) -> Iterable[str]:
    """Names of secrets that are too short to be masked without blanking ordinary text."""
    return [name for name, value in secrets.items() if len(value) < SHORTEST]
