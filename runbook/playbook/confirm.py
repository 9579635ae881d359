"""What a playbook does on hosts marked `production` or `shared` that others there would notice: it has to be confirmed. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any, NamedTuple

from runbook.model.playbook import BlockNode, IncludeNode, Node, Playbook, StepNode, Target


class Disturbance(NamedTuple):
    """A step, what it does, on which host, and how that host is marked."""

    step: str
    type: str
    what: str
    host: str
    marked: str

    def __str__(self) -> str:
        return f"{self.host} is marked `{self.marked}`, and `{self.step}` ({self.type}) {self.what}"


def disturbances(playbook: Playbook, table: Mapping[str, Any], left_out: Container[str] = ()) -> list[Disturbance]:
    """In the order of the playbook; `left_out` are steps and blocks that this run does not do."""
    found = []
    for node, targets in visits(playbook, left_out):
        what = table[node.type].disturbs(node.body)
        for target in targets if what else ():
            marked = "production" if target.production else "shared" if target.shared else ""
            if marked:
                found.append(Disturbance(node.id, node.type, what, target.target, marked))
    return found


def visits(playbook: Playbook, left_out: Container[str] = (), *, sure: bool = False) -> Iterator[tuple[StepNode, list[Target]]]:
    """Each step and its targets; with `sure` only those that no `when` and no `rescue` decides on."""
    roles = {role: (role,) for role in playbook.hosts}
    for node, known in _walk((*playbook.steps, *playbook.always), left_out, roles, sure):
        yield node, _targets(playbook, node, known)


Roles = Mapping[str, tuple[str, ...]]
"""The roles of a file as roles of the run."""


def _walk(nodes: tuple[Node, ...], left_out: Container[str], roles: Roles, sure: bool) -> Iterator[tuple[StepNode, Roles]]:
    for node in nodes:
        if node.id in left_out or (sure and node.common.when is not None):
            continue
        if isinstance(node, BlockNode):
            inner = node.roles if isinstance(node, IncludeNode) else roles
            yield from _walk((*node.steps, *(() if sure else node.rescue), *node.always), left_out, inner, sure)
        else:
            yield node, roles


def _targets(playbook: Playbook, node: StepNode, roles: Roles) -> list[Target]:
    wanted = node.common.host
    names = list(roles) if wanted in (None, "all") else [wanted] if isinstance(wanted, str) else list(wanted or ())
    found = (target for name in names for role in roles.get(name, ()) for target in playbook.hosts.get(role, ()))
    return list({target.target: target for target in found}.values())
