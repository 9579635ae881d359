"""Servers that a script starts: nohup, setsid, `&`."""

from __future__ import annotations

import re
from typing import Any

from runbook.shell_script.state import Made, State, engine_of
from runbook.shell_script.syntax import Node, kind, pipeline, saved_to, words

_BEFORE = ("nohup", "setsid", "env", "exec", "time", "sudo")
_NO_SERVER = ("sleep", "tail", "watch", "wait", "curl", "nvidia-smi", "grep", "rm", "kill", "echo")


def command_of(statement: Node) -> Node | None:
    """The call that a statement leaves running in the background, if it does; of `(x) &` and `x | tee log &` the x."""
    command = statement.get("Cmd") or {}
    heads = words(pipeline(statement)[0])[:1]
    detached = bool(statement.get("Background")) or heads in (["nohup"], ["setsid"])
    if kind(command) in ("Subshell", "Block") and len(command.get("Stmts") or []) == 1:
        inner = command["Stmts"][0]
        return command_of({**inner, "Background": detached or inner.get("Background")})
    first = pipeline(statement)[0]
    if not detached or kind(first) != "CallExpr" or not words(first) or _program(words(first)) in _NO_SERVER:
        return None
    return first


def _program(said: list[str]) -> str:
    return next((word for word in said if word not in _BEFORE and not word.startswith("-") and "=" not in word), "")


def port_of(text: str) -> str:
    """The port that a command line names."""
    found = re.search(r"--port[ =]+(\d+|\$\{?\w+\}?)", text)
    return found[1] if found else ""


def launch(state: State, statement: Node) -> list[Made] | None:
    """A `launch` step for a command that is left running, or None."""
    first = command_of(statement)
    if first is None:
        return None
    text = state.script.source(statement)
    body: dict[str, Any] = {"command": _command(state, first)}
    env = {**state.env, **_assigned(state, first)}
    for key, value in (("cwd", state.cwd), ("env", env), ("prelude", "\n".join(state.prelude)), ("profile", engine_of(text))):
        if value:
            body[key] = value
    _log(state, statement, first)
    state.server, state.launched = state.fresh_id("server"), True
    port = port_of(text)
    state.port = port if port.isdigit() else state.port
    was = f" The script wrote to {state.log}." if state.log else ""
    return [Made({"id": state.server, "launch": body}, f"Its log is a file of this run.{was} `at_end: keep` would leave it running.")]


def _command(state: State, first: Node) -> list[str] | str:
    found = state.words(first["Cmd"])
    if found is None:
        return state.script.source(first["Cmd"]).removeprefix("nohup ").replace("${{", "$${{")
    while found and (found[0] in _BEFORE or re.fullmatch(r"[A-Za-z_]\w*=.*", found[0])):
        found = found[1:]
    return found


def _assigned(state: State, first: Node) -> dict[str, Any]:
    """Variables in front of the command, and those that `env` is given."""
    given = {one["Name"]["Value"]: state.fill(one["Value"]) if one.get("Value") else "" for one in first["Cmd"].get("Assigns") or []}
    said = state.words(first["Cmd"]) or []
    for word in said:
        if word not in _BEFORE and not re.fullmatch(r"[A-Za-z_]\w*=.*", word):
            break
        name, equals, value = word.partition("=")
        given |= {name: value} if equals else {}
    return {name: str(value) for name, value in given.items() if value is not None}


def _log(state: State, statement: Node, first: Node) -> None:
    files = saved_to(statement, first)
    tee = next((one for one in pipeline(statement)[1:] if words(one)[:1] == ["tee"]), None)
    if tee is not None:
        state.trap("tee-pipe", tee)
        state.log = next((word for word in words(tee)[1:] if not word.startswith("-")), "")
    elif files:
        state.log = state.fill(files[0]["Word"]) or ""
        state.log_is_fresh = files[0]["Op"] in (">", "&>", ">|")
    elif words(first)[:1] == ["nohup"]:
        state.trap("lost-output", first)
        state.log = "nohup.out"
