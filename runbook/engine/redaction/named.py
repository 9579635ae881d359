"""Values that are secrets by what they are called: `api_key=…`, `--hf-token …`, `"password": "…"`, `WANDB_API_KEY=…`.

The word decides how much its value must look like one. After `password` or `api_key` any literal counts; after a mere `token` or `key`,
which engines say of other things all day (`#token: 412`, `eos_token=…`, `cache_key=…`), only one that was made by a generator.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from runbook.engine.redaction.values import is_hash, is_plain, is_random

_TOKENS = "auth access refresh session api bearer hf hub personal id".split()
STRONG = (
    *(word for kind in ("api", "access", "secret_access", "secret", "private") for word in (f"{kind}_key", f"{kind.replace('_', '')}key")),
    *(word for kind in _TOKENS for word in (f"{kind}_token", f"{kind}token")),
    *"api_keys apikeys access_key_id accesskeyid password passwords passwd passphrase secret secrets credential credentials".split(),
)
"""Ends of names, `-` written as `_`."""
WEAK = ("token", "key")
NOT_SECRET = frozenset(
    """
    added audio boi bos cache cls compile draft end eoi eos first foreign graph group hash host idempotency image last mask max
    module new next num object pad param partition per prev primary prompt pub public routing sep sort special start state stop
    think tool unk video weight
    """.split()
)
"""What stands before `token` or `key` when it is no secret."""
_WORD = re.compile(r"(?:key|token|passwd|password|passphrase|secret|credential)s?(?:_?id)?(?=[\"'\\\s=:,])")
_BETWEEN = r"[\"'\\]{0,8}(?:\s{0,8}(?:=>|[=:])\s{0,8}|\s{0,4},\s{0,4}(?=\\{0,7}[\"'])|[ \t]{1,4})"
_REST = re.compile(
    rf"(?P<between>{_BETWEEN})(?:(?P<quote>\\{{0,7}}[\"'])(?P<quoted>[^\"'\\\r\n]{{1,500}})(?=[\"'\\])|(?P<bare>[^\s\"'\\,;&|)\]}}<>]{{1,500}}))"
)
_REST_OF_WORD = re.compile(r"(?:[^\s\"'\\]{0,500}(?<![,;:)\]}]))?")
"""In a line of `env` the shell's delimiters are part of the value."""
_WORD_BEFORE = re.compile(r"(?: [A-Za-z]{2,20})?")
_NAME = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
SHORTEST = 8
LONGEST_WITH_INNER = 100
"""A longer value that is no secret is not looked into for names of its own."""


def find_named(text: str, low: str) -> Iterator[tuple[int, int, str, bool]]:
    """(start, end, kind, sure) of each value. `low` is the text in small letters, of equal length."""
    at = 0
    while word := _WORD.search(low, at):
        at = word.end()
        rest = _REST.match(text, at)
        if rest is None:
            continue
        group = "bare" if rest["quoted"] is None else "quoted"
        start, end = rest.span(group)
        if end - start < SHORTEST and not text[word.start()].isupper():
            continue  # most of an engine's log: `#token: 412`
        name = _name(text, word)
        if group == "bare" and name.isupper() and rest["between"] == "=":
            end = _REST_OF_WORD.match(text, end).end()  # type: ignore[union-attr]
        sure = _judge(name, rest["between"], text[start:end], group == "quoted")
        if sure is not None:
            yield start, end, kind_of(name), sure
        if sure is not None or (end - start > LONGEST_WITH_INNER and not rest["between"].isspace()):
            at = end


def _name(text: str, word: re.Match[str]) -> str:
    """The whole name that ends in this word; a lone one takes the word before it along: `cache key`."""
    before = text[max(0, word.start() - 80) : word.start()]
    prefix = before[len(before.rstrip(_NAME)) :][-60:]
    if before[: len(before) - len(prefix)].endswith("//"):
        prefix = f"//{prefix}"
    elif not prefix:
        prefix = _WORD_BEFORE.match(before[::-1])[0].replace(" ", "_")[::-1]  # type: ignore[index]
    return prefix + text[word.start() : word.end()]


def _judge(name: str, between: str, value: str, quoted: bool) -> bool | None:
    bare = between.strip("\"'\\")
    if not bare.strip() or "," in bare:  # only blanks or a comma: a flag and its value
        if not name.startswith("--") or value.startswith("-"):
            return None
    elif "\n" in bare or (bare == ":" and name.startswith("//")):  # a URL's user
        return None
    return judge(name.lstrip("-"), value, prose=":" in bare and bare.endswith(" ") and not quoted)


def judge(name: str, value: str, *, prose: bool = False) -> bool | None:
    """Of a name and its value: surely a secret (true), looks like one (false), none (null). `prose`: it may be a word of a sentence."""
    standing = _standing(name) if len(value) >= SHORTEST else ""
    if not standing or not is_plain(value):
        return None
    if standing == "strong":
        if prose and (" " in value or _is_word(value)):
            return None
        return " " not in value and not (prose and re.fullmatch(r"[A-Za-z]+(?:[-_.][A-Za-z]+)+[.,]?", value))
    if name.isupper() and "_" in name and not prose and any(map(str.isdigit, value)):
        return True  # a variable of the environment: SERVICE_TOKEN=…
    return False if is_random(value) and not is_hash(value) else None


@functools.lru_cache(maxsize=4096)
def _standing(name: str) -> str:
    """How much a name says: strong, weak, or nothing. A text repeats few names."""
    plain_name = name.lower().replace("-", "_")
    if plain_name.endswith(STRONG):
        return "strong"
    if not plain_name.endswith(WEAK):
        return ""
    before = plain_name[: -len("token" if plain_name.endswith("token") else "key")]
    named = (before and before[-1].isalnum()) or NOT_SECRET.intersection(re.split(r"[_.]+", before)[-2:])
    return "" if named else "weak"


def kind_of(name: str) -> str:
    """The kind by the name's end."""
    low = name.lower()
    ends = {"passw": "password", "passphrase": "password", "credential": "credentials", "secret": "secret", "token": "token"}
    return next((kind for word, kind in ends.items() if word in low[-20:]), "api-key")


def _is_word(value: str) -> bool:
    """A plain word of a sentence: no digit, no sign, no capital inside."""
    return re.fullmatch(r"[A-Za-z]?[a-z]+[.!?:]?", value) is not None
