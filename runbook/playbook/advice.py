"""Help before anything runs: what an engine's profile already says about a step that is well formed. Warnings only.

A check that can never match, a mark that comes too early, a box that ends before a doubt may arise: each costs a night when it is
found out at the end of the wait.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from runbook.lang.tokens import mentions
from runbook.model.diagnostic import Diagnostic, Severity
from runbook.model.playbook import BlockNode, IncludeNode, Node, Playbook, StepNode
from runbook.model.profile import Profile
from runbook.playbook.advice_rules import RULES, About
from runbook.playbook.drafts import Table
from runbook.playbook.overrides import apply_overrides
from runbook.playbook.shape import type_of

Layers = tuple[Mapping[str, Any], ...]


def advise(playbook: Playbook, table: Table, profile: Callable[[str], Profile | None], overrides: Mapping[str, Any]) -> list[Diagnostic]:
    """Warnings about the steps of a checked playbook. `overrides`: of `-e`, as they were read."""
    values = apply_overrides({**dict.fromkeys(playbook.inputs), **playbook.vars}, overrides, playbook.inputs)[0]
    steps = [_known(node, table, layers) for node, layers in _walk((*playbook.steps, *playbook.always), (playbook.vars,), values)]
    launches = {one.node.id: one for one in steps if one.node.type in ("launch", "attach")}
    found: list[Diagnostic] = []
    healthy: set[str] = set()
    for one in steps:
        launch = launches.get(_launch_of(one, launches))
        name = str((launch.body if launch else one.body).get("profile") or "generic")
        about = one._replace(
            launch=launch.body if launch and launch.node.type == "launch" else None,
            profile=profile(name) if launch and "${{" not in name else None,
            was_healthy=launch is not None and launch.node.id in healthy,
        )
        found += [_warning(about.node, *warning) for rule in RULES.get(one.node.type, ()) for warning in rule(about)]
        if one.node.type == "wait_healthy" and launch is not None:
            healthy.add(launch.node.id)
    return found


def _walk(nodes: tuple[Node, ...], layers: Layers, top: Mapping[str, Any]) -> Iterator[tuple[StepNode, Layers]]:
    """Steps in file order, each with its file's variables and those of the blocks around it; `top` is what wins over all."""
    for node in nodes:
        inner = (*layers, node.common.vars)
        if isinstance(node, IncludeNode):
            from runbook.playbook.vars import Bound

            given = Bound(node.given, functools.partial(_scope, (*inner, top)))
            yield from _walk((*node.steps, *node.always), (node.vars, given), {})
        elif isinstance(node, BlockNode):
            yield from _walk((*node.steps, *node.rescue, *node.always), inner, top)
        else:
            yield node, (*inner, top)


def _scope(layers: Layers) -> dict[str, Any]:
    """What is known before a run."""
    from runbook.lang.expressions import Unknown  # the evaluator, which few steps need here
    from runbook.playbook.vars import Vars

    later = dict.fromkeys(("steps", "secrets", "run", "item", "index", "host", "hosts"), Unknown("known only when it runs"))
    return {**later, "vars": Vars(layers, later)}


def _launch_of(one: About, launches: Mapping[str, About]) -> str:
    """The launched or attached server that a step speaks of: named by one of its keys, else the only one."""
    named = next((one.body[key] for key in ("server", "log", "for", "step") if isinstance(one.body.get(key), str)), None)
    return str(named) if named is not None else next(iter(launches)) if len(launches) == 1 else ""


def _known(node: StepNode, table: Table, layers: Layers) -> About:
    """A step with its values as far as they are known before it runs; the rest keeps its `${{ }}`."""
    cls: Any = table[node.type]
    box = node.common.timeout or cls.TIMEOUT
    body = dict(node.body)
    if "${{" in box or (not cls.FREE and mentions(body)):
        from runbook.lang.expressions import template
        from runbook.playbook.fill import fill

        scope = _scope(layers)
        box = template(box, scope).value
        body = fill(type_of(cls), body, lambda: scope).value
    return About(node=node, body=body, box=str(box))


def _warning(node: StepNode, code: str, key: str, summary: str, hint: str) -> Diagnostic:
    return Diagnostic(code=code, summary=summary, hint=hint, severity=Severity.WARNING, span=node.spans.get(key, node.span))
