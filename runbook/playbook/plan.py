"""What a playbook would do, line by line: each step's own plan, with expressions filled in as far as they are known."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from runbook.lang.expressions import Unknown, template
from runbook.model.playbook import BlockNode, Common, IncludeNode, Node, Playbook, StepNode, Target
from runbook.playbook.confirm import disturbances
from runbook.playbook.convert import dec_hook
from runbook.playbook.fill import fill
from runbook.playbook.shape import type_of
from runbook.playbook.vars import Bound, Vars

LATER = Unknown("known only when it runs")
NO_TARGET = Target(target="")
LATER_TEXT = "(known only when it runs)"
LONGEST = 300


class World(NamedTuple):
    """The names of a file: its variables, its roles as roles of the run, the vars of blocks. `top` are the values of `-e`.

    For an included file `given` is its include, and `outer` the world that this stands in.
    """

    vars: Mapping[str, Any]
    roles: Mapping[str, tuple[str, ...]]
    layers: tuple[Mapping[str, Any], ...] = ()
    top: Mapping[str, Any] = {}
    given: IncludeNode | None = None
    outer: World | None = None

    def inside(self, vars: Mapping[str, Any]) -> World:
        """The same with one more layer of vars."""
        return self._replace(layers=(*self.layers, vars))


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
        world = World(vars=book.vars, roles={role: (role,) for role in book.hosts}, top=self.overrides)
        where += [f"  {one}: asks on a terminal, else needs --yes" for one in disturbances(book, self.table)]
        lines = [book.name, *where, *self._part(book.steps, "", world)]
        if book.always:
            lines += ["always, at the end:", *self._part(book.always, "  ", world)]
        return lines

    def _part(self, nodes: Sequence[Node], indent: str, world: World) -> list[str]:
        return [
            line
            for node in nodes
            for line in (self._step(node, indent, world) if isinstance(node, StepNode) else self._block(node, indent, world))
        ]

    def _block(self, node: BlockNode, indent: str, world: World) -> list[str]:
        of = f" (include {node.file})" if isinstance(node, IncludeNode) else ""
        lines = [f"{indent}{node.id}{of}{_title(node.common)}", *_conditions(node.common, indent)]
        world = world.inside(node.common.vars)
        if isinstance(node, IncludeNode):
            values = self._scope(world, NO_TARGET)
            lines += [f"{indent}    with {name}: {_text(template(value, values).value)}" for name, value in node.given.items()]
            world = World(vars=node.vars, roles=node.roles, given=node, outer=world)
        lines += self._part(node.steps, f"{indent}  ", world)
        for word, steps in (("rescue, if it fails", node.rescue), ("always", node.always)):
            if steps:
                lines += [f"{indent} {word}:", *self._part(steps, f"{indent}  ", world)]
        return lines

    def _step(self, node: StepNode, indent: str, world: World) -> list[str]:
        cls: Any = self.table[node.type]
        targets = self._targets(node) if cls.NEEDS_HOST else [NO_TARGET]
        box = node.common.timeout or cls.TIMEOUT
        names = ", ".join(_place(target) for target in targets if target.target)
        lines = [f"{indent}{node.id} ({node.type}{f' on {names}' if names else ''}, at most {box}){_title(node.common)}"]
        lines += _conditions(node.common, indent)
        if node.defaulted:
            told = [f"{key}: {_text(node.body.get(key, node.common.timeout))}" for key in node.defaulted]
            lines.append(f"{indent}    by defaults: {', '.join(told)}")
        inner = world.inside(node.common.vars)
        plans = {tuple(self._plan(node, cls, inner, target)): target for target in targets}
        for plan, target in plans.items():
            lines += [f"{indent}  {target.target}:"] if len(plans) > 1 else []
            lines += [f"{indent}    {_cut(line)}" for line in plan]
        return lines

    def _targets(self, node: StepNode) -> list[Target]:
        wanted = node.common.host
        roles = list(self.playbook.hosts) if wanted in (None, "all") else [wanted] if isinstance(wanted, str) else list(wanted or ())
        return self._of_roles(roles)

    def _of_roles(self, roles: Iterable[str]) -> list[Target]:
        return list({target.target: target for role in roles for target in self.playbook.hosts[role]}.values())

    def _scope(self, world: World, target: Target) -> dict[str, Any]:
        """All names, as far as they are known."""
        host = {"name": target.target, "address": target.target.rpartition("@")[2], "index": 0}
        hosts = {
            role: [{"name": one.target, "index": index} for index, one in enumerate(self._of_roles(outer))]
            for role, outer in world.roles.items()
        }
        later = dict.fromkeys(("steps", "secrets", "run", "item", "index"), LATER)
        names: dict[str, Any] = {**later, "host": host, "hosts": hosts}
        layers: tuple[Mapping[str, Any], ...] = (world.vars, target.vars, *world.layers, world.top)
        if world.given is not None and world.outer is not None:
            layers = (world.vars, target.vars, Bound(world.given.given, partial(self._scope, world.outer, target)), *world.layers)
        missing = dict.fromkeys(self.playbook.inputs if world.outer is None else (), LATER)
        return {**names, "vars": Vars((missing, *layers), names)}

    def _plan(self, node: StepNode, cls: Any, world: World, target: Target) -> list[str]:
        scope = self._scope(world, target)
        body = template(node.body, scope).value if cls.FREE else fill(type_of(cls), node.body, lambda: scope).value
        try:
            step: Any = msgspec.convert(body, cls, dec_hook=dec_hook)
        except msgspec.ValidationError:
            # A value outside of text is still an expression: the step cannot be built, but what is known can be shown.
            return [f"{key}: {_text(value)}" for key, value in body.items()]
        return list(step.plan())


def _place(target: Target) -> str:
    via = target.via if isinstance(target.via, str) else " ".join(target.via)
    return f"{target.target} via `{via}`" if via else target.target


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return LATER_TEXT if isinstance(value, Unknown) else json.dumps(value, ensure_ascii=False, default=lambda _: LATER_TEXT)


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
