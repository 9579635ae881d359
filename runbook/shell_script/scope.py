"""The shell that reads the lines of a script: what it has been told so far, and what of that the lines below need.

A playbook has no such shell: each step begins anew. A setting (an assignment, `cd`, `export`, `source`, a function) can be said again
wherever it is needed. What a command has changed, as `read` or a loop does, cannot: a line that needs it stays in one script with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from runbook.shell_script.facts import Facts, facts, sets_of
from runbook.shell_script.syntax import Node, Script, kind, walk

_IMPURE = {"RANDOM", "SRANDOM", "SECONDS", "EPOCHSECONDS", "EPOCHREALTIME", "BASHPID", "LINENO", "PPID", "?", "!", "$", "_"}


class Setting(NamedTuple):
    """Text that may be said again; `always` when every command needs it."""

    text: str
    sets: frozenset[str]
    uses: frozenset[str]
    always: bool = False


@dataclass
class Scope:
    """One shell: that of the script, or that of an `ssh box '…'` in it.

    `taken` are names whose value is an expression, `lost` what a closed script has changed, with the place where it began; `last` is
    the step for which `$!` stands, `launches` the places of servers that are launched, `began` that of the first; `programs` are
    variables whose value is no function of the script.
    """

    script: Script
    counts: Counter[str] = field(default_factory=Counter)
    functions: dict[str, Node] = field(default_factory=dict)
    programs: frozenset[str] = frozenset()
    once: dict[str, Node] = field(default_factory=dict)
    settings: list[Setting] = field(default_factory=list)
    constants: dict[str, str] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)
    exports: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    moved: bool = False
    flags: set[str] = field(default_factory=set)
    lost: dict[str, int] = field(default_factory=dict)
    block: list[Node] = field(default_factory=list)
    opened: tuple[int, str] = (0, "")
    last: str = ""
    began: int | None = None
    launches: set[int] = field(default_factory=set)
    handlers: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Names are counted before the first line is read."""
        for one in walk(self.script.statements):
            self.counts.update(sets_of(one))
            if one.get("Type") == "FuncDecl":
                self.functions[one["Name"]["Value"]] = one
        for statement in self.script.statements:
            found = assignments(statement)
            if len(found) == 1 and self.counts[found[0]["Name"]["Value"]] == 1 and plain(found[0]):
                self.once[found[0]["Name"]["Value"]] = statement
        known = {one["Name"]["Value"]: one for statement in self.script.statements for one in assignments(statement)}
        local = {name["Value"] for one in walk(self.script.statements) if _is_local(one) for name in _names(one)}
        self.programs = frozenset(
            name for name, one in known.items() if self.counts[name] == 1 and name not in local and _calls_none(one, self.functions)
        )

    def facts(self, node: Node) -> Facts:
        """What a statement sets and uses, with the functions that it may call."""
        return facts(node, self.functions, self.programs)

    def open(self) -> None:
        """A script of its own begins here, unless one is open."""
        if not self.block:
            self.opened = (len(self.settings), self.cwd)

    def needed(self, names: Iterable[str], before: int) -> list[Setting]:
        """The first `before` settings, as far as a text with these names needs them, in their order."""
        wanted, found = set(names), []
        for one in reversed(self.settings[:before]):
            if one.always or one.sets & wanted:
                found.append(one)
                wanted |= one.uses
        return found[::-1]

    def forget(self, nodes: Iterable[Node]) -> None:
        """What these statements have changed is not known below."""
        for node in nodes:
            for name in self.facts(node).sets:
                self.lost.setdefault(name, node["Pos"]["Offset"])
                self.last = "" if name == "*last" else self.last


def assignments(statement: Node) -> list[Node]:
    """The assignments of a statement that is nothing else, as `A=1` or `export A=1`."""
    command = statement.get("Cmd") or {}
    if kind(command) == "DeclClause":
        return [one for one in command.get("Args") or [] if one.get("Name") and not one.get("Naked")]
    return command.get("Assigns") or [] if kind(command) == "CallExpr" and not command.get("Args") else []


def _is_local(node: Node) -> bool:
    return node.get("Type") == "DeclClause" and node["Variant"]["Value"] == "local"


def _names(declaration: Node) -> list[Node]:
    return [one["Name"] for one in declaration.get("Args") or [] if one.get("Name")]


def _calls_none(assignment: Node, functions: Iterable[str]) -> bool:
    """Whether a value, as a command, calls no function: it is a path, or nothing in it is the name of one or comes from elsewhere."""
    inside = [one for key in ("Value", "Array") for one in walk(assignment.get(key) or {})]
    plain_text = "".join(str(one.get("Value", "")) for one in inside if one.get("Type") == "Lit")
    if "/" in plain_text and not re.search(r"\s", plain_text) and not assignment.get("Array"):
        return True
    said = {word for one in inside for word in re.findall(r"[\w.:-]+", str(one.get("Value", "")))}
    names = {one["Param"]["Value"] for one in inside if one.get("Type") == "ParamExp"} - {assignment["Name"]["Value"]}
    return not names and not said & set(functions) and not any(one.get("Type") in ("CmdSubst", "ProcSubst") for one in inside)


def plain(assignment: Node) -> bool:
    """Whether it gives one value to one name: no array, no `+=`."""
    return not any(assignment.get(key) for key in ("Append", "Array", "Index"))


def repeatable(node: Node) -> bool:
    """Whether an assignment comes to the same each time: nothing of a command, a clock, the arguments, a folder's files is in it."""
    for one in walk(node):
        name = (one.get("Param") or {}).get("Value", "") if one.get("Type") == "ParamExp" else ""
        if one.get("Type") in ("CmdSubst", "ProcSubst") or name in _IMPURE:
            return False
        if one.get("Array") and any(
            re.search(r"[*?]", str(part.get("Value", ""))) for part in walk(one["Array"]) if part.get("Type") == "Lit"
        ):
            return False
    return True
