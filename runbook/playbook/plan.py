"""What a playbook would do, line by line: each step's own plan, with expressions filled in as far as they are known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from runbook.lang.expressions import Unknown, template
from runbook.model.playbook import BlockNode, Common, Node, Playbook, StepNode, Target
from runbook.playbook.convert import dec_hook
from runbook.playbook.fill import fill
from runbook.playbook.shape import type_of
from runbook.playbook.vars import Vars

LATER = Unknown("known only when it runs")
NO_TARGET = Target(target="")
LONGEST = 300


class Planner:
    """Plans a checked playbook; `overrides` are the values of `-e`."""

    def __init__(self, playbook: Playbook, table: Mapping[str, type[msgspec.Struct]], overrides: Mapping[str, Any]) -> None:
        self.playbook = playbook
        self.table = table
        self.overrides = overrides

    def lines(self) -> list[str]:
        """The whole plan."""
        book = self.playbook
        where = [f"  {role}: {', '.join(_place(target) for target in targets)}" for role, targets in book.hosts.items()]
        lines = [book.name, *where, *self._part(book.steps, "", ())]
        if book.always:
            lines += ["always, at the end:", *self._part(book.always, "  ", ())]
        return lines

    def _part(self, nodes: Sequence[Node], indent: str, layers: tuple[Mapping[str, Any], ...]) -> list[str]:
        return [
            line
            for node in nodes
            for line in (self._step(node, indent, layers) if isinstance(node, StepNode) else self._block(node, indent, layers))
        ]

    def _block(self, node: BlockNode, indent: str, layers: tuple[Mapping[str, Any], ...]) -> list[str]:
        lines = [f"{indent}{node.id}{_title(node.common)}", *_conditions(node.common, indent)]
        layers = (*layers, node.common.vars)
        lines += self._part(node.steps, f"{indent}  ", layers)
        for word, steps in (("rescue, if it fails", node.rescue), ("always", node.always)):
            if steps:
                lines += [f"{indent} {word}:", *self._part(steps, f"{indent}  ", layers)]
        return lines

    def _step(self, node: StepNode, indent: str, layers: tuple[Mapping[str, Any], ...]) -> list[str]:
        cls: Any = self.table[node.type]
        targets = self._targets(node) if cls.NEEDS_HOST else [NO_TARGET]
        box = node.common.timeout or cls.TIMEOUT
        names = ", ".join(_place(target) for target in targets if target.target)
        lines = [f"{indent}{node.id} ({node.type}{f' on {names}' if names else ''}, at most {box}){_title(node.common)}"]
        lines += _conditions(node.common, indent)
        plans = {tuple(self._plan(node, cls, (*layers, node.common.vars), target)): target for target in targets}
        for plan, target in plans.items():
            lines += [f"{indent}  {target.target}:"] if len(plans) > 1 else []
            lines += [f"{indent}    {_cut(line)}" for line in plan]
        return lines

    def _targets(self, node: StepNode) -> list[Target]:
        wanted = node.common.host
        roles = list(self.playbook.hosts) if wanted in (None, "all") else [wanted] if isinstance(wanted, str) else list(wanted or ())
        found = {target.target: target for role in roles for target in self.playbook.hosts[role]}
        return list(found.values())

    def _plan(self, node: StepNode, cls: Any, layers: tuple[Mapping[str, Any], ...], target: Target) -> list[str]:
        host = {"name": target.target, "address": target.target.rpartition("@")[2], "index": 0}
        hosts = {
            role: [{"name": one.target, "index": index} for index, one in enumerate(found)] for role, found in self.playbook.hosts.items()
        }
        later = dict.fromkeys(("steps", "secrets", "run", "item", "index"), LATER)
        names: dict[str, Any] = {**later, "host": host, "hosts": hosts}
        scope = {**names, "vars": Vars((self.playbook.vars, target.vars, *layers, self.overrides), names)}
        body = template(node.body, scope).value if cls.FREE else fill(type_of(cls), node.body, lambda: scope).value
        try:
            step: Any = msgspec.convert(body, cls, dec_hook=dec_hook)
        except msgspec.ValidationError:
            # A value outside of text is still an expression: the step cannot be built, but what is known can be shown.
            return [f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}" for key, value in body.items()]
        return list(step.plan())


def _place(target: Target) -> str:
    via = target.via if isinstance(target.via, str) else " ".join(target.via)
    return f"{target.target} via `{via}`" if via else target.target


def _title(common: Common) -> str:
    return f" - {common.name}" if common.name else ""


def _conditions(common: Common, indent: str) -> list[str]:
    lines = [f"{indent}    only when {common.when}"] if common.when else []
    if common.loop is not None:
        count = f"{len(common.loop)} items" if isinstance(common.loop, list) else str(common.loop)
        lines.append(f"{indent}    once for each of {count}")
    if common.retry:
        lines.append(f"{indent}    again for {common.retry.get('for')}, every {common.retry.get('every', '10s')}")
    return lines


def _cut(line: str) -> str:
    line = " ".join(line.split())
    return line if len(line) <= LONGEST else line[:LONGEST] + "…"
