"""A script, top to bottom, as steps. What no rule knows stays what it is: shell text in a `run` step."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from runbook.model.diagnostic import Diagnostic
from runbook.shell_script.curl import request
from runbook.shell_script.kills import kill
from runbook.shell_script.launches import command_of, launch, port_of
from runbook.shell_script.logs import grep, tail
from runbook.shell_script.state import Made, State, constant, engine_of
from runbook.shell_script.syntax import Node, inner, kind, literal, parse, walk, words
from runbook.shell_script.waits import loop, sleep

Rule = Callable[[State, Node], "list[Made] | None"]
RULES: tuple[Rule, ...] = (kill, loop, sleep, launch, request, grep, tail)
_NOTHING = ("wait", "true", ":", "exit", "set", "disown")
_LEAVES = (["exit"], ["return"], ["break"], ["continue"])
"""`x && exit 1` asks the opposite of `x`: it stays what it is."""
_SOURCES = (".py", ".json", ".yaml", ".toml", ".cfg")


class Translated(NamedTuple):
    """The steps, what they need, and the traps of the script, in its order."""

    host: str
    vars: dict[str, Any]
    steps: list[Made]
    always: list[Made]
    traps: list[Diagnostic]


def translate(text: str, file: str, program: str) -> Translated | Diagnostic:
    """A script's steps; a Diagnostic when it is no shell. `program` is the parser."""
    script = parse(text, file, program)
    if isinstance(script, Diagnostic):
        return script
    state = State(script, program)
    _look_ahead(state)
    for statement in script.statements:
        _statement(state, statement)
    always = [Made({"kill": {"step": state.server}})] if state.launched else []
    found = sorted(state.traps, key=lambda one: (one.span.line, one.span.column) if one.span else (0, 0))
    used = {name: int(value) if value.isdigit() else value for name, value in state.vars.items() if name in state.used}
    return Translated(state.host, used, state.steps, always, found)


def _look_ahead(state: State) -> None:
    """What the whole script says about its engine: rules above the launch need it."""
    state.engine = engine_of(state.script.text)
    for statement in walk(state.script.statements):
        if "Cmd" in statement and command_of(statement) is not None:
            state.has_launch = True
            state.engine = engine_of(state.script.source(statement)) or state.engine
            state.port = port_of(state.script.source(statement)) or state.port


def _statement(state: State, statement: Node) -> None:
    command = statement.get("Cmd") or {}
    operator = command.get("Op") if kind(command) == "BinaryCmd" else ""
    if (operator == "&&" and words(command["Y"])[:1] not in _LEAVES) or (kind(command) == "Block" and not statement.get("Background")):
        first, *others = (command["X"], command["Y"]) if operator else command["Stmts"]
        for one in (_with_comments(first, statement), *others):
            _statement(state, one)
    elif operator == "||" and words(command["Y"])[:1] in (["true"], [":"]):
        _forgiven(state, statement, _with_comments(command["X"], statement))
    elif not _ssh(state, statement) and not _setting(state, statement):
        _step(state, statement)


def _with_comments(part: Node, whole: Node) -> Node:
    return {**part, "Comments": [*(whole.get("Comments") or []), *(part.get("Comments") or [])]}


def _forgiven(state: State, whole: Node, statement: Node) -> None:
    """`x || true`: a kill that finds nothing passes anyway; any other step goes on after `failed` alone."""
    before = len(state.steps)
    _statement(state, statement)
    new = state.steps[before:]
    plain = all("kill" in made.step for made in new)
    state.trap(
        "swallowed-failure",
        whole,
        "a kill that finds nothing passes" if plain else "the step goes on after `failed`, and after nothing else",
    )
    if new and not plain:
        state.steps[-1] = new[-1]._replace(step={**_front(new[-1].step), "ignore_errors": True, **_back(new[-1].step)})


def _front(step: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in step.items() if key == "id"}


def _back(step: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in step.items() if key != "id"}


def _step(state: State, statement: Node) -> None:
    for rule in () if statement.get("Negated") else RULES:
        made = rule(state, statement)
        if made is not None:
            state.steps += [one._replace(comment=_comment(statement, one.comment)) for one in made]
            return
    state.steps.append(_as_it_is(state, statement))


def _comment(statement: Node, said: str) -> str:
    """The author's comment above a statement, then ours."""
    theirs = [found["Text"].strip() for found in statement.get("Comments") or [] if not found["Text"].startswith("!")]
    return "\n".join([text for text in theirs if text] + ([said] if said else []))


def _ssh(state: State, statement: Node) -> bool:
    """`ssh box '…'`: its script, on that box."""
    said = words(statement)
    if said[:1] != ["ssh"] or statement.get("Background"):
        return False
    arguments = statement["Cmd"]["Args"][1:]
    port, at = "", 0
    while at < len(arguments) and (literal(arguments[at]) or "").startswith("-"):
        option = literal(arguments[at]) or ""
        port = literal(arguments[at + 1]) or "" if option == "-p" and at + 1 < len(arguments) else port
        at += 2 if option in ("-p", "-i", "-o", "-l", "-F", "-J") else 1
    target = literal(arguments[at]) if at < len(arguments) else None
    scripts = [inner(state.script, arguments[at + 1], state.program)] if len(arguments) == at + 2 else []
    scripts += [inner(state.script, one["Hdoc"], state.program) for one in statement.get("Redirs") or [] if one.get("Hdoc")]
    host = f"{target}:{port}" if port else target
    if not host or len(scripts) != 1 or scripts[0] is None or state.host not in ("", host):
        return False
    state.host = host
    outer, state.script = state.script, scripts[0]
    for one in state.script.statements:
        _statement(state, one)
    state.script = outer
    return True


def _setting(state: State, statement: Node) -> bool:
    """What changes the shell for the lines below: constants, exports, the folder, an environment."""
    command = statement.get("Cmd") or {}
    said = words(statement)
    if kind(command) == "DeclClause" or (kind(command) == "CallExpr" and not command.get("Args")):
        _assign(state, statement, command)
    elif kind(command) == "FuncDecl":
        state.shell[command["Name"]["Value"]] = state.script.source(statement)
    elif said[:1] == ["cd"] and len(said) == 2 and (folder := state.fill(command["Args"][1])):
        state.cwd = folder if folder.startswith(("/", "${{")) or not state.cwd else f"{state.cwd}/{folder}"
    elif said[:1] in (["source"], ["."], ["conda"], ["module"]) or (said[:1] == ["eval"] and "conda" in state.script.source(statement)):
        state.prelude.append(state.script.source(statement))
    else:
        return bool(said) and said[0] in _NOTHING
    return True


def _assign(state: State, statement: Node, command: Node) -> None:
    exported = kind(command) == "DeclClause"
    for one in command.get("Args" if exported else "Assigns") or []:
        name = (one.get("Name") or {}).get("Value", "")
        value = constant(one.get("Value"))
        if not name:
            continue
        if value is None:
            state.shell[name] = state.script.source(statement)
        elif exported:
            state.env[name] = value
            state.vars.setdefault(name, value)
        else:
            state.vars[name] = value


def _as_it_is(state: State, statement: Node) -> Made:
    """Shell text in a `run` step, with the settings above it that it needs."""
    source = state.script.source(statement)
    _known_traps(state, statement, source)
    names = state.named(statement) | {words(statement)[0] if words(statement) else ""}
    needed = [state.shell[name] for name in state.shell if name in names]
    env = {name: f"${{{{ vars.{name} }}}}" for name in state.vars if name in names}
    state.used.update(env)
    body: dict[str, Any] = {"shell": "\n".join([*state.prelude, *needed, source]).replace("${{", "$${{")}
    env = {**{name: value for name, value in state.env.items() if name not in env}, **env}
    for key, value in (("cwd", state.cwd), ("env", env)):
        if value:
            body[key] = value
    return Made({"run": body if len(body) > 1 else body["shell"]}, _comment(statement, "As it was in the script."))


def _known_traps(state: State, statement: Node, source: str) -> None:
    if kind(statement) == "WhileClause" and "break" not in source and "read " not in source:
        state.trap("endless-loop", statement)
    edits = words(statement)[:1] in (["sed"], ["perl"]) and re.search(r"\s-\w*i\b|\s-i", source)
    if (edits or re.search(r"write_text|open\([^)]*['\"]w['\"]|\bpatch -p", source)) and any(end in source for end in _SOURCES):
        state.trap("lasting-edit", statement)
