"""Engine profiles: text to a `Profile`, or everything that is wrong with it."""

from __future__ import annotations

import msgspec

from runbook.lang.regex import compiled
from runbook.lang.yaml_loader import load
from runbook.model.diagnostic import Diagnostic
from runbook.model.profile import Profile
from runbook.playbook.convert import dec_hook
from runbook.playbook.problems import Problems, has_errors
from runbook.playbook.shape import Shape, type_of


def load_profile(source: bytes, file: str) -> tuple[Profile | None, list[Diagnostic]]:
    """Check a profile's keys, values and regular expressions; None when there is an error among the diagnostics."""
    document, found = load(source, file)
    if document is None:
        return None, found
    problems = Problems(document)
    problems.found += found
    if not isinstance(document.data, dict):
        problems.add("type", "a profile is a mapping", (), "start with `profile: NAME`")
        return None, problems.sorted()
    shape = Shape().visit(type_of(Profile), document.data)
    problems.add_misfits(shape.misfits)
    for leaf in shape.leaves:
        if "${{" in leaf.text:
            problems.add("expression", "a profile has no expressions", leaf.path)
        elif leaf.extra.get("kind") == "regex":
            _, fault = compiled(leaf.text)
            if fault:
                problems.add("regex", fault, leaf.path)
    if has_errors(problems.found):
        return None, problems.sorted()
    return msgspec.convert(document.data, Profile, dec_hook=dec_hook), problems.sorted()
