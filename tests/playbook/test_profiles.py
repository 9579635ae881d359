"""Engine profiles from their text."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from runbook.model.units import Duration
from runbook.playbook.profiles import Source, load_profile

GOOD = "profile: x\nhealth: {path: /ping, client_timeout: 30s}\nphases:\n  - {id: load, begin: 'Loading', stall: 10m}\ncause: {oom_gpu: 'out of memory'}\n"


def test_a_profile_arrives_as_data():
    profile, found = load_profile(GOOD.encode(), "x.yaml")
    assert not found and profile is not None
    assert profile.health.client_timeout == Duration(30) and profile.phases[0].stall == Duration(600)


@pytest.mark.parametrize(
    ("wrong", "right", "code", "line"),
    [
        ("path: /ping", "pth: /ping", "unknown-key", 2),
        ("30s", "30", "unit", 2),
        ("'Loading'", "'Loading('", "regex", 4),
        ("'out of memory'", "'(a+)+'", "regex", 5),
        ("'Loading'", "'${{ vars.x }}'", "expression", 4),
        ("profile: x", "describes: x", "missing-key", 1),
    ],
)
def test_a_mistake_in_a_profile_has_its_place(wrong, right, code, line):
    profile, found = load_profile(GOOD.replace(wrong, right).encode(), "x.yaml")
    assert profile is None
    assert [(one.code, one.span and one.span.line) for one in found] == [(code, line)]


PACKAGED = Path(__file__).parents[2] / "runbook" / "profiles"


def packaged(name: str, without: Collection[str] = ()) -> Source | None:
    """A search path of one folder."""
    path = PACKAGED / f"{name}.yaml"
    return Source(str(path), path.read_bytes()) if path.is_file() and str(path) not in without else None


@pytest.mark.parametrize("path", sorted(PACKAGED.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_packaged_profile_is_valid_and_named_as_its_file(path):
    profile, found = load_profile(path.read_bytes(), str(path), packaged)
    assert not found and profile is not None and profile.profile == path.stem
