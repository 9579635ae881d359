"""`trap '…' EXIT`: what it executes, and for which ends."""

from __future__ import annotations

import re

from runbook.shell_script.state import State
from runbook.shell_script.syntax import Node, filled, literal, walk, words

_JOB = r"(?:\$!|\$\{!\}|%\d|0|\$\(jobs -p\))"
_ENDS = re.compile(rf"(?:kill(?: -\w+)*(?: \"?{_JOB}\"?)+|wait(?: [^;|&<>]*)?)(?: *\d?&?>[^;|&]*(?:&1)?)?(?: *\|\| *(?:true|:))?")
_NAMED_COMMAND = re.compile(r"(?:^|[;&|({!]|\b(?:then|do|else|if)\b)\s*\$")


def handled(state: State, statement: Node) -> tuple[str | None, frozenset[str]]:
    """The text of a `trap`, None when only the shell knows it, and the ends that it is for."""
    arguments = [word for word in statement["Cmd"]["Args"][1:] if literal(word) != "--"]
    return _text(state, arguments[0]) if arguments else None, frozenset(literal(word) or "" for word in arguments[1:])


def _text(state: State, word: Node) -> str | None:
    """In double quotes the values of that time are meant: of names that never change, so that they can be read at the end as well."""
    known = literal(word)
    if known is not None:
        return known
    text = filled(word, lambda name, quoted: (f"${{{name}}}" if name.isidentifier() else f"${name}") if _stays(state, name, word) else None)
    bare = any(one.get("Type") == "Lit" and "'" in str(one.get("Value", "")) for one in walk(word))
    return None if text is None or bare or _NAMED_COMMAND.search(text) else text


def _stays(state: State, name: str, word: Node) -> bool:
    """Whether a name has the value at the end of the script that it has here."""
    if name == "!":
        return state.scope.counts["*last"] == 1
    set_once = state.scope.once.get(name)
    return name.isidentifier() and (set_once is not None and set_once["Pos"]["Offset"] < word["Pos"]["Offset"])


def ends_what_runs(text: str) -> bool:
    """Whether a line of a handler does no more than end the script's own jobs, or wait for their end."""
    return bool(_ENDS.fullmatch(text))


def is_trap(statement: Node) -> bool:
    """Whether a statement is a `trap` for some end."""
    return words(statement)[:1] == ["trap"] and len(words(statement)) > 2
