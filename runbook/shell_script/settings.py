"""Lines that change the shell for the lines below: assignments, exports, the folder, functions, an environment."""

from __future__ import annotations

import re
from itertools import pairwise

from runbook.shell_script import kept
from runbook.shell_script.facts import facts
from runbook.shell_script.scope import Setting, assignments, plain, repeatable
from runbook.shell_script.state import State
from runbook.shell_script.syntax import Node, calls, kind, literal, saved_to, walk, words

_SAID_AGAIN = ("source", ".", "conda", "module", "ulimit", "umask", "shopt", "alias", "unset", "unalias", "export", "deactivate")
_ON_FOLDER = re.compile(r"PWD|`|\$\(|(?:^|\s)(?:source|\.) [^/$~\s]")
"""Text that means another thing in another folder."""
_ON_FILES = re.compile(r"-[a-gkprstuwxhLNOSG]")
_CHOICES = ("CaseClause", "IfClause", "BinaryCmd", "CallExpr", "DeclClause", "TestClause", "ArithmCmd", "Block")
_NOTHING = ("true", ":", "disown")
_SHELL_FLAGS = {"e": "e", "errexit": "e", "u": "u", "nounset": "u", "pipefail": "pipefail"}


def setting(state: State, statement: Node) -> bool:
    """Take a setting over; False for another statement."""
    command, said = statement.get("Cmd") or {}, words(statement)
    if statement.get("Background") or statement.get("Negated") or saved_to(statement) or not command:
        return False
    if kind(command) == "FuncDecl":
        _say_again(state, statement)
    elif kind(command) == "DeclClause" or (kind(command) == "CallExpr" and not command.get("Args")):
        return _assign(state, statement)
    elif said[:1] == ["set"] and len(said) > 1 and all(said):
        _flags(state, statement, said[1:])
    elif said[:1] == ["cd"] and len(said) == 2:
        _move(state, statement, command["Args"][1])
    elif said[:1] == [":"] and len(said) == 2 and (found := _default(state, statement, command["Args"][1])) is not None:
        _constant(state, statement, *found)
    elif (said[:1] == ["eval"] and "conda" in state.scope.script.source(statement)) or (said and said[0] in _SAID_AGAIN):
        _say_again(state, statement, always=True)
    else:
        if _chooses(state, statement):
            _say_again(state, statement, always="*env" in state.facts(statement).sets)
            return True
        return bool(said) and said[0] in _NOTHING and not state.facts(statement).sets and not state.scope.block
    return True


def _chooses(state: State, statement: Node) -> bool:
    """Whether a `case`, an `if` or a chain does nothing but compare values and set others: that may be done again."""
    inside = list(walk(statement))
    if kind(statement) not in ("CaseClause", "IfClause", "BinaryCmd") or not state.facts(statement).sets:
        return False
    if any(kind(one) not in _CHOICES for one in inside if "Cmd" in one) or any(
        one.get("Redirs") or one.get("Background") for one in inside
    ):
        return False
    if not all(words(call)[0] in (*_SAID_AGAIN, "[", "test", "true", ":") for call in calls(statement)):
        return False
    asked = {
        literal(one.get("X") or {}) for one in inside if one.get("Type") == "UnaryTest" and one.get("Op") not in ("-z", "-n", "!", "-v")
    }
    asked |= {
        word
        for call in calls(statement)
        for flag, word in pairwise(words(call))
        if words(call)[0] in ("[", "test") and _ON_FILES.fullmatch(flag)
    }
    taken = {words(call)[1] for call in calls(statement) if words(call)[0] in ("source", ".") and len(words(call)) > 1}
    return repeatable(statement) and (not asked or (asked == taken and not any(assignments(one) for one in inside if "Cmd" in one)))


def _say_again(state: State, statement: Node, *, always: bool = False) -> None:
    found = facts(statement, {})
    text, scope = state.scope.script.source(statement), state.scope
    if kind(statement) == "FuncDecl":
        body = facts(statement["Cmd"]["Body"], {})
        found = found._replace(uses=body.uses - {"*args"})
    scope.settings.append(Setting(kept.escaped(text), found.sets, found.uses, always))
    if kind(statement) in ("CallExpr", "DeclClause", "FuncDecl"):
        for name in found.sets:
            scope.lost.pop(name, None)
    if scope.block:
        scope.block.append(statement)


def _flags(state: State, statement: Node, said: list[str]) -> None:
    """`set -euo pipefail`; what only shows more is left out, what else there is is said again."""
    rest = " ".join(said)
    for sign, letters, name in re.findall(r"([-+])([a-zA-Z]*?)(?:o +(\w+))?(?=\s|$)", rest):
        for flag in [*letters, name]:
            if flag in _SHELL_FLAGS:
                (state.scope.flags.add if sign == "-" else state.scope.flags.discard)(_SHELL_FLAGS[flag])
    if re.sub(r"[-+][euxov]+|pipefail|errexit|nounset|xtrace|\s", "", rest):
        _say_again(state, statement, always=True)
    elif state.scope.block:
        state.scope.block.append(statement)


def _move(state: State, statement: Node, folder: Node) -> None:
    """`cd`: the `cwd` of what follows, as long as no other line depends on the order."""
    scope = state.scope
    bound = scope.moved or any(one.always and _ON_FOLDER.search(one.text) for one in scope.settings)
    text = None if bound else state.fill(folder, one_word=True)
    if "*args" in state.facts(statement).uses:
        state.trap("own-folder", statement)
    if scope.block:
        scope.block.append(statement)
    if text is None:
        found = facts(statement, {})
        scope.settings.append(Setting(kept.escaped(scope.script.source(statement)), found.sets, found.uses, always=True))
        scope.moved = True
    else:
        scope.cwd = text if text.startswith("/") or state.value(text).startswith("/") or not scope.cwd else f"{scope.cwd}/{text}"


def _assign(state: State, statement: Node) -> bool:
    command, scope, found = statement["Cmd"], state.scope, assignments(statement)
    names = [one["Name"]["Value"] for one in (command.get("Args") or []) if one.get("Name") and one.get("Naked")]
    exported = kind(command) == "DeclClause" and command["Variant"]["Value"] == "export"
    if exported and not found:
        for name in names:
            state.take(name)
    if exported and names and not found and all(name in scope.constants or name in scope.taken for name in names):
        for name in names:
            scope.exports[name] = f"${{{{ vars.{name} }}}}" if name in scope.constants else scope.taken[name]
        if scope.block:
            scope.block.append(statement)
        return True
    if (
        len(found) == 1
        and not names
        and plain(found[0])
        and (kind(command) == "CallExpr" or exported or command["Variant"]["Value"] == "readonly")
    ):
        name = found[0]["Name"]["Value"]
        value = _literal(state, statement, found[0]) if scope.counts[name] == 1 else None
        if value is not None and state.vars.get(name, value) == value and name not in ("IFS", "PATH"):
            _constant(state, statement, name, value)
            if exported and not state.is_secret(name):
                scope.exports[name] = value
            return True
        if statement["Pos"]["Offset"] in state.known.results:
            _result(state, statement, name, exported)
            return True
        if state.facts(statement).uses == {"*last"} and scope.last and not scope.block:
            scope.taken[name] = f"${{{{ steps.{scope.last}.pid }}}}"
            scope.settings.append(Setting(f"{name}={scope.taken[name]}", frozenset({name}), frozenset()))
            return True
    if found and repeatable(command):
        _say_again(state, statement, always=exported)
        return True
    return False


def _literal(state: State, statement: Node, assignment: Node) -> str | None:
    """A value that is known: a constant, one of other constants, the default of `${X:-default}`."""
    word = assignment.get("Value")
    if word is None:
        return ""
    found = _default(state, statement, word)
    if found is not None:
        return found[1]
    used = state.facts(assignment).uses
    if not all(name in state.scope.constants and not state.is_secret(name) for name in used):
        return None
    return state.fill(word, one_word=True)


def _default(state: State, statement: Node, word: Node) -> tuple[str, str] | None:
    """Name and default of `${NAME:-default}`, where nothing of the script sets the name before."""
    parts = word.get("Parts") or []
    parts = parts[0].get("Parts") or [] if len(parts) == 1 and kind(parts[0]) == "DblQuoted" else parts
    expansion = (parts[0].get("Exp") or {}) if len(parts) == 1 and kind(parts[0]) == "ParamExp" else {}
    if expansion.get("Op") not in (":-", "-", ":=", "="):
        return None
    name, value = parts[0]["Param"]["Value"], literal(expansion.get("Word") or {})
    if value is None or name in state.scope.constants or name in state.scope.taken:
        return None
    if name.isdigit():
        state.trap("argument", statement, f"${{{name}}}")
    elif state.scope.counts[name] == 1:
        state.trap("default-value", statement, name)
    else:
        return None
    return name, value


def _constant(state: State, statement: Node, name: str, value: str) -> None:
    scope = state.scope
    scope.constants[name] = value
    if state.is_secret(name):
        state.trap("secret", statement, name)
        scope.exports[name] = state.secret(name)
    else:
        state.vars[name] = value
        scope.settings.append(Setting(f"{name}=${{{{ vars.{name} }}}}", frozenset({name}), frozenset()))
    if scope.block:
        scope.block.append(statement)


def _result(state: State, statement: Node, name: str, exported: bool) -> None:
    """A value that a command gives, as a step: the steps below read it."""
    kept.close(state)
    step = state.fresh_id(re.sub(r"[^a-z0-9_]", "_", name.lower()).strip("_") or "value")
    scope = state.scope
    scope.block, scope.opened = [statement], (len(scope.settings), scope.cwd)
    made = kept.script(state, f'printf %s "${name}"')
    state.steps.append(made._replace(step={"id": step, **made.step}, comment=f"What `${name}` is in the steps below.", host=state.host))
    scope.taken[name] = f"${{{{ steps.{step}.stdout }}}}"
    scope.settings.append(Setting(f"{name}={scope.taken[name]}", frozenset({name}), frozenset()))
    if exported:
        scope.exports[name] = scope.taken[name]
