"""What is known of a script while it is translated from top to bottom."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from runbook.model.diagnostic import Diagnostic
from runbook.shell_script.syntax import Node, Script, filled, literal, walk
from runbook.shell_script.traps import trap

LOCAL = ("localhost", "127.0.0.1", "0.0.0.0", "[::1]")
ENGINES = {
    "lab_engine": "lab",
    "sglang": "sglang",
    "launch_server": "sglang",
    "vllm": "vllm",
    "trtllm": "trtllm",
    "text-generation": "tgi",
    "llama-server": "llamacpp",
    "torchrun": "torchrun",
    "transformers serve": "transformers",
}
SAYS_ITS_STATUS_ONLY = {"lab": "the lab's engine", "sglang": "SGLang", "vllm": "vLLM", "tgi": "TGI", "trtllm": "TensorRT-LLM"}
"""Engines whose healthy answer has an empty body, as their profiles say."""


class Made(NamedTuple):
    """A step of the playbook and the comment above it."""

    step: dict[str, Any]
    comment: str = ""


class Url(NamedTuple):
    """An address as `curl` takes it; the port may be an expression."""

    host: str
    port: str
    path: str

    @property
    def is_local(self) -> bool:
        """Whether it is asked of the machine that the script runs on."""
        return self.host in LOCAL


@dataclass
class State:
    """`vars` are the script's constants, `shell` the text of what sets other names; `used` the constants that the playbook speaks of."""

    script: Script
    program: str
    engine: str = ""
    port: str = ""
    has_launch: bool = False
    host: str = ""
    vars: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    shell: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    cwd: str = ""
    prelude: list[str] = field(default_factory=list)
    server: str = ""
    launched: bool = False
    log: str = ""
    log_is_fresh: bool = False
    request: str = ""
    slept: str = ""
    after_kill: bool = False
    steps: list[Made] = field(default_factory=list)
    traps: list[Diagnostic] = field(default_factory=list)

    def trap(self, code: str, node: Node, *values: str) -> None:
        """Note a warning once per place."""
        found = trap(code, self.script.span(node), *values)
        if found not in self.traps:
            self.traps.append(found)

    def fill(self, word: Node) -> str | None:
        """A word's text, with the script's constants as expressions; None when the shell would expand something else."""
        names = {name: f"${{{{ vars.{name} }}}}" for name in self.vars}
        text = filled(word, names)
        if text is not None:
            self.used.update(name for name in self.vars if names[name] in text)
        return text

    def words(self, command: Node) -> list[str] | None:
        """All words of a command; None when one needs a shell."""
        found = [self.fill(word) for word in command.get("Args") or []]
        return None if any(word is None for word in found) else [str(word) for word in found]

    def named(self, node: Node) -> set[str]:
        """Names that a part of the script expands."""
        return {found["Param"]["Value"] for found in walk(node) if found.get("Type") == "ParamExp" and "Param" in found}

    def fresh_id(self, wanted: str) -> str:
        """An id that no step has."""
        taken = {made.step.get("id") for made in self.steps}
        return next(name for number in range(1, 999) if (name := wanted if number == 1 else f"{wanted}{number}") not in taken)

    def to_server(self, url: Url) -> dict[str, Any]:
        """How a step names the server behind an address; one that the script did not start is attached to."""
        if not url.is_local:
            return {"url": f"http://{url.host}" + (f":{url.port}" if url.port else "")}
        if not self.server:
            self.server = self.fresh_id("server")
            step = {"id": self.server, "attach": {"port": number(url.port or "80")}}
            self.steps.append(Made(step, "The script starts no server: this is the one that is up. It stays as it is."))
        return {"server": self.server}


def engine_of(text: str) -> str:
    """The profile that a command line speaks of, or nothing."""
    return next((profile for mark, profile in ENGINES.items() if mark in text), "")


def number(text: str) -> Any:
    """A port as a number where it is one."""
    return int(text) if text.isdigit() else text


def url_of(text: str) -> Url | None:
    """`localhost:8000/health`, with or without a scheme."""
    found = re.fullmatch(r"(?:https?://)?(\[::1\]|[\w.-]+)(?::(\d+|\$\{\{[^}]+\}\}))?(/[^\s]*)?", text)
    if found is None or not (found[2] or found[3] or "://" in text):
        return None
    return Url(found[1], found[2] or "", found[3] or "/")


def constant(word: Node | None) -> str | None:
    """The value of an assignment, when it is the same for every run."""
    return "" if word is None else literal(word)
