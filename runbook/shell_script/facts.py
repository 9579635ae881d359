"""What a part of a script asks of the shell that runs it, and changes in it: names of variables, and a few that begin with `*`.

`*cwd` is the folder, `*env` what every command inherits, `*jobs` and `*last` what runs in the background, `*args` the script's arguments,
`*pid` the shell's own, `*exit` whether the lines below run at all. Where the text leaves it open, more is said rather than less.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from runbook.shell_script.syntax import Node, kind, literal, walk, words

ALWAYS = frozenset({"*cwd", "*env", "*exit"})
"""What every command depends on."""
_MARKS = {"@": "*args", "*": "*args", "#": "*args", "$": "*pid", "BASHPID": "*pid", "!": "*last", "PIPESTATUS": "?"}
_HEADS = {
    **dict.fromkeys(("cd", "pushd", "popd"), "*cwd"),
    **dict.fromkeys(("source", ".", "eval", "ulimit", "umask", "set", "shopt", "alias", "conda", "module", "deactivate"), "*env"),
    **dict.fromkeys(("exec", "trap"), "*exit"),
    "shift": "*args",
}
_INTO = ("read", "mapfile", "readarray", "getopts", "unset", "printf")
_ASKS_JOBS = ("wait", "jobs", "fg", "bg", "disown")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNS = re.compile(r"(?:[-+*/%&|^]|<<|>>)?=|\+\+|--")
_ARITHMETIC = ("ArithmExp", "ArithmCmd", "LetClause", "CStyleLoop")
_OTHER_SHELLS = ("Subshell", "CmdSubst", "ProcSubst", "FuncDecl", "CoprocClause")


class Facts(NamedTuple):
    """What a part of a script sets and uses."""

    sets: frozenset[str]
    uses: frozenset[str]


def facts(node: Node, functions: dict[str, Node], programs: frozenset[str] = frozenset()) -> Facts:
    """Of a statement, with the functions that it calls or may call; `programs` are variables that name none of them."""
    called, here = (_reached(node, functions, programs, inside) for inside in (walk, in_this_shell))
    sets = {name for one in in_this_shell(node) for name in sets_of(one)}
    uses = {name for one in walk(node) for name in _uses(one)} - {"*args"}
    uses |= {"*args"} & {name for one in _outside_functions(node) for name in _uses(one)}
    uses |= {f"{name}()" for name in called}
    if kind(node) != "FuncDecl":
        uses |= {name for one in called for part in walk(functions[one]["Body"]) for name in _uses(part)} - {"*args"}
        sets |= {name for one in here for part in in_this_shell(functions[one]["Body"]) for name in sets_of(part)}
    if "*pid" in uses:
        sets.add("*pid")
    return Facts(frozenset(sets), frozenset(uses))


def _reached(node: Node, functions: dict[str, Node], programs: frozenset[str], inside: Callable[[Node], Iterator[Node]]) -> set[str]:
    """Functions that a statement calls, or that those call."""
    found: set[str] = set()
    waiting = [node] if functions else []
    while waiting:
        for one in inside(waiting.pop()):
            new = _called(one, functions, programs) - found
            found |= new
            waiting += [functions[name]["Body"] for name in new]
    return found


def _called(node: Node, functions: dict[str, Node], programs: frozenset[str]) -> set[str]:
    """Functions that one command calls; all where only the shell knows, as for `"$@"`, `eval`, or `export -f`, which gives them away."""
    if node.get("Type") == "DeclClause":
        given = any(one.get("Value") and "f" in (literal(one["Value"]) or "") for one in _flags(node))
        return set(functions) if given else set()
    for word in (node.get("Args") or []) if node.get("Type") == "CallExpr" else []:
        text, parts = literal(word), list(walk(word))
        if text is not None:
            return set(functions) if text in ("eval", "trap") else {text} & functions.keys()
        if any("/" in str(one.get("Value", "")) for one in parts if one.get("Type") == "Lit"):
            return set()
        names = {one["Param"]["Value"] for one in parts if one.get("Type") == "ParamExp"}
        if names - programs or any(one.get("Type") == "CmdSubst" for one in parts):
            return set(functions)
    return set()


def in_this_shell(node: Any) -> Iterator[Node]:
    """The mappings of a tree that this shell itself executes: nothing of a subshell, a pipe, a background job, a function's body."""
    if isinstance(node, list):
        for one in node:
            yield from in_this_shell(one)
    elif isinstance(node, dict):
        yield node
        pipe = node.get("Type") == "BinaryCmd" and node.get("Op") in ("|", "|&")
        if node.get("Type") not in _OTHER_SHELLS and not pipe and not (node.get("Background") and "Cmd" in node):
            for value in node.values():
                yield from in_this_shell(value)


def _outside_functions(node: Any) -> Iterator[Node]:
    """All mappings but those of functions, whose arguments are their own."""
    if isinstance(node, list):
        for one in node:
            yield from _outside_functions(one)
    elif isinstance(node, dict) and node.get("Type") != "FuncDecl":
        yield node
        for value in node.values():
            yield from _outside_functions(value)


def leaves(node: Node) -> bool:
    """Whether it may end the script as if all were well: an `exit` that does not say a status other than 0."""
    exits = [one for one in in_this_shell(node) if one.get("Type") == "CallExpr" and words(one)[:1] == ["exit"]]
    return any(not re.fullmatch(r"[1-9]\d*", (words(one)[1:] or ["0"])[0]) for one in exits)


def sets_of(node: Node) -> set[str]:
    """What one mapping of the tree sets, its parts left out."""
    match node.get("Type"):
        case "CallExpr" if not node.get("Args"):
            return _assigned(node.get("Assigns") or [])
        case "CallExpr":
            return _call_sets(words(node), node)
        case "DeclClause" if node["Variant"]["Value"] != "local":
            exported = node["Variant"]["Value"] == "export" or any(
                (one.get("Value") and "x" in (literal(one["Value"]) or "")) for one in _flags(node)
            )
            return _assigned([one for one in node.get("Args") or [] if not one.get("Naked")]) | ({"*env"} if exported else set())
        case "FuncDecl":
            return {f"{node['Name']['Value']}()"}
        case "WordIter":
            return {node["Name"]["Value"]}
        case "ParamExp" if (node.get("Exp") or {}).get("Op") in (":=", "="):
            return {node["Param"]["Value"]}
        case kind_ if kind_ in _ARITHMETIC and any(_ASSIGNS.fullmatch(str(one.get("Op", ""))) for one in walk(node)):
            return _arithmetic(node)
    return {"*jobs", "*last"} if node.get("Background") and "Cmd" in node else set()


def _flags(node: Node) -> list[Node]:
    return [one for one in node.get("Args") or [] if one.get("Naked") and not one.get("Name")]


def _assigned(found: list[Node]) -> set[str]:
    return {one["Name"]["Value"] for one in found if one.get("Name")}


def _call_sets(said: list[str], node: Node) -> set[str]:
    found = {_HEADS[said[0]]} if said[0] in _HEADS else set()
    if said[0] == "exit" and leaves(node):
        found.add("*exit")
    if said[:2] == ["set", "--"]:
        found.add("*args")
    if said[0] in _INTO and (said[0] != "printf" or "-v" in said):
        found |= {word for word in said[1:] if _NAME.fullmatch(word)}
    return found


def _uses(node: Node) -> set[str]:
    match node.get("Type"):
        case "ParamExp":
            name = (node.get("Param") or {}).get("Value", "")
            return {"*args" if name.isdigit() else _MARKS.get(name, name)} | _arithmetic([node.get("Index"), node.get("Slice")])
        case kind_ if kind_ in _ARITHMETIC:
            return _arithmetic(node)
        case "CallExpr":
            said = words(node) or [""]
            text = " ".join(said) if said[0] in ("eval", "trap") else ""
            jobs = said[0] in _ASKS_JOBS or (said[0] == "kill" and any(word.startswith("%") for word in said))
            return set(re.findall(r"\$\{?(\w+)", text)) | ({"*jobs"} if jobs else set())
    return set()


def _arithmetic(node: Any) -> set[str]:
    """Names in an arithmetic expression, where they stand without a `$` too."""
    return {name for one in walk(node) if one.get("Type") == "Lit" for name in _NAME.findall(str(one.get("Value", "")))}
