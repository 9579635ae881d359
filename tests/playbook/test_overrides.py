"""`-e name=value` and `-e @file`."""

from __future__ import annotations

import pytest

from runbook.playbook.overrides import Typed, apply_overrides, parse_override, read_overrides, read_vars

DECLARED = {"taps": 3, "rate": 1.5, "on": True, "name": "x", "list": [1], "map": {"a": 1}, "any": None, "expr": "${{ vars.name }}"}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("taps", "4", 4),
        ("taps", "-4", -4),
        ("rate", "2", 2.0),
        ("rate", "1e-3", 0.001),
        ("on", "false", False),
        ("name", "4", "4"),
        ("name", "", ""),
        ("list", "[a, 2]", ["a", 2]),
        ("map", "{b: 2}", {"b": 2}),
        ("any", "7", 7),
        ("any", "text", "text"),
        ("expr", "7", "7"),
    ],
)
def test_a_typed_value_takes_the_type_of_the_default(name, text, value):
    values, found = apply_overrides(DECLARED, {name: Typed(text)})
    assert not found and values == {name: value} and type(values[name]) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("taps", "three", "write digits, as in `3`"),
        ("taps", "1_000", "write digits, as in `3`"),
        ("taps", "3.5", "write digits, as in `3`"),
        ("rate", "nan", "write digits, as in `3`"),
        ("on", "yes", "write `true` or `false`"),
        ("list", "{a: 1}", "write `[a, b]`"),
        ("map", "[a]", "write `{a: 1}`"),
        ("list", "[", None),
    ],
)
def test_a_value_of_another_type_is_refused(name, text, hint):
    values, found = apply_overrides(DECLARED, {name: Typed(text)})
    assert not values and found[0].code == "type" and f"-e {name}=" in found[0].summary
    assert hint is None or found[0].hint == hint


def test_an_undeclared_name_is_suggested():
    _, found = apply_overrides(DECLARED, {"tap": Typed("3")})
    assert (found[0].code, found[0].hint) == ("undefined-var", "did you mean `taps`?")


def test_values_of_a_file_keep_the_type_they_have_there():
    files = {"a.yaml": b"taps: four\nname: 5\n"}
    values, found = read_overrides(["@a.yaml", "taps=6"], files.__getitem__)
    assert not found
    assert apply_overrides(DECLARED, values)[0] == {"taps": 6, "name": 5}


def test_what_is_no_override_says_how_one_looks():
    diagnostic = parse_override("taps")
    assert not isinstance(diagnostic, tuple) and diagnostic.hint == "write `-e name=value`, or `-e @file.yaml`"


def test_a_value_may_hold_an_equals_sign():
    assert parse_override("name=a=b") == ("name", "a=b")


def test_a_vars_file_is_a_mapping_of_names():
    assert read_vars(b"- a\n", "f.yaml")[2][0].code == "type"
    assert read_vars(b"a-b: 1\n", "f.yaml")[2][0].code == "bad-name"
    assert read_vars(b"a: [\n", "f.yaml")[1] is None


def test_a_file_that_cannot_be_read_is_a_diagnostic():
    def read(file: str) -> bytes:
        raise PermissionError(13, "Permission denied", file)

    values, found = read_overrides(["@a.yaml"], read)
    assert not values and "a.yaml" in found[0].summary and "Permission denied" in found[0].summary
