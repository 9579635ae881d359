"""`run --step`: before each step of the main part somebody says what becomes of it."""

from __future__ import annotations

from collections.abc import Callable

from runbook.hosts.base import CancelToken
from runbook.model.playbook import StepNode

Ask = Callable[[str, float, CancelToken], "str | None"]
"""ask(text, seconds, cancel): a line typed at the terminal; None when none came in time. Raises Cancelled."""
PATIENCE_S = 24 * 3600.0
CHOICES = {"r": "run", "": "run", "s": "skip", "c": "continue", "q": "quit"}


class Stepping:
    """Asks until `continue` was said."""

    def __init__(self) -> None:
        self._over = False

    def choice(self, node: StepNode, ask: Ask, cancel: CancelToken) -> str:
        """run, skip or quit. Who says nothing for a day quits."""
        if self._over:
            return "run"
        title = f" - {node.common.name}" if node.common.name else ""
        while True:
            answer = ask(f"next: {node.id} ({node.type}){title}  [r]un, [s]kip, [c]ontinue without asking, [q]uit: ", PATIENCE_S, cancel)
            word = "quit" if answer is None else CHOICES.get(answer.strip().lower()[:1])
            if word == "continue":
                self._over, word = True, "run"
            if word is not None:
                return word
