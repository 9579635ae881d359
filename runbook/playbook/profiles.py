"""Engine profiles: text to a `Profile`, or everything that is wrong with it, each with its place."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import msgspec

from runbook.lang.regex import compiled
from runbook.lang.yaml_loader import load
from runbook.model.diagnostic import Diagnostic, Severity
from runbook.model.profile import Profile
from runbook.playbook.convert import dec_hook
from runbook.playbook.near import suggestion
from runbook.playbook.problems import Path, Problems, has_errors
from runbook.playbook.profile_checks import contradictions, sound
from runbook.playbook.shape import Shape, type_of


class Source(NamedTuple):
    """A profile's file and its bytes."""

    file: str
    data: bytes


Find = Callable[[str, Collection[str]], "Source | None"]
"""The first profile of a name on the search path whose file is not among those given."""


def nobody(name: str, without: Collection[str]) -> Source | None:
    """A search path without profiles."""
    return None


def load_profile(
    source: bytes, file: str, find: Find = nobody, names: Collection[str] = (), without: Collection[str] = ()
) -> tuple[Profile | None, list[Diagnostic]]:
    """Check a profile's keys, values and regular expressions; None when there is an error among the diagnostics.

    find, names: where `extends` looks, and what there is. A profile may extend the next one of its own name on the path.
    without: files that extend this one.
    """
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
    wrong: list[Path] = [misfit.path for misfit in shape.misfits]
    broken: list[Path] = []
    for leaf in shape.leaves:
        if "${{" in leaf.text:
            problems.add("expression", "a profile has no expressions", leaf.path)
            (broken if leaf.extra.get("kind") == "regex" else wrong).append(leaf.path)
        elif leaf.extra.get("kind") == "regex":
            _, fault = compiled(leaf.text)
            if fault:
                problems.add("regex", fault, leaf.path)
                broken.append(leaf.path)
    base = _base(problems, document.data.get("extends"), find, names, (*without, file))
    own = sound(document.data, wrong, broken)
    data = merged(base, own)
    contradictions(problems, own, data)
    if has_errors(problems.found):
        return None, problems.sorted()
    return msgspec.convert(data, Profile, dec_hook=dec_hook), problems.sorted()


def merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """`own` over `base`: mappings key by key, phases by their id, all else replaced. An empty mapping or list clears."""
    found = dict(base)
    for key, value in own.items():
        before = found.get(key)
        if key == "phases" and isinstance(before, list) and value:
            found[key] = _phases(before, value)
        elif isinstance(before, dict) and isinstance(value, dict) and value:
            found[key] = merged(before, value)
        else:
            found[key] = value
    return found


def _phases(before: list[Any], own: list[Any]) -> list[Any]:
    """A phase of the same id is changed in its place; a new one is put after the last that was changed, else at the end."""
    found = list(before)
    place = len(found)
    for phase in (one for one in own if one and "id" in one):
        at = next((index for index, one in enumerate(found) if one["id"] == phase["id"]), None)
        if at is None:
            found.insert(place, phase)
            place += 1
        else:
            found[at] = {**found[at], **phase}
            place = at + 1
    return found


def _base(problems: Problems, name: Any, find: Find, names: Collection[str], without: tuple[str, ...]) -> dict[str, Any]:
    """The data of the profile that is extended, itself merged over its own base."""
    if not isinstance(name, str) or not name:
        return {}
    source = find(name, without)
    if source is None:
        again = name in names
        summary = f"`{name}` extends itself: no other profile of this name is on the search path" if again else f"no profile `{name}`"
        problems.add("unknown-profile", summary, ("extends",), None if again else suggestion(name, names))
        return {}
    profile, found = load_profile(source.data, source.file, find, names, without)
    if profile is None:
        first = next(one for one in found if one.severity is Severity.ERROR)
        problems.add("base-profile", f"`{name}` is not valid itself: {first.span}: {first.summary}", ("extends",), first.hint)
        return {}
    document, _ = load(source.data, source.file)
    assert document is not None
    return merged(_base(problems, document.data.get("extends"), find, names, (*without, source.file)), document.data)
