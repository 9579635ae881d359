"""Servers that a script starts: nohup, setsid, `&`."""

from __future__ import annotations

import re
import shlex
from typing import Any

from runbook.shell_script import kept
from runbook.shell_script.state import Made, State, engine_of, number
from runbook.shell_script.syntax import Node, kind, pipeline, saved_to, words

_BEFORE = ("nohup", "setsid", "env", "exec")
_NO_SERVER = ("sleep", "tail", "watch", "wait", "curl", "nvidia-smi", "grep", "rm", "kill", "echo", "sudo", "ssh", "docker", "srun")
_PORT = re.compile(r"--port[ =]+(\d+|\$\{\{[^}]+\}\}|\$\{?\w+\}?)")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def command_of(statement: Node) -> Node | None:
    """The call that a statement leaves running in the background, if it does; of `(x) &` and `x | tee log &` the x."""
    command, pipe = statement.get("Cmd") or {}, pipeline(statement)
    detached = bool(statement.get("Background")) or words(pipe[0])[:1] in (["nohup"], ["setsid"])
    if kind(command) in ("Subshell", "Block") and len(command.get("Stmts") or []) == 1:
        return command_of({**command["Stmts"][0], "Background": detached or command["Stmts"][0].get("Background")})
    if not detached or kind(pipe[0]) != "CallExpr" or any(words(one)[:1] != ["tee"] for one in pipe[1:]) or len(pipe) > 2:
        return None
    return None if not words(pipe[0]) or _program(words(pipe[0])) in _NO_SERVER else pipe[0]


def _program(said: list[str]) -> str:
    return next((word for word in said if word not in _BEFORE and not word.startswith("-") and "=" not in word), "")


def launch(state: State, statement: Node) -> list[Made] | None:
    """A `launch` step for a server that is left running, or None; a job that the script waits for is none."""
    first, scope = command_of(statement), state.scope
    if first is None or (words(first)[:1] == ["env"] and words(first)[1:2] and words(first)[1].startswith("-")):
        return None
    engine, port = engine_of(scope.script.source(statement)), _port(state, scope.script.source(first))
    detached = bool({"nohup", "setsid"} & set(words(first)))
    owned = statement["Pos"]["Offset"] in state.known.owned
    if (engine in ("", "torchrun") and not port) and (state.has_wait or not (detached or engine or owned)):
        return None
    names = state.facts(statement).uses
    if "*args" in names or any(state.is_secret(name) and name not in scope.exports for name in names):
        return None
    log = _log(state, statement, first)
    if log is None:
        return None
    kept.close(state)  # what it needs of the lines above is then known
    command = _command(state, first)
    env = {**scope.exports, **_assigned(state, first)}
    needed = kept.replayed(state, frozenset() if isinstance(command, list) else names, len(scope.settings), statement)
    body: dict[str, Any] = {"command": command}
    for key, value in (("cwd", scope.cwd), ("env", env), ("prelude", "\n".join(needed)), ("profile", engine), ("log", log)):
        if value:
            body[key] = value
    if port and isinstance(command, str):
        body["port"] = number(port)
    server = state.fresh_id("server")
    state.at.server, state.at.request, scope.last = server, "", server
    state.at.launched.append(server)
    state.at.ports[state.value(port)] = server
    scope.lost.pop("*last", None)
    scope.launches.add(statement["Pos"]["Offset"])
    scope.began = statement["Pos"]["Offset"] if scope.began is None else scope.began
    was = f" The script wrote to {state.at.log}." if state.at.log and not log else ""
    said = f"Its log is a file of this run.{was} " if not log else ""
    anew = [Made(_emptied(scope.cwd, log), "The script begins this log anew.")] if log and state.at.log_is_fresh else []
    return [*anew, Made({"id": server, "launch": body}, f"{said}`at_end: keep` would leave it running.")]


def _port(state: State, text: str) -> str:
    """The port that a command line names, as a number or an expression; empty when there is none or only the shell knows it."""
    found = _PORT.search(text)
    if not found or found[1].isdigit():
        return found[1] if found else ""
    name = found[1].strip("${}")
    if name not in state.scope.constants and name not in state.scope.taken:
        state.take(name)
    return f"${{{{ vars.{name} }}}}" if name in state.scope.constants else state.scope.taken.get(name, "")


def _command(state: State, first: Node) -> list[str] | str:
    """The command as a list; as text where a word needs a shell."""
    arguments = first["Cmd"]["Args"]
    at = next(at for at, word in enumerate(words(first)) if word not in _BEFORE and not _ASSIGNMENT.fullmatch(word))
    found = [state.fill(word) for word in arguments[at:]]
    if all(word is not None for word in found):
        return [str(word) for word in found]
    end = {"Pos": arguments[at]["Pos"], "End": arguments[-1]["End"]}
    return kept.escaped(state.scope.script.source(end))


def _assigned(state: State, first: Node) -> dict[str, Any]:
    """Variables in front of the command, and those that `env` is given."""
    command = first["Cmd"]
    given = {
        one["Name"]["Value"]: state.fill(one["Value"], one_word=True) if one.get("Value") else "" for one in command.get("Assigns") or []
    }
    for word in command["Args"]:
        text = state.fill(word, one_word=True) or ""
        found = _ASSIGNMENT.fullmatch(text)
        if text not in _BEFORE and not found:
            break
        given |= {found[1]: found[2]} if found else {}
    return {name: str(value) for name, value in given.items() if value is not None}


def _log(state: State, statement: Node, first: Node) -> str | None:
    """The log that it writes, where the script itself reads it; empty when the run's own will do; None when only the shell knows."""
    at, pipe = state.at, pipeline(statement)
    files = [one["Word"] for one in saved_to(statement, first)]
    if len(pipe) > 1:
        state.trap("tee-pipe", pipe[1])
        files = [word for word in pipe[1]["Cmd"]["Args"][1:] if not state.scope.script.source(word).startswith("-")]
    elif not files and words(first)[:1] == ["nohup"]:
        state.trap("lost-output", first)
    unsaid = ["nohup.out"] if words(first)[:1] == ["nohup"] else []
    marks = [state.scope.script.source(word) for word in files] or unsaid
    at.logs += [mark for mark in marks if mark != "/dev/null"]
    read = bool(state.known.logs & set(marks))
    paths = [state.fill(word, one_word=True) if read else _as_far_as_known(state, word) for word in files] or unsaid
    if read and any(path is None or state.path(path) is None for path in paths):
        return None
    at.log = (paths or [""])[0] or ""
    redirections = saved_to(statement, first)
    at.log_is_fresh = any(one["Op"] in (">", "&>", ">|") for one in redirections) or (len(pipe) > 1 and "-a" not in words(pipe[1]))
    if not read:
        return ""
    return paths[0] if len(set(paths)) == 1 else None


def _as_far_as_known(state: State, word: Node) -> str:
    """A file's name as far as it is known without a step more."""
    known = state.facts(word).uses <= state.scope.constants.keys() | state.scope.taken.keys()
    return (state.fill(word, one_word=True) if known else None) or state.scope.script.source(word).strip('"')


def _emptied(cwd: str, log: str) -> dict[str, Any]:
    text = f": > {log if '${{' in log else shlex.quote(log)}"
    return {"run": {"shell": text, "cwd": cwd} if cwd else text}
