"""Commands that end processes: pkill, killall, kill, fuser -k, and pipes into `xargs kill`."""

from __future__ import annotations

import re
from typing import Any

from runbook.shell_script.state import Made, State, engine_of
from runbook.shell_script.syntax import Node, calls, literal, pipeline, saved_to, words

_WIDE = re.compile(r"(?:/\S*/)?(?:\.\*)?python[\d.]*(?:\.\*)?")
_HARD = {"-9", "-KILL", "-SIGKILL", "--signal=9", "--signal=KILL", "-s9", "-sKILL"}
_ENDS = re.compile(
    r"-(?:s ?)?(?:SIG)?(?:TERM|KILL|INT|QUIT|HUP|9|15|2|3|1)|--signal=(?:9|15|KILL|TERM|INT)|-[fexriwqtvk]+|-ef|-TERM|aux|axu|-[eA]f?|--"
)
"""Options that leave the meaning: processes found by this text, or on this port, are to end."""
_KILLERS = ("pkill", "killall", "kill", "fuser")
_FINDERS = ("pgrep", "ps", "lsof", "grep", "awk", "xargs", "nvidia-smi", "sort", "uniq")


def kill(state: State, statement: Node) -> list[Made] | None:
    """A `kill` step for a command that ends processes, or None."""
    found = [call for call in calls(statement) if killer(call)]
    if not found or not all(killer(call) or (words(call)[0] or "?") in _FINDERS for call in calls(statement)):
        return None
    if statement.get("Background") or saved_to(*(one for one in pipeline(statement) if not _to_nowhere(one))):
        return None
    match = _match(state, statement, found[0])
    if match is None:
        return None
    if _HARD & {word for call in calls(statement) for word in words(call)} or re.search(r"\bkill -9", state.scope.script.source(statement)):
        state.trap("hard-kill", found[0])
    if any("sudo" in words(call) for call in calls(statement)):
        state.trap("as-root", found[0])
    state.at.after_kill = True
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
    text = state.scope.script.source(statement)
    if "lsof" in text or "fuser" in text:
        port = re.search(r"\blsof (?:-\w+ )*-t?i ?(?:tcp)?:(\d+|\$\{?\w+\}?)(?![\w,:-])|\bfuser (?:-\w+ )*(\d+|\$\{?\w+\}?)/tcp\b", text)
        only_one = len(re.findall(r"\w+/tcp|-t?i ?(?:tcp)?:", text)) == 1
        return {"port": value} if port and only_one and (value := _value(state, port[1] or port[2])) is not None else None
    if "nvidia-smi" in text:
        return {"gpu": "any"} if not re.search(r"\s(-i|--id|-g)\b|grep|awk", text) else None
    if not _plainly(statement):
        return None
    pattern = _pattern(statement, call)
    if pattern is None:
        return _by_pid(state, statement, call)
    if _WIDE.fullmatch(pattern):
        match: dict[str, Any] = {"profile": state.engine} if state.engine else {"gpu": "any"}
        state.trap("wide-kill", call, state.scope.script.source(call), "is this engine's" if state.engine else "holds a GPU")
        return match
    exact = killer(call) in ("pkill", "killall") and not any("f" in word for word in words(call) if re.fullmatch(r"-[a-z]+", word))
    engine = engine_of(pattern) if re.fullmatch(r"[\w.:/-]+", pattern) else ""
    if engine:
        more = f"`kill: {{match: {{cmdline: '{pattern}'}}}}` ends every interpreter and server that has it"
        state.trap("text-kill", statement, "name" if exact else "command line", f"servers of the profile `{engine}` and their ranks", more)
        return {"profile": engine}
    if exact:
        return {"title": pattern}
    state.trap("text-kill", statement, "command line", "interpreters and servers with it", "what else shall go is a `run` step")
    return {"cmdline": pattern}


def _pattern(statement: Node, call: Node) -> str | None:
    """What is looked for: the last word of pkill, killall and pgrep, or of the first grep of a pipe from ps."""
    if killer(call) in ("pkill", "killall"):
        return _last(call)
    for other in calls(statement):
        if words(other)[0] in ("pgrep", "grep") and "-v" not in words(other):
            pattern = _last(other)
            return re.sub(r"\[(.)\]", r"\1", pattern) if pattern else None
    return None


def _plainly(statement: Node) -> bool:
    """Whether it says nothing of users, parents or ages, prints a column, and searches for one text besides `grep -v grep`."""
    searches = 0
    for call in calls(statement):
        head, said = words(call)[0], words(call)[1:]
        if head == "awk":
            if len(said) != 1 or not re.fullmatch(r"\{\s*print\s+\$\d\s*;?\s*\}", said[0]):
                return False
        elif head == "grep" and "-v" in said:
            if said != ["-v", "grep"]:
                return False
        else:
            searches += head == "grep"
            if any(word.startswith("-") and not _ENDS.fullmatch(word) and head != "ps" for word in said if word):
                return False
    return searches < 2


def _to_nowhere(one: Node) -> bool:
    return all(literal(found["Word"]) == "/dev/null" for found in one.get("Redirs") or [])


def _last(call: Node) -> str | None:
    said = words(call)
    plain = [word for word in said[2 if said[0] == "sudo" else 1 :] if not word.startswith("-")]
    return plain[0] if len(plain) == 1 and plain[0] else None


def _by_pid(state: State, statement: Node, call: Node) -> dict[str, Any] | None:
    """`kill 4711`, `kill $PID` of what the script started."""
    said = [word for word in call.get("Args") or [] if not (literal(word) or "").startswith("-")]
    if len(said) != 2 or len(list(calls(statement))) != 1 or killer(call) != "kill":
        return None
    last = literal(said[1])
    if last is not None:
        return {"pid": int(last)} if last.isdigit() and int(last) > 1 else None
    found = re.fullmatch(r"\$\{\{ steps\.(\w+)\.pid \}\}", state.fill(said[1], one_word=True) or "")
    by_last = state.facts(said[1]).uses == {"*last"} and state.scope.last
    return {"step": found[1] if found else state.scope.last} if found or by_last else None


def _value(state: State, text: str) -> Any:
    """A port in a text; None when it is none that is known."""
    name = text.strip("${}")
    if text.isdigit():
        return int(text)
    return f"${{{{ vars.{name} }}}}" if name in state.scope.constants else None
