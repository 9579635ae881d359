"""Is the server that is ready the one that was launched? It is asked once, on a path without side effects."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from runbook.diagnose.check import subset
from runbook.hosts.base import HostError
from runbook.lang.expressions import Unknown
from runbook.model.verdict import Diagnosis, Evidence
from runbook.steps.base import Launched, StepContext

ASK_S = 15.0
MODEL_KEYS = ("model_path", "model", "model_id")


def identify(ctx: StepContext, launched: Launched | None, base: str, wanted: dict[str, Any]) -> tuple[Any, Diagnosis | None]:
    """(what the server says about itself, or unknown; a diagnosis when it is not the one that was launched)."""
    if launched is None:
        return Unknown("a bare url has no profile to ask by"), None
    info = _ask(ctx, launched, base)
    if isinstance(info, Unknown):
        return info, _unseen(info.reason) if wanted else None
    difference = subset(wanted, info)
    if difference is not None:
        return info, _mismatch(f"it was expected to run otherwise: {difference}")
    for name, asked, told in _launched_as(launched, info):
        if not _same(asked, told):
            return info, _mismatch(f"it was launched with {name} `{asked}` and says {name} `{told}`")
    return info, None


def _ask(ctx: StepContext, launched: Launched, base: str) -> Any:
    why = f"profile {launched.profile.profile} names no identity path"
    for identity in launched.profile.health.identity:
        try:
            answer = ctx.host.http.request("GET", base + identity.path, timeout_s=ASK_S, cancel=ctx.cancel)
        except HostError as problem:
            return Unknown(f"{identity.path} could not be asked: {problem.summary}")
        if answer.outcome == "answer" and answer.status == 200:
            try:
                found = json.loads(answer.body)
            except (ValueError, RecursionError):
                found = None
            if isinstance(found, dict):
                return found
        said = f"answered {answer.status} without a JSON mapping" if answer.outcome == "answer" else f"gave no answer: {answer.outcome}"
        why = f"{identity.path} {said}"
    return Unknown(why)


def _launched_as(launched: Launched, info: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(name, as launched, as told) of the port and of the model, where both are known."""
    words = _words(launched.state.argv)
    found = []
    for key in MODEL_KEYS:
        asked = _flag(words, "--" + key.replace("_", "-"))
        told = next((info[one] for one in MODEL_KEYS if isinstance(info.get(one), str)), None)
        if asked is not None and told is not None:
            found.append(("model", asked, told))
    if launched.port is not None and isinstance(info.get("port"), int):
        found.append(("port", str(launched.port), str(info["port"])))
    return found


def _same(asked: str, told: str) -> bool:
    """A model may be told by its resolved path, and one from a hub by its place in the cache."""
    short, long = sorted((asked.rstrip("/").removeprefix("./"), told.rstrip("/").removeprefix("./")), key=len)
    return short == long or long.endswith("/" + short) or f"models--{short.replace('/', '--')}/" in long


def _words(argv: Sequence[str]) -> list[str]:
    """The words of a command line, also of one that a shell reads."""
    if len(argv) >= 3 and argv[-2].startswith("-") and argv[-2].endswith("c"):
        try:
            return shlex.split(argv[-1])
        except ValueError:
            return argv[-1].split()
    return list(argv)


def _flag(words: Sequence[str], flag: str) -> str | None:
    for index, word in enumerate(words):
        if word.startswith(flag + "="):
            return word[len(flag) + 1 :]
        if word == flag and index + 1 < len(words):
            return words[index + 1]
    return None


def _mismatch(what: str) -> Diagnosis:
    return Diagnosis(
        verdict="invalid_experiment",
        rule="server_identity",
        confidence="proven",
        reason=f"the server is ready, but {what}",
        evidence=(Evidence(signal="server_info", value=what, points_to="invalid_experiment"),),
        next=("compare the launch command with `steps.<id>.server_info`", "see whether another server took the port"),
    )


def _unseen(why: str) -> Diagnosis:
    return Diagnosis(
        verdict="undecided",
        rule="server_identity",
        reason=f"the server is ready, but `expect.info` could not be checked: {why}",
        blind=(f"server_info: {why}",),
        next=("ask it by hand, with credentials if it wants them",),
    )
