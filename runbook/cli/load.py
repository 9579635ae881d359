"""From a command line to a checked playbook: file, overrides, roles, secrets. All problems at once; nothing is contacted."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runbook.cli import secrets, sources
from runbook.engine.redact import SHORTEST, looks_secret, too_short
from runbook.engine.runtime import walk
from runbook.lang.expressions import Parsed, find_expressions, parse
from runbook.model.diagnostic import Diagnostic, Severity, Span
from runbook.model.playbook import BlockNode, IncludeNode, Node, Playbook
from runbook.playbook.overrides import apply_overrides, read_overrides


class Loaded(NamedTuple):
    """A playbook ready to run, or diagnostics with errors."""

    playbook: Playbook | None
    overrides: dict[str, Any]
    secrets: dict[str, str]
    diagnostics: list[Diagnostic]

    @property
    def ok(self) -> bool:
        """Whether it may run."""
        return self.playbook is not None and not any(problem.severity is Severity.ERROR for problem in self.diagnostics)


def load(name: str, roles: Sequence[str] = (), overrides: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> Loaded:
    """Read and check a playbook with its command line. Raises click.UsageError only for a `-H` that is no `ROLE=TARGET`."""
    values, found = read_overrides(overrides, sources.read_bounded)
    playbook, problems, _ = sources.load_with(name, values, sources.read_roles(roles))
    found += problems
    given: dict[str, Any] = {}
    known: dict[str, str] = {}
    if playbook is not None:
        host_vars = [name for targets in playbook.hosts.values() for target in targets for name in target.vars]
        declared = {**dict.fromkeys([*host_vars, *playbook.inputs]), **playbook.vars}
        given = apply_overrides(declared, values, playbook.inputs)[0]
        found += missing_inputs(playbook, {*given, *host_vars})
        known, secret_problems = read_secrets(playbook, given, environ)
        found += secret_problems
    return Loaded(playbook, given, known, found)


def missing_inputs(playbook: Playbook, given: Collection[str]) -> list[Diagnostic]:
    """Inputs without a default that nobody gives."""
    return [
        Diagnostic(
            code="missing-input",
            span=playbook.spans.get(f"inputs.{name}"),
            summary=f"the input `{name}` is required" + (f": {one.help}" if one.help else ""),
            hint="it names a step of a playbook that includes this one" if one.type == "step" else f"run with `-e {name}=…`",
        )
        for name, one in playbook.inputs.items()
        if one.required and name not in given and name not in playbook.vars
    ]


def read_secrets(playbook: Playbook, overrides: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[dict[str, str], list[Diagnostic]]:
    """Values of the declared secrets that are set, and of overrides with a secret's name; and what is wrong with them."""
    place = playbook.spans.get("secrets")
    values, wrong = secrets.read(playbook.secrets, environ, Path(playbook.file).parent, place)
    found = [*wrong.values(), *_missing(playbook, {*values, *wrong})]
    named = {name: value for name, value in overrides.items() if looks_secret(name) and isinstance(value, str) and value}
    for name in too_short({**values, **named}):
        found.append(
            Diagnostic(
                code="short-secret",
                span=place,
                summary=f"the secret `{name}` has fewer than {SHORTEST} characters",
                hint="masking it would blank ordinary text: use a longer value",
            )
        )
    return {**named, **values}, found


def _missing(playbook: Playbook, known: Collection[str]) -> Iterator[Diagnostic]:
    """Secrets without a value: those that are required, and each use of another."""
    needed = [
        (secret.name, playbook.spans.get("secrets"), f"the secret `{secret.name}` is required")
        for secret in playbook.secrets
        if secret.required
    ]
    needed += [(name, span, f"`secrets.{name}` is used here") for name, span in secret_uses(playbook)]
    for name, span, why in needed:
        if name not in known:
            yield Diagnostic(
                code="missing-secret", span=span, summary=f"{why} and not set", hint=secrets.how_to_set(name, playbook.secrets)
            )


def secret_uses(playbook: Playbook) -> list[tuple[str, Span | None]]:
    """Each `secrets.NAME` in the texts of steps, with its place."""
    uses: list[tuple[str, Span | None]] = []
    nodes = (*playbook.steps, *playbook.always)
    for node in walk(nodes):
        uses += _uses(node, node.body)
    for include in includes(nodes):
        uses += _uses(include, {"with": include.given})
    return uses


def includes(nodes: Sequence[Node]) -> Iterator[IncludeNode]:
    """The includes among nodes and in their blocks and files."""
    for node in nodes:
        if isinstance(node, IncludeNode):
            yield node
        if isinstance(node, BlockNode):
            yield from includes((*node.steps, *node.rescue, *node.always))


def _uses(node: Node, body: Mapping[str, Any]) -> Iterator[tuple[str, Span | None]]:
    for path, text in _texts(dict(body), ()):
        for found in find_expressions(text):
            parsed = parse(found.source)
            for one in parsed.references if isinstance(parsed, Parsed) else ():
                if one.root == "secrets" and one.path:
                    yield str(one.path[0]), node.spans.get(".".join(path), node.span)


def _texts(value: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
    if isinstance(value, str):
        return [(path, value)]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [text for key, item in items for text in _texts(item, (*path, str(key)))]
