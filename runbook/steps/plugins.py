"""Step types of installed packages, by the entry points of the group `runbook.steps`: NAME = package.module:Class.

Looked for only when a playbook or a command names a type that is not built in: reading what is installed costs some milliseconds.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from runbook.model.step_type import BrokenStepType
from runbook.steps.base import Step

GROUP = "runbook.steps"
RESERVED = frozenset("id name host when loop timeout retry tags vars ignore_errors block rescue always".split())
"""Keys of every step and of blocks: a type cannot have them for its own."""


class Plugin(NamedTuple):
    """One entry point: where the class is, and the distribution that says so, with its version."""

    name: str
    value: str
    package: str


@functools.cache
def found() -> dict[str, tuple[Plugin, ...]]:
    """By name, those of each package that gives it."""
    from importlib.metadata import entry_points

    by_name: dict[str, list[Plugin]] = {}
    for point in entry_points(group=GROUP):
        dist = point.dist
        package = f"{dist.metadata['Name']} {dist.version}" if dist is not None else "an unknown package"
        one = Plugin(point.name, point.value, package)
        if one not in by_name.setdefault(point.name, []):  # a package that is on the path twice
            by_name[point.name].append(one)
    return {name: tuple(sorted(plugins)) for name, plugins in sorted(by_name.items())}


@functools.cache
def load(name: str) -> type[Step]:
    """The class of a plugin's step type. Raises BrokenStepType, which names the package."""
    first, *others = found()[name]
    if others:
        both = " and ".join(plugin.package for plugin in (first, *others))
        raise BrokenStepType(f"the step type `{name}` comes from two packages: {both}", "remove one of them")
    what = f"the step type `{name}` of the package {first.package}"
    try:
        cls = _imported(first.value)
    except (Exception, SystemExit) as problem:  # whatever a package does when it is imported
        hint = "install what it needs, or remove the package"
        raise BrokenStepType(f"{what} cannot be loaded: {type(problem).__name__}: {problem}", hint) from problem
    fault = fault_of(cls, name)
    if fault:
        raise BrokenStepType(f"{what} is none: {fault}", "its authors can repair that; see docs/guides/writing_step_types.md")
    return cls  # type: ignore[no-any-return]


def _imported(value: str) -> Any:
    from importlib import import_module

    module, _, attribute = value.partition(":")
    return functools.reduce(getattr, attribute.split("."), import_module(module))


def fault_of(cls: Any, name: str) -> str | None:
    """Why a class is no step type that the checks, the schema and the reference can read."""
    if not isinstance(cls, type) or not issubclass(cls, Step):
        return "it is no subclass of `runbook.steps.plugin.PluginStep`"
    config = cls.__struct_config__
    if not config.frozen or not config.forbid_unknown_fields:
        return "the struct must be `frozen=True, kw_only=True, forbid_unknown_fields=True`"
    if name != cls.TYPE:
        return f"its `TYPE` is `{cls.TYPE}`, not `{name}`"
    if not cls.__doc__ or not cls.RESULTS or not cls.EXAMPLE:
        return "it needs a docstring, `RESULTS` and `EXAMPLE`: its reference page is made from them"
    keys = set(cls.__struct_encode_fields__)
    if taken := sorted(keys & RESERVED):
        return f"`{taken[0]}` is a key of every step, so it cannot be one of its own"
    if cls.SHORTHAND is not None and cls.SHORTHAND not in keys:
        return f"`SHORTHAND` names no key of it: `{cls.SHORTHAND}`"
    return None
