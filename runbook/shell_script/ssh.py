"""`ssh box '…'`: a script of its own, on that box."""

from __future__ import annotations

import re
from typing import NamedTuple

from runbook.shell_script.state import State
from runbook.shell_script.syntax import Node, Script, literal, parse, words

_WITH_VALUE = set("BbcDEeFIiJLlmOopQRSWw")
_LEFT_OUT = set("tTqxAnC46v")
"""Options that change nothing of what is run."""
_FOR_THE_CONFIG = {"i": "IdentityFile", "J": "ProxyJump", "F": "Include", "o": ""}


class Remote(NamedTuple):
    """A script and the target that it is for."""

    host: str
    script: Script


def remote(state: State, statement: Node) -> Remote | None:
    """The script of an `ssh` command; None when it is no plain one: it then stays an `ssh` of the machine that runs the script."""
    if words(statement)[:1] != ["ssh"] or statement.get("Background") or statement.get("Negated"):
        return None
    arguments = [_known(state, word) for word in statement["Cmd"]["Args"][1:]]
    port, user, at, config = "", "", 0, []
    while at < len(arguments) and (option := arguments[at] or "").startswith("-"):
        letter = next((char for char in option[1:] if char not in _LEFT_OUT), "")
        value = option[option.index(letter) + 1 :] if letter in _WITH_VALUE and letter else ""
        if letter in _WITH_VALUE and letter and not value:
            at += 1
            value = state.scope.script.source(statement["Cmd"]["Args"][at + 1]) if at < len(arguments) else ""
        if letter in _FOR_THE_CONFIG and letter:
            config.append(f"{_FOR_THE_CONFIG[letter]} {value.replace('=', ' ', 1)}".strip())
        elif letter not in ("", "p", "l"):
            return None
        port, user, at = state.value(value) if letter == "p" else port, value if letter == "l" else user, at + 1
    target = arguments[at] if at < len(arguments) else None
    documents = [one for one in statement.get("Redirs") or [] if one.get("Hdoc")]
    if not target or len(documents) != len(statement.get("Redirs") or []):
        return None
    scripts = statement["Cmd"]["Args"][at + 2 :]
    if documents and (not scripts or [literal(one) for one in scripts] in (["bash"], ["bash", "-s"], ["sh"], ["sh", "-s"])):
        scripts = [documents[-1]["Hdoc"]]
    elif documents or len(scripts) != 1:
        return None
    found = _inner(state, scripts[0])
    if found is None:
        return None
    for one in config:
        if not any(one in said.summary for said in state.traps):
            state.trap("ssh-option", statement, one)
    host = f"{user}@{target}" if user and "@" not in target else target
    return Remote(f"{host}:{port}" if port else host, found)


def _known(state: State, word: Node) -> str | None:
    text = state.fill(word) if literal(word) is None and state.facts(word).uses <= state.scope.constants.keys() else literal(word)
    return None if text is None else state.value(text).replace("$${{", "${{")


def _inner(state: State, word: Node) -> Script | None:
    """A script that is one word of another, in the same places; the constants of the outer one are in it already."""
    if not state.facts(word).uses <= state.scope.constants.keys() or any(map(state.is_secret, state.facts(word).uses)):
        return None
    quoted = {"Parts": [{"Type": "DblQuoted", "Parts": word.get("Parts") or []}]} if _unquoted(word) else word
    text = state.fill(quoted)
    if text is None:
        return None
    text = state.value(text).replace("$${{", "${{")
    before = state.scope.script.text.encode()[: word["Pos"]["Offset"]].decode() + " "
    found = parse(re.sub(r"[^\n]", " ", before) + text, state.scope.script.file, state.program)
    return found if isinstance(found, Script) else None


def _unquoted(word: Node) -> bool:
    """Whether it is the text of a here-document, where quotes are text and nothing is split."""
    return not any(one["Type"] in ("SglQuoted", "DblQuoted") for one in word.get("Parts") or [])
