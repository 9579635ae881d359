"""How an extra of this package comes to be installed: from a clone, since no package index has it."""

from __future__ import annotations


def how(extra: str) -> str:
    """The commands, for a hint. Without `--force` pipx leaves what is installed already as it is."""
    return f"in the clone of runbook `pip install '.[{extra}]'`, or with pipx `pipx install --force '.[{extra}]'`"
