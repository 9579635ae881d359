"""What a `curl` command asks."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from runbook.shell_script.state import Made, State, Url
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
_MEANS_NO_OTHER = set("sSfLvkiNo#4") | set(
    "--silent --show-error --fail --fail-with-body --location --verbose --include --no-buffer --compressed".split()
)
_MEANS_NO_OTHER |= {
    "--connect-timeout",
    "--retry",
    "--retry-delay",
    "--retry-connrefused",
    "--retry-all-errors",
    "--write-out",
    "--progress-bar",
    "-w",
}
"""Options that change nothing of what is asked."""
_IN_CLEAR = re.compile(r"((?:Bearer|Token|Basic) )?([^\s${}]{8,})")
_NOT_LOOKED_AT = (
    "the script goes on with the error as its answer; the playbook's request fails",
    "where a run shall go on after it: `ignore_errors: true` in that step, or `expect: {status: [200, 404]}`",
)
_SHOWING = ("jq", "head", "tail", "cat", "less", "sort", "wc", "cut", "tr")


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
    addresses = [*options.get("url", []), *plain]
    url = state.url(addresses[0]) if len(addresses) == 1 else None
    if url is None or any(not value for name in ("data", "json", "header", "request") for value in options.get(name, [])):
        return None
    data = [value for name in ("data", "json") for value in options.get(name, [])]
    options["header"] = [part if ":" in part else state.value(part) for part in options.get("header", [])]
    headers = dict(part.split(":", 1) for part in options["header"] if ":" in part)
    headers = {name.strip(): value.strip() for name, value in headers.items()}
    if any(text.startswith("@") for text in data) or len(data) > 1 or any(":" not in part for part in options.get("header", [])):
        return None
    unknown = options.keys() - {"url", "header", "data", "json", "request", "most", "output"}
    if words(call)[0] == "curl" and any(name not in _MEANS_NO_OTHER and name.lstrip("-") not in _MEANS_NO_OTHER for name in unknown):
        return None
    if "-k" in options and url.scheme == "https":
        return None
    method = (options.get("request") or ["POST" if data else "GET"])[-1].lower()
    if options.get("json"):
        headers.setdefault("Content-Type", "application/json")
    return Asked(method, url, headers, data[-1] if data else None, (options.get("most") or [""])[-1], tuple(options.get("output", [])))


def _options(state: State, call: Node) -> tuple[dict[str, list[str]], list[str]]:
    """Options and plain words. A word that only the shell knows is empty: a status format may be one, what is asked may not."""
    texts = [state.fill(word, secrets=True) or "" for word in call["Args"]]
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
    return found, plain


def fails(ask: Node) -> bool:
    """Whether curl's exit status tells of a status above 399, as with -f."""
    return words(ask)[0] == "wget" or any(word.startswith("--fail") or re.fullmatch(r"-[a-zA-Z]*f[a-zA-Z]*", word) for word in words(ask))


def request(state: State, statement: Node) -> list[Made] | None:
    """A `request` step for a curl command, whatever only shows its answer left out; None for others."""
    first, *others = pipeline(statement)
    if words(first)[:1] != ["curl"] or statement.get("Background"):
        return None
    seen = asked(state, first["Cmd"])
    if seen is None or seen.method not in ("get", "post", "put", "delete") or "secrets." in f"{seen.url}{seen.data}":
        return None
    if any(file != "/dev/null" for file in (*seen.saved, *(state.fill(one["Word"]) for one in saved_to(statement, first, *others)))):
        return None  # a `request` writes no file
    heads = [words(one)[0] if words(one) else "" for one in others]
    greps = [one for one, head in zip(others, heads, strict=True) if head in ("grep", "egrep", "fgrep")]
    patterns = [literal_pattern(one) for one in greps]
    if not all(
        head in _SHOWING or head in ("grep", "egrep", "fgrep") or _prints_json(one) for one, head in zip(others, heads, strict=True)
    ):
        return None
    if None in patterns or len(patterns) > 1:
        return None
    where = state.to_server(seen.url)
    for name in filter(state.is_secret, state.facts(statement).uses):
        state.trap("secret", statement, name)
    for name, value in seen.headers.items():
        found = _IN_CLEAR.fullmatch(value)
        if found and name.lower() in ("authorization", "x-api-key", "api-key"):
            state.trap("secret-in-clear", statement, name, "API_TOKEN")
            seen.headers[name] = f"{found[1] or ''}{state.secret('API_TOKEN')}"
    if not fails(first):
        state.trap("status-ignored", first["Cmd"], *_NOT_LOOKED_AT)
    state.at.slept = ""
    state.at.request = state.fresh_id("answer" if seen.method == "get" else "chat" if "chat" in seen.url.path else "reply")
    body: dict[str, Any] = {**where, seen.method: seen.url.path, **_body(seen)}
    if seen.most.isdigit():
        body["timeout"] = f"{seen.most}s"
    if patterns and seen.url.path != "/health":
        body["expect"] = {"text": re.escape(patterns[0] or "")}
    return [Made({"id": state.at.request, "request": body})]


def literal_pattern(search: Node) -> str | None:
    """What a plain grep looks for, when the pattern is text without a sign that means another; None for others."""
    flags, plain = (
        [word for word in words(search)[1:] if word.startswith("-")],
        [word for word in words(search)[1:] if not word.startswith("-")],
    )
    if len(plain) != 1 or not plain[0] or not all(re.fullmatch(r"-[qsEFoc]+", flag) for flag in flags):
        return None
    return plain[0] if "F" in "".join(flags) or not re.search(r"[\\^$.*\[\]|+?(){}]", plain[0]) else None


def _prints_json(one: Node) -> bool:
    return bool(re.fullmatch(r"python3? -m json\.tool", " ".join(words(one))))


def _body(seen: Asked) -> dict[str, Any]:
    headers = {name: value for name, value in seen.headers.items() if name.lower() not in ("content-type", "accept")}
    found: dict[str, Any] = {"headers": headers} if headers else {}
    if seen.data is None:
        return found
    try:
        return {"json": json.loads(seen.data), **found}
    except ValueError:
        return {"data": seen.data, **({"headers": seen.headers} if seen.headers else {})}
