"""Statements that stay the shell text that they are: one `run` step for those that follow each other, with the settings that they need."""

from __future__ import annotations

import re
from typing import Any

from runbook.shell_script.scope import Setting, assignments
from runbook.shell_script.state import Again, Made, State
from runbook.shell_script.syntax import Node, calls, kind, walk, words

_SOURCES = (".py", ".json", ".yaml", ".toml", ".cfg")
_STARTS_NOTHING = set(
    "echo printf ls cat cp mv rm mkdir ln touch chmod test [ true false : cd pwd date sleep grep egrep sed awk cut sort".split()
)
_STARTS_NOTHING |= set(
    "head tail tee wc tr find which du df free nvidia-smi ps pgrep kill pkill curl wget jq git pip seq read export exit".split()
)
"""Commands behind which no server may have come up."""
_GIVEN = set(
    "HOME USER LOGNAME PATH PWD OLDPWD SHELL HOSTNAME TMPDIR LANG TERM UID EUID RANDOM SECONDS IFS LINENO OPTARG OPTIND REPLY _ ?".split()
)
_GIVEN |= set("BASH_SOURCE FUNCNAME BASH_REMATCH PIPESTATUS PPID BASH BASH_VERSION OSTYPE EPOCHSECONDS MAPFILE PS1 EDITOR DISPLAY".split())
_GIVEN |= {"BASHPID", "SRANDOM", "EPOCHREALTIME", "COLUMNS", "LINES", "HOSTTYPE", "MACHTYPE", "GROUPS", "DIRSTACK", "-", "0"}


def escaped(text: str) -> str:
    """Text in which nothing is an expression."""
    return text.replace("${{", "$${{")


def keep(state: State, statement: Node) -> None:
    """One more statement of the script that is open."""
    scope, source = state.scope, state.scope.script.source(statement)
    _known_traps(state, statement, source)
    scope.open()
    scope.block.append(statement)
    state.at.starts_itself |= bool({(words(call) or ["?"])[0].rpartition("/")[2] for call in calls(statement)} - _STARTS_NOTHING)
    _read_logs(state, statement, source)


def close(state: State) -> None:
    """The open script becomes a step."""
    scope = state.scope
    if scope.block:
        nodes = scope.block
        state.steps.append(script(state))
        scope.forget(nodes)


def script(state: State, last_line: str = "") -> Made:
    """The open script as a `run` step; none is open afterwards."""
    scope, (before, cwd) = state.scope, state.scope.opened
    nodes, scope.block = scope.block, []
    uses = frozenset[str]().union(*(state.facts(node).uses for node in nodes))
    settings = _needed(state, uses, before, nodes[-1])
    uses |= {name for one in settings for name in one.uses}
    texts = [_text(state, node, own=at > 0) for at, node in enumerate(nodes)]
    if "*last" in uses and scope.last and not any(node.get("Background") for node in nodes):
        texts = [text.replace("$!", "$LAST_PID").replace("${!}", "$LAST_PID") for text in texts]
        texts.insert(0, f"LAST_PID=${{{{ steps.{scope.last}.pid }}}}")
    if _may_be_false(nodes[-1]) and not last_line:
        texts.append("true")
    lines = [*_flags(state, nodes, settings, uses), *(one.text for one in settings), *texts, *([last_line] if last_line else [])]
    env = dict(scope.exports)
    for name in sorted(uses):
        if state.is_secret(name) and name not in env:
            env[name] = state.secret(name)
    _unset(state, nodes, uses)
    body: dict[str, Any] = {"shell": "\n".join(lines)}
    for key, value in (("cwd", cwd), ("env", env)):
        if value:
            body[key] = value
    return Made({"run": body if len(body) > 1 else body["shell"]}, comment_of(nodes[0], _why(state, nodes)), state.host)


def replayed(state: State, names: frozenset[str], before: int, statement: Node) -> list[str]:
    """The text of the settings that a statement with these names needs. Raises Again when it must stay in one script with them."""
    return [one.text for one in _needed(state, names, before, statement)]


def _needed(state: State, names: frozenset[str], before: int, statement: Node) -> list[Setting]:
    found = state.scope.needed(names, before)
    for name in sorted({name for one in found for name in one.uses} & state.scope.lost.keys()):
        if not state.take(name):
            state.keep_together(state.scope.lost[name], statement["End"]["Offset"], f"`${name}`")
    return found


def comment_of(statement: Node, said: str) -> str:
    """The author's comment above a statement, then ours."""
    theirs = [found.get("Text", "").strip() for found in statement.get("Comments") or [] if not found.get("Text", "").startswith("!")]
    return "\n".join([text for text in theirs if text] + ([said] if said else []))


def _text(state: State, node: Node, own: bool) -> str:
    above = [f"#{found.get('Text', '')}" for found in node.get("Comments") or [] if own and found["Pos"]["Offset"] < node["Pos"]["Offset"]]
    return "\n".join([*above, escaped(state.scope.script.whole(node))])


def _why(state: State, nodes: list[Node]) -> str:
    start, end = nodes[0]["Pos"]["Offset"], nodes[-1]["End"]["Offset"]
    why = next((why for (first, last), why in state.known.together.items() if first < end and start < last), "")
    return f"As it was in the script, in one piece: {why} reaches from its beginning to its end." if why else "As it was in the script."


def _flags(state: State, nodes: list[Node], settings: list[Setting], uses: frozenset[str]) -> list[str]:
    """A `run` step is strict; the script may not have been."""
    flags = state.scope.flags
    unknown = uses - _GIVEN - state.scope.taken.keys() - state.scope.constants.keys() - {"*cwd", "*env", "*exit", "*jobs", "*last", "*pid"}
    set_here = {one["Name"]["Value"] for node in nodes for one in assignments(node)}.union(*(one.sets for one in settings))
    unknown = frozenset(name for name in unknown - set_here if not name.endswith("()"))
    simple = len(nodes) == 1 and not any(one.always for one in settings) and not any(_compound(one) for one in walk(nodes[0]))
    off = ("" if "e" in flags or simple else "e") + ("" if "u" in flags or not unknown else "u")
    piped = "pipefail" not in flags and any(one.get("Type") == "BinaryCmd" and one.get("Op") == "|" for one in walk(nodes))
    return [" ".join(["set", *([f"+{off}"] if off else []), *(["+o pipefail"] if piped else [])])] if off or piped else []


def _compound(node: Node) -> bool:
    """Whether one command of it can fail and another still be executed."""
    return kind(node) in ("WhileClause", "ForClause", "IfClause", "CaseClause", "Block", "Subshell", "CmdSubst", "ProcSubst", "TimeClause")


def _may_be_false(node: Node) -> bool:
    """Whether the script may well go on behind a statement that is false: a test, `a && b`."""
    command = node.get("Cmd") or {}
    chained = kind(command) == "BinaryCmd" and command.get("Op") == "&&"
    return (
        chained
        or kind(command) in ("TestClause", "ArithmCmd", "LetClause")
        or words(node)[:1] in (["["], ["test"], ["grep"], ["pkill"], ["kill"])
    )


def _unset(state: State, nodes: list[Node], uses: frozenset[str]) -> None:
    """Names that nothing in the script sets."""
    if "*args" in uses:
        state.trap("argument", nodes[0], "$1")
    if any(one.text.startswith(("source ", ". ")) for one in state.scope.settings):
        return
    for name in sorted(uses - _GIVEN):
        if re.fullmatch(r"[A-Za-z_]\w*", name) and not state.scope.counts[name] and name not in state.scope.taken:
            at = next(node for node in nodes if name in state.facts(node).uses or node is nodes[-1])
            state.trap("secret" if state.is_secret(name) else "from-outside", at, name)


def _read_logs(state: State, statement: Node, source: str) -> None:
    """A log that the script itself reads has to be where it was."""
    for mark in state.at.logs:
        name = mark.strip("${}\"'")
        read = (
            name in state.facts(statement).uses if mark.startswith("$") else re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", source)
        )
        if read and mark not in state.known.logs:
            state.known.logs.add(mark)
            raise Again


def _known_traps(state: State, statement: Node, source: str) -> None:
    if kind(statement) == "WhileClause" and "break" not in source and "read " not in source:
        state.trap("endless-loop", statement)
    names = state.facts(statement).uses
    source += " ".join(state.value(value) for name, value in state.scope.constants.items() if name in names)
    edits = words(statement)[:1] in (["sed"], ["perl"]) and re.search(r"\s-\w*i\b|\s-i", source)
    if (edits or re.search(r"write_text|open\([^)]*['\"]w['\"]|\bpatch -p", source)) and any(end in source for end in _SOURCES):
        state.trap("lasting-edit", statement)
