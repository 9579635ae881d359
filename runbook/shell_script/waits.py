"""Loops that wait: for a server, for GPU memory; and sleeps."""

from __future__ import annotations

import re
from typing import Any

from runbook.shell_script.curl import asked, fails
from runbook.shell_script.state import SAYS_ITS_STATUS_ONLY, Made, State, Url
from runbook.shell_script.syntax import Node, calls, kind, literal, pipeline, saved_to, walk, words

PATIENCE = "45m"
_ONLY_WAITS = set(
    "curl wget nvidia-smi grep egrep fgrep sleep echo printf break exit return true false : [ test date seq jq head tail sort awk".split()
)
_ONLY_WAITS |= set("tr cut wc let timeout".split())
"""What a loop that does nothing but wait may call."""


def loop(state: State, statement: Node) -> list[Made] | None:
    """`wait_healthy` or `wait_gpu_free` for a loop that asks again and again, or None."""
    command = statement.get("Cmd") or {}
    if kind(command) not in ("WhileClause", "ForClause"):
        return None
    asks = [call for call in calls(command) if words(call)[0] in ("curl", "wget", "nvidia-smi", "nc")]
    others = {words(call)[0] for call in calls(command)} - _ONLY_WAITS
    others -= {"kill"} if all(words(call)[:2] == ["kill", "-0"] for call in calls(command) if words(call)[0] == "kill") else set()
    written = [one for part in walk(statement) for one in saved_to(part) if literal(one["Word"]) != "/dev/null"]
    if not asks or others or written or len(asks) > 1:
        return None
    bounded = _bound(state, command)
    if words(asks[0])[0] == "nvidia-smi":
        return _gpus(state, statement, bounded)
    request = asked(state, asks[0])
    if request is None or request.method not in ("get", "head") or request.headers or request.saved not in ((), ("/dev/null",)):
        return None
    if not bounded:
        state.trap("endless-loop", statement)
    return [Made({"id": state.fresh_id("up"), "wait_healthy": _healthy(state, command, asks[0], request.url, bounded or PATIENCE)})]


def _healthy(state: State, command: Node, ask: Node, url: Url, patience: str) -> dict[str, Any]:
    body: dict[str, Any] = state.to_server(url)
    if url.path != "/health":
        body["path"] = url.path
    if "url" in body:
        body["url"] += body.pop("path", url.path)
    expect: dict[str, Any] = {"status": 200}
    piped = next((one for one in walk(command) if kind(one) == "BinaryCmd" and one.get("Op") == "|" and "Cmd" not in one), None)
    grep = next((call for call in calls(piped) if words(call)[0] in ("grep", "egrep", "fgrep")), None) if piped else None
    shows_status = bool(re.search(r"http_code|\s-\w*[iI]\b|--head|--include", state.scope.script.source(ask)))
    if grep is not None and not shows_status:
        pattern = next((word for word in words(grep)[1:] if word and not word.startswith("-")), "")
        if url.path.rstrip("/") in ("/health", "/ping", "/health_generate") and state.engine in ("", *SAYS_ITS_STATUS_ONLY):
            who = SAYS_ITS_STATUS_ONLY.get(state.engine, "SGLang, as vLLM, TGI and TensorRT-LLM,")
            state.trap("empty-body", grep, pattern, url.path, who)
        elif pattern:
            expect["body"] = re.escape(pattern)
    elif grep is None and not shows_status and not fails(ask):
        early = "the loop ends before the server is ready; the playbook waits for 200"
        state.trap("status-ignored", ask, early, "where another status will do: `expect: {status: [200, 401]}`")
    return {**body, "timeout": patience, "expect": expect}


def _gpus(state: State, statement: Node, bounded: str) -> list[Made]:
    if not bounded:
        state.trap("endless-loop", statement)
    found = re.search(r"(?:-[gl][te]|[<>]=?)\s*\"?(\d{2,6})\b", state.scope.script.source(statement))
    below = f"{found[1]}MiB" if found else "1GiB"
    state.at.after_kill = False
    return [Made({"wait_gpu_free": {"below": below, "stable_for": "3s", "timeout": bounded or "5m"}})]


def _bound(state: State, command: Node) -> str:
    """How long a loop can take: so many times its sleep. Empty when nothing ends it."""
    text = state.scope.script.source(command)
    sleep = re.search(r"\bsleep (\d+(?:\.\d+)?)(m?)", text)
    pause = float(sleep[1]) * (60 if sleep and sleep[2] else 1) if sleep else 1.0
    count = re.search(r"\{1\.\.(\d+)\}|\bseq (?:1 )?(\d+)\b|;\s*\w+\s*<=?\s*(\d+)\s*;|-(?:ge|gt|eq|lt|le) (\d+)\b(?!.*nvidia)", text)
    within = re.search(r"\btimeout (\d+)([smh]?)\b", text)
    if within:
        return within[1] + (within[2] or "s")
    if count and (kind(command) == "ForClause" or "break" in text or "exit" in text or re.search(r"\+\+|\+ ?1", text)):
        return f"{max(1, round(pause * int(next(found for found in count.groups() if found))))}s"
    return ""


def sleep(state: State, statement: Node) -> list[Made] | None:
    """A fixed pause: what comes after it waits for a condition instead."""
    said = words(statement)
    if len(pipeline(statement)) != 1 or said[:1] != ["sleep"] or len(said) != 2 or not re.fullmatch(r"\d+(?:\.\d+)?[smh]?", said[1]):
        return None
    if state.scope.block or not (state.at.server or state.at.after_kill):
        return None
    state.at.slept = said[1]
    if state.at.after_kill and state.has_launch and not state.at.launched:
        state.trap("fixed-sleep", statement, said[1], "until the memory of every GPU is free, as long as that takes")
        state.at.after_kill = False
        free = {"below": "1GiB", "stable_for": "3s", "timeout": "3m", "when_missing": "skip"}
        return [Made({"wait_gpu_free": free}, "A driver gives memory back some time after the process is gone.")]
    state.trap("fixed-sleep", statement, said[1], "for the condition of the step that follows")
    return []
