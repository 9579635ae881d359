"""Where each step and block of a playbook stands: the blocks around it, and the file whose names it sees."""

from __future__ import annotations

from runbook.model.playbook import BlockNode, IncludeNode, Node, Playbook, StepNode


class Tree:
    """An index over the nodes. A file is known by its prefix: empty for the top, `up.` for the one that `up` includes."""

    def __init__(self, playbook: Playbook) -> None:
        self.around: dict[str, tuple[BlockNode, ...]] = {}
        """Id of a step or block to the blocks around it, outermost first."""
        self.steps: dict[str, dict[str, StepNode]] = {"": {}}
        """Prefix of a file to its steps by their own ids."""
        self.includes: dict[str, dict[str, IncludeNode]] = {"": {}}
        self._add((*playbook.steps, *playbook.always), "", ())

    def _add(self, nodes: tuple[Node, ...], prefix: str, around: tuple[BlockNode, ...]) -> None:
        for node in nodes:
            self.around[node.id] = around
            own = node.id.removeprefix(prefix)
            if isinstance(node, StepNode):
                self.steps[prefix][own] = node
                continue
            inner = prefix
            if isinstance(node, IncludeNode):
                self.includes[prefix][own] = node
                inner = f"{node.id}."
                self.steps[inner], self.includes[inner] = {}, {}
            self._add((*node.steps, *node.rescue, *node.always), inner, (*around, node))
