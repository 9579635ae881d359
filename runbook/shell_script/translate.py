"""A script, top to bottom, as steps. What no rule knows stays what it is: shell text in a `run` step.

A reading that finds two places that belong together, as a loop and the line that uses what it counted, begins again with that in mind.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from runbook.model.diagnostic import Diagnostic, Span
from runbook.shell_script import kept
from runbook.shell_script.curl import request
from runbook.shell_script.facts import ALWAYS
from runbook.shell_script.handlers import ends_what_runs, handled, is_trap
from runbook.shell_script.kills import kill
from runbook.shell_script.launches import command_of, launch
from runbook.shell_script.logs import grep, tail
from runbook.shell_script.places import placed, spoken_of
from runbook.shell_script.scope import Scope
from runbook.shell_script.settings import setting
from runbook.shell_script.ssh import remote
from runbook.shell_script.state import Again, Known, Made, State, engine_of
from runbook.shell_script.syntax import Node, calls, kind, parse, walk, words
from runbook.shell_script.traps import trap
from runbook.shell_script.waits import loop, sleep

Rule = Callable[[State, Node], "list[Made] | None"]
RULES: tuple[Rule, ...] = (kill, loop, sleep, launch, request, grep, tail)
READINGS = 40
"""After so many a script is so entangled that it stays one."""
_LEAVES = ("exit", "return", "break", "continue")
"""`x && exit 1` asks the opposite of `x`: it stays what it is."""
_OTHER_LANGUAGE = re.compile(r"#!.*\b(python|perl|ruby|node|fish|csh|tcsh|awk|php)")


class Translated(NamedTuple):
    """The steps, what they need, and the traps of the script, in its order. `hosts` are roles with their targets; an empty one is open."""

    hosts: dict[str, str]
    vars: dict[str, Any]
    secrets: list[str]
    steps: list[Made]
    always: list[Made]
    traps: list[Diagnostic]


def translate(text: str, file: str, program: str) -> Translated | Diagnostic:
    """A script's steps; a Diagnostic when it is no shell. `program` is the parser."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n")
    crlf, text = lines != text.removeprefix("\ufeff"), lines
    other = _OTHER_LANGUAGE.match(text)
    if other or "\0" in text:
        why = f"its first line names {other[1]}" if other else "it has bytes of no text"
        span = Span(file, 1, 1, len(text.split("\n")[0]))
        return Diagnostic(code="shell-syntax", summary=f"this is no shell script: {why}", span=span, hint="name a script of sh or bash")
    script = parse(text, file, program)
    if isinstance(script, Diagnostic):
        return script
    known, readings = Known(), 0
    while True:
        before, readings = repr(known), readings + 1
        try:
            found = _read(State(Scope(script), program, known))
        except Again:
            if repr(known) == before or readings > READINGS:  # nothing smaller than the whole will do
                known.together = {(0, len(text.encode())): "what its lines have in common"}
            continue
        return found._replace(traps=[trap("crlf", Span(file, 1, 1, 1)), *found.traps]) if crlf else found


def _read(state: State) -> Translated:
    """One reading. Raises Again."""
    _look_ahead(state)
    _statements(state, state.scope.script.statements)
    always = [made for node in state.scope.handlers for made in _handler(state, node)]
    for host, place in state.places.items():
        kills = [Made({"kill": {"step": one}}, "", host) for one in place.launched]
        always += [one for one in kills if one.step not in [made.step for made in always]]
    _say_what_stays(state)
    traps = sorted(state.traps, key=lambda one: (one.span.line, one.span.column) if one.span else (0, 0))
    steps, always, hosts = placed(state, state.steps, always)
    return Translated(hosts, spoken_of(state, [*steps, *always]), state.secrets, steps, always, traps)


def _look_ahead(state: State) -> None:
    """What the whole script says about its engine: rules above the launch need it."""
    state.engine = engine_of(state.scope.script.text)
    state.has_wait = any(words(call)[0] == "wait" for call in calls(state.scope.script.statements))
    for statement in walk(state.scope.script.statements):
        if "Cmd" in statement and command_of(statement) is not None:
            state.has_launch = True
            state.engine = engine_of(state.scope.script.source(statement)) or state.engine


def _statements(state: State, statements: list[Node]) -> None:
    for at, one in enumerate(statements):
        before = statements[at - 1] if at else None
        if words(one)[:1] == ["exit"] and not one.get("Negated"):
            if words(one)[1:] not in ([], ["0"], ["$?"], [""]):
                kept.keep(state, one)
            break
        if before is not None and "?" in _first_uses(state, one) and not _is_together(state, one):
            state.keep_together(before["Pos"]["Offset"], one["End"]["Offset"], "`$?`")
        _statement(state, one)
    kept.close(state)


def _first_uses(state: State, statement: Node) -> frozenset[str]:
    """Names in what a statement executes first, which alone sees how the one before it ended."""
    first = next((one for one in walk(statement) if one.get("Type") in ("CallExpr", "DeclClause", "TestClause", "ArithmCmd", "Word")), None)
    return state.facts(first).uses if first else frozenset()


def _is_together(state: State, statement: Node) -> bool:
    start, end = statement["Pos"]["Offset"], statement["End"]["Offset"]
    inside = words(statement)[:1] == ["ssh"]
    return any(first < end and start < last and not (inside and start < first and last <= end) for first, last in state.known.together)


def _statement(state: State, statement: Node) -> None:
    _bring_all(state, statement)
    if _is_together(state, statement):
        if "*jobs" in state.facts(statement).uses and state.scope.began is not None and not _has_jobs(state):
            state.keep_together(state.scope.began, statement["End"]["Offset"], "a background job")
        kept.keep(state, statement)
        return
    command = statement.get("Cmd") or {}
    operator = command.get("Op") if kind(command) == "BinaryCmd" else ""
    if operator == "&&" and _may_part(state, command):
        for one in (_with_comments(command["X"], statement), command["Y"]):
            _statement(state, one)
    elif kind(command) == "Block" and not statement.get("Background") and not statement.get("Redirs") and not statement.get("Negated"):
        for one in command["Stmts"]:
            _statement(state, one)
    elif operator == "||" and _stops(command["Y"]) and words(command["X"])[:1] == ["cd"] and setting(state, command["X"]):
        return
    elif operator == "||" and words(command["Y"])[:1] in (["true"], [":"]):
        _forgiven(state, statement, _with_comments(command["X"], statement))
    elif "*jobs" in state.facts(statement).uses and state.scope.began is not None and not _has_jobs(state):
        _waits(state, statement)
    elif not _handles_signals(state, statement) and not _ssh(state, statement) and not setting(state, statement):
        _step(state, statement)


def _bring_all(state: State, statement: Node) -> None:
    for name in sorted((state.facts(statement).uses | ALWAYS) & state.scope.lost.keys()):
        _bring(state, name, statement)


def _bring(state: State, name: str, statement: Node) -> None:
    """What a closed script has changed and a line needs: as a result, or both in one script. Raises Again where it is to be brought."""
    start = state.scope.lost[name]
    taken = next((known for known, node in state.scope.once.items() if node["Pos"]["Offset"] == start), name)
    if (name == "*last" and state.scope.last) or state.take(taken):
        return
    state.keep_together(start, statement["End"]["Offset"], _shown(name))


def _shown(name: str) -> str:
    """What is meant by a name that a line needs."""
    names = {
        "*cwd": "the folder",
        "*env": "what it sets for the commands below",
        "*exit": "the end that it may come to",
        "*jobs": "a background job",
        "*last": "`$!`",
    }
    return names.get(name, f"`${name}`")


def _has_jobs(state: State) -> bool:
    return any("*jobs" in state.facts(one).sets for one in state.scope.block)


def _waits(state: State, statement: Node) -> None:
    """`wait` for a server that the playbook launched: left out, unless how it ended is asked. Raises Again then."""
    if words(statement)[:1] == ["disown"]:
        return
    if words(statement)[:1] != ["wait"]:
        state.keep_together(state.scope.began or 0, statement["End"]["Offset"], "a background job")
    if not any(made.step.get("kill") == {"step": state.at.server} for made in state.steps):
        state.trap("not-waited", statement)


def _may_part(state: State, command: Node) -> bool:
    """Whether `a && b` is one step after the other: a failing step ends the run, so `a` must be no test."""
    first, second = command["X"], command["Y"]
    if words(second)[:1] and words(second)[0] in _LEAVES:
        return False
    inner = first.get("Cmd") or {}
    if kind(inner) == "BinaryCmd" and inner.get("Op") == "&&":
        return _may_part(state, inner) and _may_part(state, {"X": inner["Y"], "Y": second})
    heads = ("cd", "source", ".", "export", "conda", "module", "sleep", "nohup", "pkill", "killall", "curl", "set", "ulimit", "ssh")
    return kind(inner) == "DeclClause" or not inner.get("Args", [1]) or (words(first) or ["?"])[0] in heads


def _stops(statement: Node) -> bool:
    """Whether it does no more than say something and leave: `exit 1`, `{ echo no; exit 1; }`."""
    heads = [words(call)[0] for call in calls(statement)]
    return bool(heads) and heads[-1] in ("exit", "return") and set(heads) <= {"echo", "printf", "exit", "return"}


def _with_comments(part: Node, whole: Node) -> Node:
    return {**part, "Comments": [*(whole.get("Comments") or []), *(part.get("Comments") or [])]}


def _forgiven(state: State, whole: Node, statement: Node) -> None:
    """`x || true`: a kill that finds nothing passes anyway; any other step goes on after `failed` alone."""
    made = _made(state, statement)
    if made is None:
        kept.keep(state, whole)
        return
    plain = all("kill" in one.step for one in made)
    state.trap(
        "swallowed-failure",
        whole,
        "a kill that finds nothing passes" if plain else "the step goes on after `failed`, and after nothing else",
    )
    if made and not plain:
        step = made[-1].step
        made[-1] = made[-1]._replace(step={**{key: step[key] for key in step if key == "id"}, "ignore_errors": True, **step})
    state.steps += made


def _step(state: State, statement: Node) -> None:
    made = _made(state, statement)
    if made is None:
        kept.keep(state, statement)
    else:
        state.steps += made


def _made(state: State, statement: Node) -> list[Made] | None:
    """Steps of the first rule that knows the statement; the script that was open is closed before them. None when no rule does."""
    before = len(state.steps)
    for rule in () if statement.get("Negated") else RULES:
        made = rule(state, statement)
        if made is not None:
            attached = state.steps[before:]
            del state.steps[before:]
            kept.close(state)
            _bring_all(state, statement)
            names = {name for name in state.facts(statement).sets if name[0] != "*"}
            state.scope.lost |= dict.fromkeys(names, statement["Pos"]["Offset"])
            return [one._replace(comment=kept.comment_of(statement, one.comment), host=state.host) for one in [*attached, *made]]
    return None


def _handles_signals(state: State, statement: Node) -> bool:
    """`trap '…' EXIT`: it is done at the end, whatever happened."""
    if not is_trap(statement) or state.host:
        return False
    text, ends = handled(state, statement)
    told = next((one for one in state.scope.handlers if handled(state, one)[1] & ends), None)
    if told is not None:  # another one for the same end
        state.keep_together(told["Pos"]["Offset"], _end_of(state), "`trap`")
    if text in ("", "-"):
        return True
    if text is None or not {"EXIT", "INT", "TERM", "0"} & ends or "ERR" in ends:
        return False
    state.scope.handlers.append(statement)
    return True


def _handler(state: State, statement: Node) -> list[Made]:
    """The steps of `trap '…' EXIT`, at the end; servers that the playbook launched are ended there anyway."""
    found = parse(" " * statement["Pos"]["Offset"] + (handled(state, statement)[0] or ""), "", state.program)
    if isinstance(found, Diagnostic):
        state.keep_together(statement["Pos"]["Offset"], _end_of(state), "`trap`")
    assert not isinstance(found, Diagnostic)
    uses = frozenset[str]().union(*(state.facts(one).uses for one in found.statements))
    for name in sorted(uses & state.scope.lost.keys()):
        if not state.take(name):
            state.keep_together(min(state.scope.lost[name], statement["Pos"]["Offset"]), _end_of(state), _shown(name))
    outer, state.scope.script, before = state.scope.script, found, len(state.steps)
    for one in found.statements:
        if not (state.at.launched and ends_what_runs(found.source(one))):
            _step(state, one)
    kept.close(state)
    made, state.scope.script = state.steps[before:], outer
    del state.steps[before:]
    return made


def _end_of(state: State) -> int:
    return len(state.scope.script.text.encode())


def _ssh(state: State, statement: Node) -> bool:
    found = remote(state, statement)
    if found is None:
        return False
    kept.close(state)
    _bring_all(state, statement)
    outer, here = state.scope, state.host
    state.scope, state.host = Scope(found.script, last=""), found.host
    _statements(state, found.script.statements)
    state.scope, state.host = outer, here
    return True


def _say_what_stays(state: State) -> None:
    """A server that the script leaves running is stopped by the playbook."""
    ended = {made.step["kill"].get("step") for made in state.steps if "kill" in made.step}
    left = [one for place in state.places.values() for one in place.launched if one not in ended]
    started = [one for one in walk(state.scope.script.statements) if "Cmd" in one and command_of(one) is not None]
    if left and not state.scope.handlers:
        state.trap("stops-at-the-end", (started or state.scope.script.statements)[0], left[0])
