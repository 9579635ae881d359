"""What a script reads of a log."""

from __future__ import annotations

import re
from typing import Any

from runbook.shell_script.state import Made, State
from runbook.shell_script.syntax import Node, pipeline, words

_GREPS = ("grep", "egrep", "fgrep")
_SIMPLE = re.compile(r"-[acEeFhinoPqsw]+|--color(?:=\w+)?|-[ABCm]\d*")


def grep(state: State, statement: Node) -> list[Made] | None:
    """A `grep` step for a search in a file, `tail FILE | grep` too; None for others."""
    found = pipeline(statement)
    reader, search = (
        (None, found[0]) if words(found[0])[:1] and words(found[0])[0] in _GREPS else (found[0], found[1] if len(found) > 1 else found[0])
    )
    said = words(search)
    if not said or said[0] not in _GREPS or (reader is not None and words(reader)[:1] not in (["tail"], ["cat"], ["head"])):
        return None
    flags, plain = _split(said[1:])
    rest = plain[1:] if reader is None else [word for word in words(reader)[1:] if word and not re.fullmatch(r"-.*|\+?\d+", word)]
    if not plain or len(rest) != 1 or not all(_SIMPLE.fullmatch(flag) for flag in flags) or statement.get("Negated"):
        return None
    return [_step(state, search, said[0], flags, plain[0], rest[0])]


def _split(said: list[str]) -> tuple[list[str], list[str]]:
    flags, plain, values = [], [], iter(said)
    for word in values:
        if word == "-e":
            plain.append(next(values, ""))
        elif word.startswith("-") and len(word) > 1:
            flags.append(word + next(values, "") if re.fullmatch(r"-[ABCm]", word) else word)
        else:
            plain.append(word)
    return flags, plain


def _step(state: State, search: Node, program: str, flags: list[str], pattern: str, file: str) -> Made:
    body: dict[str, Any] = {"log": state.server} if _is_servers(state, file) else {"file": file}
    since = state.request or (state.server if state.launched else "")
    if since:
        body["since"] = since
    if not (state.launched and file == state.log and state.log_is_fresh):
        state.trap("old-log", search, file, f"`{since}`" if since else "the start of its writer")
    if state.slept and "file" not in body:
        body["wait"] = "10s"
    elif state.slept:
        body["wait"] = "5s"
    state.slept = ""
    letters = "".join(flag for flag in flags if not flag.startswith("--"))
    expression = _regex(state, search, pattern, program, letters)
    return Made(
        {"id": state.fresh_id("seen"), "grep": {**body, "pattern": f"(?i){expression}" if "i" in letters else expression}},
        f"The script searched {file}.",
    )


def _is_servers(state: State, file: str) -> bool:
    return bool(state.server) and (file == state.log or not state.launched)


_CLASSES = {"digit": "0-9", "space": r"\s", "blank": r" \t", "alpha": "A-Za-z", "alnum": "A-Za-z0-9", "upper": "A-Z", "lower": "a-z"}
"""What stands between brackets in POSIX patterns alone."""


def _regex(state: State, search: Node, pattern: str, program: str, letters: str) -> str:
    """The pattern in Python's syntax."""
    if "F" in letters or program == "fgrep":
        return re.escape(pattern)
    pattern = re.sub(r"\[:(\w+):\]", lambda found: _CLASSES.get(found[1], found[0]), pattern).replace("\\K", "")
    if "\\" not in pattern and re.search(r"\[\w[\w -]{3,}\]", pattern):
        state.trap("bracket-class", search, pattern)
        return re.escape(pattern)
    if "E" in letters or "P" in letters or program == "egrep":
        return pattern
    swapped = re.sub(r"\\([+?|(){}])|([+?|(){}])", lambda found: found[1] or "\\" + found[2], pattern)
    return re.escape(pattern) if _broken(swapped) else swapped


def _broken(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return True
    return False


def tail(state: State, statement: Node) -> list[Made] | None:
    """`tail -f` is left out: it never ends."""
    said = words(pipeline(statement)[0])
    if said[:1] != ["tail"] or not any(word.startswith("-") and "f" in word.lower() for word in said):
        return None
    state.trap("endless-tail", statement)
    return []
