"""Commands that end processes: pkill, killall, kill, fuser -k, and pipes into `xargs kill`."""

from __future__ import annotations

import re
from typing import Any

from runbook.shell_script.state import Made, State, engine_of, number
from runbook.shell_script.syntax import Node, calls, words

_WIDE = re.compile(r"(?:/\S*/)?(?:\.\*)?python[\d.]*(?:\.\*)?")
_HARD = {"-9", "-KILL", "-SIGKILL", "--signal=9", "--signal=KILL", "-s9", "-sKILL"}
_KILLERS = ("pkill", "killall", "kill", "fuser")
_FINDERS = ("pgrep", "ps", "lsof", "grep", "awk", "cut", "tr", "xargs", "nvidia-smi", "sort", "uniq")


def kill(state: State, statement: Node) -> list[Made] | None:
    """A `kill` step for a command that ends processes, or None."""
    found = [call for call in calls(statement) if killer(call)]
    if not found or not all(killer(call) or (words(call)[0] or "?") in _FINDERS for call in calls(statement)):
        return None
    match = _match(state, statement, found[0])
    if match is None:
        return None
    if _HARD & {word for call in calls(statement) for word in words(call)} or re.search(r"\bkill -9", state.script.source(statement)):
        state.trap("hard-kill", found[0])
    state.after_kill = True
    if state.launched and ("step" in match or match in ({"profile": state.engine}, {"port": number(state.port or "0")})):
        return []  # `always` does it, whatever happened before
    return [Made({"kill": match if "step" in match or "pid" in match else {"match": match}}, "")]


def killer(call: Node) -> str:
    """The word that kills, of `pkill x` or `xargs kill`."""
    said = [word.rpartition("/")[2] for word in words(call)]
    if not said:
        return ""
    said = said[1:] if said[0] == "sudo" else said
    if said[0] == "xargs":
        said = [word for word in said[1:] if not word.startswith("-")]
    if not said or said[0] not in _KILLERS:
        return ""
    return "" if said[0] == "fuser" and not any(word.startswith("-") and "k" in word for word in said) else said[0]


def _match(state: State, statement: Node, call: Node) -> dict[str, Any] | None:
    text = state.script.source(statement)
    port = re.search(r"(?:-t?i ?(?:tcp)?:|\b)(\d{2,5}|\$\{?\w+\}?)/?(?:tcp)?\b", text)
    if "lsof" in text or "fuser" in text:
        return {"port": number(_value(state, port[1]))} if port else None
    if "nvidia-smi" in text:
        return {"gpu": "any"}
    pattern = _pattern(statement, call)
    if pattern is None:
        return _by_pid(state, call)
    if "grep" in text and "pgrep" not in text and "pkill" not in text:
        state.trap("text-kill", statement)
    if _WIDE.fullmatch(pattern):
        match: dict[str, Any] = {"profile": state.engine} if state.engine else {"gpu": "any"}
        state.trap("wide-kill", call, state.script.source(call), "is this engine's" if state.engine else "holds a GPU")
        return match
    engine = engine_of(pattern)
    if engine:
        return {"profile": engine}
    exact = killer(call) in ("pkill", "killall") and not any("f" in word for word in words(call) if re.fullmatch(r"-[a-z]+", word))
    return {"title": pattern} if exact else {"cmdline": pattern}


def _pattern(statement: Node, call: Node) -> str | None:
    """What is looked for: the last word of pkill, killall and pgrep, or of the first grep of a pipe from ps."""
    if killer(call) in ("pkill", "killall"):
        return _last(call)
    for other in calls(statement):
        if words(other)[0] in ("pgrep", "grep") and "-v" not in words(other):
            pattern = _last(other)
            return re.sub(r"\[(.)\]", r"\1", pattern) if pattern else None
    return None


def _last(call: Node) -> str | None:
    plain = [word for word in words(call)[1:] if word and not word.startswith("-")]
    return plain[-1] if plain else None


def _by_pid(state: State, call: Node) -> dict[str, Any] | None:
    last = words(call)[-1]
    if last.isdigit() and int(last) > 1:
        return {"pid": int(last)}
    return {"step": state.server} if state.launched and last == "" else None


def _value(state: State, text: str) -> str:
    name = text.strip("${}")
    if name in state.vars:
        state.used.add(name)
        return f"${{{{ vars.{name} }}}}"
    return text
