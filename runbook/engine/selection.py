"""Which steps of a playbook a run leaves out, and why: tags, and the step that it starts at. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from runbook.model.playbook import BlockNode, Node, Playbook, StepNode


def unselected(playbook: Playbook, tags: Collection[str], skip_tags: Collection[str], start_at: str) -> dict[str, str]:
    """Id of each step that does not run, and of each block none of whose main steps does, to the reason.

    `tags` and `start_at` choose among the main part; what rescues and cleans up runs as ever, but for `skip_tags`.
    """
    choice = _Choice(frozenset(tags), frozenset(skip_tags), start_at)
    choice.main(playbook.steps, frozenset())
    choice.other(playbook.always, frozenset())
    return choice.reasons


class _Choice:
    def __init__(self, tags: frozenset[str], skip_tags: frozenset[str], start_at: str) -> None:
        self.tags = tags
        self.skip_tags = skip_tags
        self.start_at = start_at
        self.started = not start_at
        self.reasons: dict[str, str] = {}

    def main(self, nodes: tuple[Node, ...], around: frozenset[str]) -> None:
        """Steps in file order, with the tags of the blocks around them."""
        for node in nodes:
            self.started = self.started or node.id == self.start_at
            tags = around | set(node.common.tags)
            if isinstance(node, StepNode):
                self._note(node.id, tags, main=True)
                continue
            self.main(node.steps, tags)
            self.other((*node.rescue, *node.always), tags)
            steps = list(main_steps(node))
            if steps and all(step.id in self.reasons for step in steps):
                self.reasons[node.id] = self.reasons[steps[-1].id]

    def other(self, nodes: tuple[Node, ...], around: frozenset[str]) -> None:
        """What rescues and cleans up."""
        for node in nodes:
            tags = around | set(node.common.tags)
            if isinstance(node, BlockNode):
                self.other((*node.steps, *node.rescue, *node.always), tags)
            else:
                self._note(node.id, tags, main=False)

    def _note(self, id: str, tags: frozenset[str], *, main: bool) -> None:
        if skipped := sorted(tags & self.skip_tags):
            self.reasons[id] = f"--skip-tags {skipped[0]}"
        elif main and not self.started:
            self.reasons[id] = f"before --start-at {self.start_at}"
        elif main and self.tags and not tags & self.tags:
            self.reasons[id] = f"not among --tags {','.join(sorted(self.tags))}"


def main_steps(node: Node) -> Iterator[StepNode]:
    """The steps of a node that run when nothing fails, those of blocks included."""
    if isinstance(node, StepNode):
        yield node
        return
    for inner in node.steps:
        yield from main_steps(inner)


def tags_of(playbook: Playbook, *, main_only: bool = False) -> frozenset[str]:
    """Every tag that a step or block carries; `main_only`: without those that only stand on what rescues and cleans up."""
    nodes = [node for top in playbook.steps for node in _main(top)] if main_only else _all((*playbook.steps, *playbook.always))
    return frozenset(tag for node in nodes for tag in node.common.tags)


def starts(playbook: Playbook) -> dict[str, bool]:
    """Ids that `--start-at` knows: true where the run may start there, false for what rescues and cleans up."""
    main = {node.id for top in playbook.steps for node in _main(top)}
    return {node.id: node.id in main for node in _all((*playbook.steps, *playbook.always))}


def _main(node: Node) -> Iterator[Node]:
    yield node
    if isinstance(node, BlockNode):
        for inner in node.steps:
            yield from _main(inner)


def _all(nodes: tuple[Node, ...]) -> Iterator[Node]:
    for node in nodes:
        yield node
        if isinstance(node, BlockNode):
            yield from _all((*node.steps, *node.rescue, *node.always))
