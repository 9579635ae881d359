"""What a `curl` command asks."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from runbook.shell_script.state import Made, State, Url, url_of
from runbook.shell_script.syntax import Node, pipeline, saved_to, words

_TAKE_VALUE = set("AbcCdDeEFhHKmoPQrTtuUwXxyYz")
_LONG_VALUE = (
    "--header",
    "--data",
    "--data-raw",
    "--data-binary",
    "--json",
    "--request",
    "--max-time",
    "--connect-timeout",
    "--output",
    "--write-out",
    "--retry",
    "--retry-delay",
    "--url",
    "--user",
)
_OTHERWISE = ("-F", "--form", "-T", "--upload-file", "-G", "--get", "-I", "--head", "-u", "--user")
"""Options with which it asks something that no `request` does."""
_SHOWING = ("jq", "head", "tail", "cat", "tee", "python", "python3", "less", "sort", "wc", "cut", "sed", "awk", "tr")


class Asked(NamedTuple):
    """One request: method, address, headers, body, seconds that it may take, files that get the answer."""

    method: str
    url: Url
    headers: dict[str, str]
    data: str | None
    most: str
    saved: tuple[str, ...]


def asked(state: State, call: Node) -> Asked | None:
    """The request of a curl or wget command; None when it is not plain."""
    options, plain = _options(state, call)
    if options is None:
        return None
    url = next((found for text in [*options.get("url", []), *plain] if (found := url_of(text))), None)
    if url is None:
        return None
    data = [value for name in ("data", "json") for value in options.get(name, [])]
    headers = dict(part.split(":", 1) for part in options.get("header", []) if ":" in part)
    headers = {name.strip(): value.strip() for name, value in headers.items()}
    if any(text.startswith("@") for text in data) or len(data) > 1 or any(":" not in part for part in options.get("header", [])):
        return None
    if any(name in options for name in _OTHERWISE):
        return None
    method = (options.get("request") or ["POST" if data else "GET"])[-1].lower()
    saved = tuple(file for name in ("output", "-O", "--remote-name") for file in options.get(name, []))
    return Asked(method, url, headers, data[-1] if data else None, (options.get("most") or [""])[-1], saved)


def _options(state: State, call: Node) -> tuple[dict[str, list[str]] | None, list[str]]:
    texts = state.words(call)
    if texts is None:
        # A status format or an output file may hold anything; only what is asked must be known.
        texts = [state.fill(word) or "" for word in call["Args"]]
    names = {
        "-X": "request",
        "--request": "request",
        "-H": "header",
        "--header": "header",
        "-m": "most",
        "--max-time": "most",
        "--url": "url",
        "--json": "json",
        "-o": "output",
        "--output": "output",
    }
    names |= dict.fromkeys(("-d", "--data", "--data-raw", "--data-binary"), "data")
    found: dict[str, list[str]] = {}
    plain: list[str] = []
    rest = iter(texts[1:])
    for word in rest:
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if re.fullmatch(r"-[A-Za-z].*", word) and not word.startswith("--"):
            letter = next((at for at, char in enumerate(word[1:], 1) if char in _TAKE_VALUE), None)
            found.update((f"-{char}", [""]) for char in word[1:letter])
            if letter is not None:
                name, value = f"-{word[letter]}", word[letter + 1 :] or next(rest, "")
                found.setdefault(names.get(name, name), []).append(value)
        elif name in _LONG_VALUE:
            found.setdefault(names.get(name, name), []).append(value if equals else next(rest, ""))
        elif word.startswith("--"):
            found[name] = [""]
        elif not word.startswith("-"):
            plain.append(word)
    if any(not value for value in found.get("data", [])):
        return None, plain
    return found, plain


def request(state: State, statement: Node) -> list[Made] | None:
    """A `request` step for a curl command, whatever only shows its answer left out; None for others."""
    first, *others = pipeline(statement)
    if words(first)[:1] != ["curl"] or statement.get("Background"):
        return None
    seen = asked(state, first["Cmd"])
    if seen is None or seen.method not in ("get", "post", "put", "delete") or not (seen.url.is_local or state.server):
        return None
    if any(file != "/dev/null" for file in (*seen.saved, *(state.fill(one["Word"]) for one in saved_to(statement, first)))):
        return None  # a `request` writes no file
    heads = [words(one)[0] if words(one) else "" for one in others]
    greps = [one for one, head in zip(others, heads, strict=True) if head in ("grep", "egrep", "fgrep")]
    if not all(head in _SHOWING or head in ("grep", "egrep", "fgrep") for head in heads):
        return None
    where = state.to_server(seen.url)
    state.request = state.fresh_id("answer" if seen.method == "get" else "chat" if "chat" in seen.url.path else "reply")
    body: dict[str, Any] = {**where, seen.method: seen.url.path, **_body(seen)}
    if seen.most.isdigit():
        body["timeout"] = f"{seen.most}s"
    pattern = next((word for one in greps for word in words(one)[1:] if word and not word.startswith("-")), "")
    if pattern and seen.url.path != "/health":
        body["expect"] = {"text": re.escape(pattern)}
    return [Made({"id": state.request, "request": body})]


def _body(seen: Asked) -> dict[str, Any]:
    headers = {name: value for name, value in seen.headers.items() if name.lower() not in ("content-type", "accept")}
    found: dict[str, Any] = {"headers": headers} if headers else {}
    if seen.data is None:
        return found
    try:
        return {"json": json.loads(seen.data), **found}
    except ValueError:
        return {"data": seen.data, **({"headers": seen.headers} if seen.headers else {})}
