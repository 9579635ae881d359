"""Ranges of versions, as profiles name them."""

from __future__ import annotations

import pytest

from runbook.model.versions import outside, unknown_versions


@pytest.mark.parametrize(
    ("version", "wanted", "is_outside"),
    [
        ("0.4.6", ">=0.4.6,<=0.5.23", False),
        ("0.5.23", ">=0.4.6,<=0.5.23", False),
        ("0.5.23.post1", ">=0.4.6,<=0.5.23", False),
        ("0.5.24", ">=0.4.6,<=0.5.23", True),
        ("0.4.5", ">=0.4.6,<=0.5.23", True),
        ("0.10.2", ">=0.8.5,<=0.33.0", False),
        ("1.0", ">=0.8.5,<=0.33.0", True),
        ("2.13.0+cpu", ">=2.4,<=2.13.0", False),
        ("2.13.1", "<=2.13", False),
        ("5.0", "==5.0.0", False),
        ("0.3.37", "==0.3.36", True),
        ("3", ">2,<4", False),
        ("unknown", ">=1", False),
        ("", ">=1", False),
        ("9" * 40, ">=1", False),
    ],
)
def test_a_version_is_inside_its_range(version, wanted, is_outside):
    assert outside(version, wanted) is is_outside


def test_only_what_is_installed_and_known_is_compared():
    known = {"sglang": ">=0.4,<=0.5", "torch": ">=2.4"}
    assert unknown_versions(known, {"sglang": "0.6.1", "python": "3.12"}) == [("sglang", "0.6.1", ">=0.4,<=0.5")]
    assert unknown_versions({}, {"sglang": "0.6.1"}) == []
