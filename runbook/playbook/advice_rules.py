"""The warnings, one function each: (code, dotted key that it is about, why it matters, what to do)."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from runbook.lang.regex import compiled
from runbook.model.playbook import StepNode
from runbook.model.profile import Health, Profile
from runbook.model.units import Duration, UnitError

Warnings = Iterator[tuple[str, str, str, str]]


class About(NamedTuple):
    """A step and what is known of it: its values, its time box as text, and the engine that it speaks of, with the launch if there is one.

    `was_healthy`: an earlier step waits until that server is healthy.
    """

    node: StepNode
    body: dict[str, Any]
    box: str
    launch: dict[str, Any] | None = None
    profile: Profile | None = None
    was_healthy: bool = False


def never_matches(about: About) -> Warnings:
    """A condition on a ready answer that the engine's health contract rules out."""
    profile, expect = about.profile, about.body.get("expect")
    if profile is None:
        return
    if not profile.health.path and about.node.type == "wait_healthy" and not about.body.get("path"):
        yield "no-health", "server", f"profile `{profile.profile}` knows no health path: this wait asks `/` of nobody", "give it `path:`"
        return
    if not _asks_health(about, profile.health):
        return
    contract, name = profile.health, profile.profile
    status = expect.get("status") if isinstance(expect, dict) else None
    wanted = {status} if isinstance(status, int) else set(status) if isinstance(status, list) else set()
    if wanted and contract.ready_status and not wanted & {*contract.ready_status, *contract.starting_status, *contract.unhealthy_status}:
        ready = " or ".join(map(str, contract.ready_status))
        yield (
            "never-matches",
            "expect.status",
            f"`{contract.path}` of {name} answers {ready} when it is ready: this can never match",
            (f"write `status: {contract.ready_status[0]}`"),
        )
    for key, text in _body_conditions(expect):
        why = _impossible_body(contract, key, text)
        if why:
            other = f", or ask another `path:`, as `{contract.alternatives[0]}`" if contract.alternatives else ""
            summary = f"`{contract.path}` of {name} {why}: this can never match, however ready it is"
            yield "never-matches", f"expect.{key}", summary, f"expect the status alone{other}"


def too_hasty(about: About) -> Warnings:
    """A check that gives up before the engine can have answered."""
    profile, text = about.profile, about.body.get("check_timeout")
    if profile is None or profile.health.min_latency is None or not _asks_health(about, profile.health):
        return
    seconds = _seconds(text)
    if seconds is not None and seconds <= profile.health.min_latency:
        least = f"`{profile.health.path}` of {profile.profile} takes at least {profile.health.min_latency} by design"
        yield (
            "too-hasty",
            "check_timeout",
            f"{least}: a check of {text} fails on every healthy answer",
            (f"leave it out: the profile's {profile.health.client_timeout} also sees the late answer of a broken server"),
        )


def short_box(about: About) -> Warnings:
    """A time box below the stall budget of a phase that every start has: it ends before a doubt can arise."""
    seconds = _seconds(about.box)
    if about.profile is None or about.launch is None or seconds is None or about.was_healthy:
        return
    if about.body.get("stall_after", "auto") != "auto":
        return
    over = [phase for phase in about.profile.phases if not phase.optional and phase.stall > seconds and phase.id != "serving"]
    if over:
        names = ", ".join(f"{phase.id} ({phase.stall})" for phase in over[:3])
        summary = f"this wait ends after {about.box}, while {about.profile.profile} may be silent for longer in one phase: {names}"
        enough = max(phase.stall for phase in over)
        yield "short-box", "~timeout", summary, f"write `timeout: {enough}` or more; a load that is ended too early begins again"


def lying_mark(about: About) -> Warnings:
    """A wait for a line that the engine prints before it is ready."""
    body = about.body
    if about.profile is None or about.was_healthy or "log" not in body or body.get("expect") == "absent":
        return
    pattern, _ = compiled(str(body.get("pattern", "")))
    yield from _lies(about.profile, pattern, "pattern")


def lying_shell(about: About) -> Warnings:
    """The same in a script, and a word that is looked for in an answer without a body."""
    script = about.body.get("shell")
    if about.profile is None or about.was_healthy or not isinstance(script, str):
        return
    for found in GREP.finditer(script):
        pattern, _ = compiled(found["single"] or found["double"])
        yield from _lies(about.profile, pattern, "shell")
    contract = about.profile.health
    for found in CURL_GREP.finditer(script):
        if contract.body == "empty" and _path_of(found["url"]) == contract.path and not SHOWS_STATUS.search(found["curl"]):
            why = f"`{contract.path}` of {about.profile.profile} answers with an empty body: no `grep` finds anything in it"
            yield "never-matches", "shell", why, "use a `wait_healthy` step, or look at the status: `curl -fsS -o /dev/null URL`"
            return


def graph_replay(about: About) -> Warnings:
    """A probe in a forward that CUDA graphs may swallow."""
    profile, body, launch = about.profile, about.body, about.launch
    if profile is None or launch is None or not profile.graphs.code or not body.get("probes"):
        return
    place = "module" if body.get("module") else "file"
    if not re.search(profile.graphs.code, str(body.get(place, ""))):
        return
    words = _words(launch.get("command"))
    if words is None or any(word.split("=")[0] in profile.graphs.eager for word in words):
        return
    flag = profile.graphs.eager[0] if profile.graphs.eager else "eager execution"
    summary = f"{profile.profile} replays decode, newer versions prefill too, from CUDA graphs: no Python runs, this probe may never fire"
    yield "graph-replay", place, summary, f"add `{flag}` to the launch command for this run"


def leaves_workers(about: About) -> Warnings:
    """A kill of the parent alone, where workers live on with the GPU memory."""
    if about.profile is None or about.body.get("tree") is not False or "step" not in about.body or not about.profile.processes.outlive_main:
        return
    summary = f"workers of {about.profile.profile} outlive their main process and keep their GPU memory"
    yield "leaves-workers", "tree", summary, "leave out `tree: false`"


RULES: dict[str, tuple[Callable[[About], Warnings], ...]] = {
    "wait_healthy": (never_matches, too_hasty, short_box),
    "request": (never_matches,),
    "grep": (lying_mark,),
    "run": (lying_shell,),
    "patch": (graph_replay,),
    "kill": (leaves_workers,),
}

GREP = re.compile(r"""\bgrep\b(?:\s+-[-\w=]+)*\s+(?:'(?P<single>[^'\n]+)'|"(?P<double>[^"\n]+)")""")
CURL_GREP = re.compile(r"""(?P<curl>\bcurl\b[^|;&\n]*?(?P<url>https?://[^\s'"|;&]+|\S*:\d+/[^\s'"|;&]+)[^|;&\n]*)\|\s*[efz]?grep\b""")
SHOWS_STATUS = re.compile(r"\s(?:-\w*[iIvwD]\w*|--write-out|--include|--head|--verbose|--dump-header)\b")
"""Options of curl whose output has more than the body."""


def _asks_health(about: About, contract: Health) -> bool:
    if about.node.type == "request":
        return about.body.get("get") == contract.path and "server" in about.body
    return "server" in about.body and about.body.get("path", contract.path) == contract.path


def _body_conditions(expect: Any) -> list[tuple[str, Any]]:
    if not isinstance(expect, dict):
        return []
    return [(key, expect[key]) for key in ("body", "text", "json") if expect.get(key) is not None and "${{" not in str(expect[key])]


def _impossible_body(contract: Health, key: str, wanted: Any) -> str:
    """Why a ready answer cannot have such a body; empty when it can."""
    if contract.body == "empty":
        if key != "json" and _finds(wanted, ""):
            return ""
        return "answers with an empty body when it is ready"
    if contract.json is None:
        return ""
    forms = [json.dumps(contract.json, separators=separators) for separators in ((",", ":"), (", ", ": "))]
    differs = not _within(wanted, contract.json) if key == "json" else not any(_finds(wanted, form) for form in forms)
    return f"answers `{forms[0]}` when it is ready" if differs else ""


def _finds(pattern: Any, text: str) -> bool:
    found, _ = compiled(str(pattern))
    return found is None or found.search(text) is not None


def _within(part: Any, whole: Any) -> bool:
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and _within(value, whole[key]) for key, value in part.items())
    return bool(part == whole)


def _lies(profile: Profile, pattern: re.Pattern[str] | None, key: str) -> Warnings:
    if pattern is None or pattern.search(""):
        return
    for one in profile.not_ready:
        if pattern.search(one.line):
            better = f"use a `wait_healthy` step, or wait for `{profile.ready}`" if profile.ready else "use a `wait_healthy` step"
            yield "lying-mark", key, f"{profile.profile} prints `{_middle(one.line)}` before it is ready: {one.why}", better
            return


def _middle(line: str) -> str:
    return re.sub(r"^(?:\[[^\]]*\]|INFO:?|\S+ \d\d-\d\d [\d:]+ \[[^\]]*\])\s*", "", line)[:60].strip()


def _path_of(url: str) -> str:
    return "/" + url.split("://")[-1].partition("/")[2].split("?")[0]


def _seconds(text: Any) -> float | None:
    try:
        return float(Duration.parse(text))
    except UnitError:
        return None


def _words(command: Any) -> list[str] | None:
    """The words of a launch command; None while a part of it is not known."""
    if isinstance(command, list):
        return None if any("${{" in str(word) for word in command) else [str(word) for word in command]
    if not isinstance(command, str) or "${{" in command:
        return None
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()
