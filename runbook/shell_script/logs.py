"""What a script reads of a log."""

from __future__ import annotations

import re
from typing import Any

from runbook.shell_script.state import Made, State
from runbook.shell_script.syntax import Node, literal, pipeline, saved_to, words

_GREPS = ("grep", "egrep", "fgrep")
_SIMPLE = re.compile(r"-[acEeFhHinoPqs]+|--color(?:=\w+)?|-[ABCm]\d*")
_LOG = re.compile(r"(?:^|[/._-])(?:log|out|err)s?(?=$|[._-])|\.log|nohup")
_SHOWING = ("head", "tail", "wc", "cut", "sort", "uniq", "cat", "less")


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
    files = _files(state, search)[-1:] if reader is None else [one for one in _files(state, reader) if not re.fullmatch(r"-.*|\+?\d+", one)]
    shown = all((words(one) or ["?"])[0] in _SHOWING for one in found[1 if reader is None else 2 :])
    written = [one for part in found for one in saved_to(part) if literal(one["Word"]) != "/dev/null"]
    follows = reader is not None and any(re.fullmatch(r"-\d*[fF].*|--follow.*", word) for word in words(reader))
    if len(plain) != (2 if reader is None else 1) or not plain[0] or len(files) != 1 or not files[0] or not shown or written or follows:
        return None
    if not all(_SIMPLE.fullmatch(flag) for flag in flags) or statement.get("Background"):
        return None
    if not _is_servers(state, files[0]) and state.path(files[0]) is None:
        return None
    return [_step(state, search, said[0], flags, plain[0], files[0])]


def _files(state: State, call: Node) -> list[str]:
    """Plain words, with the script's names in them; empty where only the shell knows."""
    return [state.fill(word, one_word=True) or "" for word in call["Cmd"]["Args"][1:] if not (literal(word) or "").startswith("-")]


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
    at = state.at
    body: dict[str, Any] = {"log": at.server} if _is_servers(state, file) else {"file": state.path(file)}
    since = at.request or (at.server if at.launched else "")
    if since:
        body["since"] = since
    if not (at.launched and file == at.log and at.log_is_fresh):
        state.trap("old-log", search, file, f"`{since}`" if since else "the start of its writer")
    if at.slept:
        body["wait"] = "5s" if "file" in body else "10s"
    at.slept = ""
    letters = "".join(flag for flag in flags if not flag.startswith("--"))
    expression = _regex(state, search, pattern, program, letters)
    return Made(
        {"id": state.fresh_id("seen"), "grep": {**body, "pattern": f"(?i){expression}" if "i" in letters else expression}},
        f"The script searched {file}.",
    )


def _is_servers(state: State, file: str) -> bool:
    """Whether a file is the log of the server: that of the launch, or what is called a log where one is attached to."""
    at = state.at
    return bool(at.server) and (file == at.log if at.launched else bool(_LOG.search(file)))


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
    said = words(statement)
    if said[:1] != ["tail"] or not any(word.startswith("-") and "f" in word.lower() for word in said):
        return None
    state.trap("endless-tail", statement)
    return []
