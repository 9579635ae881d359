"""Source text to a checked playbook, or everything that is wrong with it and with what it includes. Touches no host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from runbook.lang.yaml_loader import load
from runbook.model.diagnostic import Diagnostic
from runbook.model.playbook import Playbook
from runbook.model.profile import Profile
from runbook.model.units import Duration, UnitError
from runbook.playbook.drafts import Table
from runbook.playbook.edge import EDGE
from runbook.playbook.library import Find, Known, Library, find_beside, nobody
from runbook.playbook.problems import Problems, has_errors
from runbook.playbook.sites import Site
from runbook.playbook.top import read_hosts, read_posts, warn_of_targets
from runbook.playbook.unit import Unit

SUSPEND_FOR = Duration(7200)


def read_file(file: str) -> bytes:
    """The bytes of a file beside the playbook; the default of `load_playbook`'s `read`."""
    return FilePath(file).read_bytes()


def load_playbook(
    source: bytes,
    file: str,
    *,
    table: Table,
    profiles: Collection[str],
    profile: Callable[[str], Profile | None] | None = None,
    hosts: Collection[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    roles: Mapping[str, Sequence[str]] | None = None,
    host_vars: Collection[str] = (),
    groups: Mapping[str, Sequence[str]] | None = None,
    read: Callable[[str], bytes] = read_file,
    find: Find = find_beside,
    known: Known = nobody,
) -> tuple[Playbook | None, list[Diagnostic]]:
    """Check a playbook; None when there is an error among the diagnostics.

    table: step types by name. profiles: names of engine profiles. profile: reads one; with it there are warnings of what an engine's
    profile says about a step. hosts: names of the inventory; other targets are taken as ssh aliases, which only ssh can look up.
    overrides: variables of `-e`, as `overrides.read_overrides` gives them; they take part in the checks and are not in the answer.
    roles: targets of `-H`, which replace those of the file. host_vars: names of variables that the inventory gives.
    groups: its groups, which a role may name in place of their hosts. read: reads a
    vars file or an included playbook and may raise OSError. find: the path of what a file includes by some name.
    known: the names that it could include.
    """
    document, found = load(source, file, EDGE)
    if document is None:
        return None, found
    problems = Problems(document)
    problems.found += found
    data = document.data
    if not isinstance(data, dict):
        hint = (
            "put the steps under `steps:`, below a line `runbook: 1`" if isinstance(data, list) else "start with `runbook: 1` and `steps:`"
        )
        problems.add("type", "a playbook is a mapping", (), hint)
        return None, problems.sorted()
    library = Library(read, find, known)
    unit = Unit(problems, data, table, profiles, library)
    playbook = _whole(unit, overrides or {}, roles or {}, hosts, host_vars, groups or {})
    if profile is not None and not has_errors(problems.found):
        from runbook.playbook.advice import advise

        problems.found += advise(playbook, table, profile, overrides or {})
    diagnostics = problems.sorted()
    return (None if has_errors(diagnostics) else playbook), diagnostics


def _whole(
    unit: Unit,
    overrides: Mapping[str, Any],
    roles: Mapping[str, Sequence[str]],
    hosts: Collection[str] | None,
    host_vars: Collection[str],
    groups: Mapping[str, Sequence[str]],
) -> Playbook:
    """The file at the top of a run, placed on its own targets."""
    problems, data = unit.problems, unit.data
    targets = read_hosts(problems, data.get("hosts"), roles, groups)
    warn_of_targets(problems, targets, hosts)
    given = [name for found in targets.values() for target in found for name in target.vars]
    site = Site(
        roles={role: (role,) for role in targets},
        counts={role: len(found) for role, found in targets.items()},
        host_vars=frozenset([*map(str, given), *host_vars]),
    )
    part = unit.checked(site, overrides)
    document = problems.document
    return Playbook(
        file=document.file,
        text=document.text,
        name=str(data.get("name") or FilePath(document.file).stem),
        description=str(data.get("description") or ""),
        hosts=targets,
        inputs=unit.inputs,
        outputs=unit.outputs,
        vars=part.vars,
        origins=part.origins,
        vars_files=tuple(map(str, files)) if isinstance(files := data.get("vars_files"), list) else (),
        secrets=part.secrets,
        steps=part.steps,
        always=part.always,
        post=read_posts(problems, data.get("post")),
        timeout=duration(problems, data, "timeout"),
        suspend_for=duration(problems, data, "suspend_for") or SUSPEND_FOR,
        collect=data.get("collect") != "off",
        files=unit.library.files,
        includes=unit.library.includes,
        spans={
            **{key: document.span((key,)) for key in data if isinstance(key, str)},
            **{f"inputs.{name}": document.key_span(("inputs", name)) for name in unit.inputs},
        },
    )


def duration(problems: Problems, data: Mapping[str, Any], key: str) -> Duration | None:
    """A duration at the top of a file; a wrong one is reported with the shape."""
    raw = data.get(key)
    if raw is None:
        return None
    if isinstance(raw, str) and "${{" in raw:
        problems.add("type", f"`{key}` at the top cannot be an expression", (key,), "write for example `10m`")
        return None
    try:
        return Duration.parse(raw)
    except UnitError:
        return None
