"""What is known of a script while it is translated from top to bottom."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from runbook.model.diagnostic import Diagnostic
from runbook.shell_script.facts import Facts
from runbook.shell_script.scope import Scope, assignments
from runbook.shell_script.syntax import Node, filled, kind
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
_SECRET = re.compile(r"(?i)(?:^|_)(token|secret|password|passwd|api_?key|credentials?)$")
_VARIABLE = re.compile(r"\$\{\{ vars\.(\w+) \}\}")


class Made(NamedTuple):
    """A step of the playbook, the comment above it, and the place that it runs on: an ssh target, or nothing."""

    step: dict[str, Any]
    comment: str = ""
    host: str = ""


class Url(NamedTuple):
    """An address as `curl` takes it; the port may be an expression."""

    scheme: str
    host: str
    port: str
    path: str

    @property
    def is_local(self) -> bool:
        """Whether it is asked of the machine that the script runs on."""
        return self.host in LOCAL

    @property
    def origin(self) -> str:
        """All of it before the path."""
        return f"{self.scheme}://{self.host}" + (f":{self.port}" if self.port else "")


class Again(Exception):
    """The script has to be read anew: more is known of what belongs together."""


@dataclass
class Known:
    """What one reading of a script found out for the next one.

    `together` are the places, from byte to byte, that stay one script; `results` are where assignments begin that are steps of their own;
    `logs` the names of log files that the script itself reads; `owned` where jobs begin whose `$!` the script needs further below.
    """

    together: dict[tuple[int, int], str] = field(default_factory=dict)
    results: set[int] = field(default_factory=set)
    logs: set[str] = field(default_factory=set)
    owned: set[int] = field(default_factory=set)
    facts: dict[int, tuple[Node, Facts]] = field(default_factory=dict, repr=False)


@dataclass
class Place:
    """A machine: the servers of it that the script spoke of, by port, and what was done to it last."""

    ports: dict[str, str] = field(default_factory=dict)
    launched: list[str] = field(default_factory=list)
    server: str = ""
    log: str = ""
    log_is_fresh: bool = False
    logs: list[str] = field(default_factory=list)
    request: str = ""
    slept: str = ""
    after_kill: bool = False
    starts_itself: bool = False


@dataclass
class State:
    """`vars` are constants of the script with their values, `secrets` the names of which a step speaks."""

    scope: Scope
    program: str
    known: Known
    engine: str = ""
    has_launch: bool = False
    has_wait: bool = False
    host: str = ""
    places: dict[str, Place] = field(default_factory=dict)
    vars: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    steps: list[Made] = field(default_factory=list)
    traps: list[Diagnostic] = field(default_factory=list)

    @property
    def at(self) -> Place:
        """The machine that the lines are for."""
        return self.places.setdefault(self.host, Place())

    def trap(self, code: str, node: Node, *values: str) -> None:
        """Note a warning once per place."""
        found = trap(code, self.scope.script.span(node), *values)
        if found not in self.traps:
            self.traps.append(found)

    def facts(self, node: Node) -> Facts:
        """What a statement sets and uses; found out once, however often the script is read."""
        if id(node) not in self.known.facts:
            self.known.facts[id(node)] = (node, self.scope.facts(node))
        return self.known.facts[id(node)][1]

    def keep_together(self, start: int, end: int, why: str) -> None:
        """From here to there it stays one script. Raises Again."""
        for one, reason in list(self.known.together.items()):
            if one[0] < end and start < one[1]:
                start, end, why = min(start, one[0]), max(end, one[1]), reason
                del self.known.together[one]
        self.known.together[start, end] = why
        raise Again

    def take(self, name: str) -> bool:
        """Whether a name's value can be had as the result of a step. Raises Again when it is not yet one."""
        statement = self.scope.once.get(name)
        if statement is None or statement["Pos"]["Offset"] in self.known.results:
            return False
        if any(start <= statement["Pos"]["Offset"] < end for start, end in self.known.together):
            return False
        if "*last" in self.facts(statement).uses and not self._is_of_launch(statement):
            return False
        self.known.results.add(statement["Pos"]["Offset"])
        raise Again

    def _is_of_launch(self, statement: Node) -> bool:
        """Whether `$!` is the pid of a launch here: that of another job no other shell knows. Raises Again if it may become a launch."""
        above = [one for one in self.scope.script.statements if one["Pos"]["Offset"] < statement["Pos"]["Offset"]]
        job = next((one for one in reversed(above) if "*last" in self.facts(one).sets), None)
        if job is None or job["Pos"]["Offset"] in self.scope.launches:
            return job is not None
        if job.get("Background") and job["Pos"]["Offset"] not in self.known.owned:
            self.known.owned.add(job["Pos"]["Offset"])
            raise Again
        return False

    def fill(self, word: Node, *, one_word: bool = False, secrets: bool = False) -> str | None:
        """A word's text, with the script's names as expressions; None when the shell would expand something else.

        `one_word`: no blank splits it, as after `>`. Secrets are for headers and variables alone.
        """

        def said(name: str, quoted: bool) -> str | None:
            scope = self.scope
            if self.is_secret(name):
                return self.secret(name) if secrets else None
            if name in scope.constants:
                splits = not re.fullmatch(r"[^\s*?\[]+", self.value(scope.constants[name]))
                return None if splits and not (quoted or one_word) else f"${{{{ vars.{name} }}}}"
            if name not in scope.taken:
                self.take(name)
            whole = quoted or one_word or ".pid" in scope.taken.get(name, "") or (name in scope.once and _is_number(scope.once[name]))
            return scope.taken.get(name) if whole else None

        return filled(word, said)

    def is_secret(self, name: str) -> bool:
        """Whether the script has a secret under this name: a value of its own, or one of its caller's environment."""
        if not _SECRET.search(name) or name in self.scope.taken:
            return False
        return bool(re.fullmatch(r"\S{8,}", self.scope.constants.get(name, ""))) or not self.scope.counts[name]

    def secret(self, name: str) -> str:
        """The expression for a secret, which is declared from now on."""
        if name not in self.secrets:
            self.secrets.append(name)
        return f"${{{{ secrets.{name} }}}}"

    def value(self, text: str) -> str:
        """A text with the values of the script's constants in it."""
        for _ in range(9):
            text = _VARIABLE.sub(lambda found: self.vars.get(found[1], found[0]), text)
        return text

    def words(self, command: Node) -> list[str] | None:
        """All words of a command; None when one needs a shell."""
        found = [self.fill(word) for word in command.get("Args") or []]
        return None if any(word is None for word in found) else [str(word) for word in found]

    def path(self, text: str) -> str | None:
        """A file as seen from the login folder; None when only the shell knows in which folder it is."""
        if text.startswith(("/", "~")) or self.value(text).startswith("/"):
            return text
        return None if self.scope.moved else f"{self.scope.cwd}/{text}" if self.scope.cwd else text

    def fresh_id(self, wanted: str) -> str:
        """An id that no step has."""
        found = next(name for number in range(1, 999) if (name := wanted if number == 1 else f"{wanted}{number}") not in self.ids)
        self.ids.add(found)
        return found

    def url(self, text: str) -> Url | None:
        """`localhost:8000/health`, with or without a scheme; of the constants in it no more than the port stays an expression."""
        while (found := url_of(text)) is None and (name := _VARIABLE.search(text)):
            text = text.replace(name[0], self.vars.get(name[1], ""))
        return found

    def to_server(self, url: Url) -> dict[str, Any]:
        """How a step names the server behind an address: one that was launched, or is attached to, on that port; else by the address."""
        at, port = self.at, self.value(url.port or "80")
        if not url.is_local or url.scheme != "http":
            return {"url": url.origin}
        if port not in at.ports and port.isdigit() and (asked := self._launched_for(port)):
            at.ports = {name: one for name, one in at.ports.items() if one != asked} | {port: asked}
            body = next(made.step["launch"] for made in self.steps if made.step.get("id") == asked)
            body["port"] = number(url.port or "80")
        if port not in at.ports and (at.starts_itself or not port.isdigit()):
            return {"url": url.origin}
        if port not in at.ports:
            at.ports[port] = at.server = self.fresh_id("server")
            step = {"id": at.server, "attach": {"port": number(url.port or "80")}}
            self.steps.append(Made(step, "The script starts no server there: this is the one that is up. It stays as it is."))
        at.server = at.ports[port]
        return {"server": at.server}

    def _launched_for(self, port: str) -> str:
        """A server without a port in its options that is asked on this one: its command has the number, or there is no other server."""
        others = {one for name, one in self.at.ports.items() if name}
        unclear = {one: made.step["launch"] for made in self.steps if (one := made.step.get("id")) in set(self.at.launched) - others}
        named = [one for one, body in unclear.items() if re.search(rf"\b{port}\b", self.value(str(body["command"])))]
        return str(named[0]) if named else "" if others or len(unclear) != 1 else str(next(iter(unclear)))


def _is_number(statement: Node) -> bool:
    """Whether an assignment can give nothing but a number."""
    parts = (assignments(statement)[0].get("Value") or {}).get("Parts") or []
    return len(parts) == 1 and kind(parts[0]) == "ArithmExp"


def engine_of(text: str) -> str:
    """The profile that a command line speaks of, or nothing."""
    return next((profile for mark, profile in ENGINES.items() if mark in text), "")


def number(text: str) -> Any:
    """A port as a number where it is one."""
    return int(text) if text.isdigit() and str(int(text)) == text else text


def url_of(text: str) -> Url | None:
    """The parts of an address."""
    found = re.fullmatch(r"(?:(https?)://)?(\[::1\]|[\w.-]+)(?::(\d+|\$\{\{[^}]+\}\}))?(/[^\s]*)?", text)
    if found is None or not (found[3] or found[4] or "://" in text):
        return None
    return Url(found[1] or "http", found[2], found[3] or "", found[4] or "/")
