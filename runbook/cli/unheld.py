"""Launches on hosts whose `via:` lets nothing outlive the connection: known before a host is touched, so nothing runs."""

from __future__ import annotations

import shlex
from collections.abc import Container, Mapping

from runbook.hosts.inventory import Entry
from runbook.hosts.via import ends_with_link
from runbook.model.diagnostic import Diagnostic
from runbook.model.playbook import Playbook, Target
from runbook.playbook.confirm import visits
from runbook.steps.launch import INSTEAD


def unheld(playbook: Playbook, hosts: Mapping[str, Entry], left_out: Container[str] = ()) -> list[Diagnostic]:
    """One diagnostic a launch and host. Launches that a `when` or `rescue` decides on are left to the step itself."""
    found = []
    for node, targets in visits(playbook, left_out, sure=True) if playbook.hosts else ():
        for target in targets if node.type == "launch" else ():
            words = _via(target, hosts.get(target.target, Entry()))
            if why := ends_with_link(words):
                text = f"`{node.id}` (launch) on {target.target}, behind `{shlex.join(words)}`: {why}; a server would end with it"
                found.append(Diagnostic(code="ends-with-link", summary=text, span=node.span, hint=INSTEAD))
    return found


def _via(target: Target, entry: Entry) -> list[str]:
    via = target.via or entry.via
    try:
        return shlex.split(via) if isinstance(via, str) else list(via)
    except ValueError:
        return []  # is said where the host is looked up
