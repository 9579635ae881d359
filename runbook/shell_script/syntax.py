"""A shell script as a tree: parsed by `shfmt`, whose JSON is walked here with the places of its parts.

A node is a mapping with `Pos` and `End`; a statement has `Cmd`, `Redirs`, `Background`, `Negated`; the kinds of commands are
CallExpr, BinaryCmd, WhileClause, ForClause, IfClause, Subshell, Block, DeclClause and some that are left as they are.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from runbook.model.diagnostic import Diagnostic, Span

Node = dict[str, Any]
LIMIT_S = 20.0
_PLACE = re.compile(r"^(?:<standard input>:)?(\d+):(\d+): (.*)", re.MULTILINE)


class NoParser(Exception):
    """There is no shfmt on this machine."""


class Script(NamedTuple):
    """A parsed script: its name, its text, its statements."""

    file: str
    text: str
    statements: list[Node]

    def source(self, node: Node) -> str:
        """The text of a node as it was written, with its here-documents, without the `;` or `&` behind it."""
        start, end = node["Pos"]["Offset"], (node.get("Semicolon") or node["End"])["Offset"]
        return self.text.encode()[start : max(end, self._documents_end(node))].decode().rstrip()

    def whole(self, node: Node) -> str:
        """The same, with the `&` that leaves it in the background."""
        text = self.source(node)
        return f"{text} &" if node.get("Background") and not self._documents_end(node) else text

    def _documents_end(self, node: Node) -> int:
        """Where the last here-document of a node ends, behind the line that closes it; 0 without one."""
        raw, end = self.text.encode(), 0
        for found in walk(node):
            if found.get("Op") in ("<<", "<<-") and "Word" in found:
                closing = (literal(found["Word"]) or "").encode()
                end = max(end, raw.find(b"\n", found["Word"]["End"]["Offset"]) + 1)
                while end < len(raw):
                    line, end = raw[end:].split(b"\n", 1)[0], end + len(raw[end:].split(b"\n", 1)[0]) + 1
                    if (line.lstrip(b"\t") if found["Op"] == "<<-" else line) == closing:
                        break
        return end

    def span(self, node: Node) -> Span:
        """Place of a node; its length is that on the first line."""
        start = node["Pos"]
        before = self.text.split("\n")[start["Line"] - 1].encode()[: start["Col"] - 1].decode()
        return Span(self.file, start["Line"], len(before) + 1, len(self.source(node).split("\n")[0]))


def parser() -> str:
    """The shfmt beside this interpreter, or of the path. Raises NoParser."""
    beside = Path(sys.executable).parent / "shfmt"
    found = str(beside) if beside.is_file() else shutil.which("shfmt")
    if not found:
        raise NoParser
    return found


def parse(text: str, file: str, program: str) -> Script | Diagnostic:
    """The tree of a script in bash's grammar, or where it is none."""
    done = subprocess.run([program, "-ln", "bash", "--to-json"], input=text.encode(), capture_output=True, timeout=LIMIT_S, check=False)
    if done.returncode == 0:
        return Script(file, text, json.loads(done.stdout).get("Stmts") or [])
    said = _PLACE.search(done.stderr.decode(errors="replace"))
    line, column, why = (int(said[1]), int(said[2]), said[3]) if said else (1, 1, done.stderr.decode(errors="replace").strip()[:200])
    return Diagnostic(
        code="shell-syntax", summary=f"this is no shell script: {why}", span=Span(file, line, column, 1), hint="correct it there"
    )


def inner(script: Script, word: Node, program: str) -> Script | None:
    """A script that is one word of another, as in `ssh box '…'`: in the same places."""
    text = literal(word)
    if text is None:
        return None
    raw = script.text.encode()
    before = raw[: word["Pos"]["Offset"]].decode() + " "
    found = parse(re.sub(r"[^\n]", " ", before) + text, script.file, program)
    return found if isinstance(found, Script) else None


def walk(node: Any) -> Iterator[Node]:
    """All mappings of a tree but its places, outermost first, in the order of the text."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if "Offset" in one:
                continue
            yield one
            one = list(one.values())
        waiting += [part for part in reversed(one) if isinstance(part, (dict, list))]


def kind(node: Node | None) -> str:
    """The kind of a statement's command, or of a command or a word's part."""
    return str(((node or {}).get("Cmd") or node or {}).get("Type", ""))


def words(statement: Node) -> list[str]:
    """The words of a simple command as far as they are literal; others are empty. Nothing of another kind of command."""
    command = statement.get("Cmd") or statement
    return [literal(word) or "" for word in command.get("Args") or []] if kind(command) == "CallExpr" else []


def calls(node: Any) -> Iterator[Node]:
    """Every simple command in a tree."""
    return (found for found in walk(node) if found.get("Type") == "CallExpr" and found.get("Args"))


def pipeline(statement: Node) -> list[Node]:
    """The commands of a pipe, in order; a statement that is none is one alone."""
    command = statement.get("Cmd") or {}
    if kind(command) == "BinaryCmd" and command["Op"] in ("|", "|&"):
        return [*pipeline(command["X"]), *pipeline(command["Y"])]
    return [statement]


def saved_to(*nodes: Node) -> list[Node]:
    """Their redirections of output into files."""
    return [one for node in nodes for one in node.get("Redirs") or [] if one["Op"] in (">", ">>", "&>", "&>>", ">|")]


def literal(word: Node) -> str | None:
    """The text of a word that no expansion changes, else None."""
    return filled(word, lambda name, quoted: None)


Names = Callable[[str, bool], "str | None"]
"""What stands for a `$NAME`, outside or inside of quotes; None when only the shell knows."""


def filled(word: Node, names: Names) -> str | None:
    """The text of a word, with `$NAME` as `names` says; None when something else is expanded in it."""
    return _parts(word.get("Parts") or [], names, quoted=False)


def _parts(found: list[Node], names: Names, quoted: bool) -> str | None:
    text = ""
    for part in found:
        piece = _part(part, names, quoted)
        if piece is None:
            return None
        text += piece
    return text


def _part(part: Node, names: Names, quoted: bool) -> str | None:
    match part["Type"]:
        case "Lit":
            value: str = part.get("Value", "")
            if quoted:
                return re.sub(r"\\([$`\"\\])|\\\n", lambda found: found[1] or "", value).replace("${{", "$${{")
            if re.search(r"(?<!\\)[*?]|(?<!\\)\[.*\]", value) or value.startswith("~") or re.search(r"(?<!\\)\{[^}]*[,.]", value):
                return None
            return re.sub(r"\\(.)|\\\n", lambda found: found[1] or "", value).replace("${{", "$${{")
        case "SglQuoted" if not part.get("Dollar"):
            return str(part.get("Value", "")).replace("${{", "$${{")
        case "DblQuoted":
            return _parts(part.get("Parts") or [], names, quoted=True)
        case "ParamExp" if not set(part) - {"Type", "Pos", "End", "Dollar", "Rbrace", "Short", "Param"}:
            return names(part["Param"]["Value"], quoted)
    return None
