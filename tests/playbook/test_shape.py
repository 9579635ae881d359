"""Data against a type: every misfit with its path, in words that name what is allowed."""

from __future__ import annotations

import pytest

from runbook.playbook.shape import Shape, type_of
from tests.playbook.table import Check, Start, Stop


def misfits(cls, body):
    return [(".".join(map(str, one.path)), one.code, one.summary, one.hint) for one in Shape().visit(type_of(cls), body).misfits]


@pytest.mark.parametrize(
    ("cls", "body", "expected"),
    [
        (
            Start,
            {"command": ["a"], "port": "80"},
            ("port", "type", "`port` must be a whole number, not the text `80`", "drop the quotes: write `80`"),
        ),
        (Start, {"command": ["a"], "port": 0}, ("port", "range", "`port` must be at least 1, not `0`", None)),
        (Start, {"command": ["a"], "port": True}, ("port", "type", "`port` must be a whole number, not `true`", None)),
        (
            Start,
            {"command": ["a"], "at_end": "stopp"},
            ("at_end", "choice", "`at_end` must be `keep` or `stop`, not the text `stopp`", "did you mean `stop`?"),
        ),
        (Start, {"command": {"a": 1}}, ("command", "type", "`command` must be shell text or a list, not a mapping", None)),
        (Start, {"command": ["a", None]}, ("command.1", "type", "item 2 of `command` must be text or a whole number, not null", None)),
        (Start, {"command": "a", "env": {"A": 1.10}}, ("env.A", "type", "`A` must be text, not the number `1.1`", "quote it: `'1.1'`")),
        (
            Start,
            {"command": "a", "settle": 5},
            ("settle", "unit", "the duration `5` has no unit", "write `5s` for seconds or `5m` for minutes"),
        ),
        (
            Start,
            {"command": "a", "settle": "5 parsecs"},
            ("settle", "unit", "`5 parsecs` is not a duration", "units are ms, s, m, h, d, as in `1h30m` or `1.5s`"),
        ),
        (Stop, {"free": 1}, ("free", "unit", "the size `1` has no unit", "write `1MiB`, `1GiB`, or `1B` for bytes")),
        (
            Stop,
            {"ladder": ["TERM"]},
            ("ladder.0", "unit", "`TERM` is not a rung of a ladder", "write a signal and a wait, as in `TERM 15s`"),
        ),
        (Stop, {"tree": "yes"}, ("tree", "type", "`tree` must be `true` or `false`, not the text `yes`", "write `true`")),
        (Stop, {"match": {"cmdlin": "x"}}, ("match.cmdlin", "unknown-key", "unknown key `cmdlin` in `match`", "did you mean `cmdline`?")),
        (Stop, {"match": [{}, {"port": "x"}]}, ("match.1.port", "type", "`port` must be a whole number, not the text `x`", None)),
        (
            Check,
            {"that": [{"because": "x"}]},
            ("that.0", "missing-key", "item 1 of `that` needs the key `that`", "add `that:` with an expression"),
        ),
    ],
)
def test_a_misfit_says_what_is_allowed_there(cls, body, expected):
    assert misfits(cls, body) == [expected]


def test_all_misfits_of_a_body_are_found():
    found = misfits(Start, {"comand": ["a"], "port": "x", "settle": 3, "env": []})
    assert [path for path, *_ in found] == ["comand", "port", "settle", "env"]  # `command` is not missing: it is misspelt


def test_an_expression_fits_wherever_its_value_is_known_only_later():
    expression = "${{ vars.x }}"
    body = {"command": expression, "env": expression, "port": expression, "at_end": expression, "settle": "${{ vars.n }}s"}
    shape = Shape().visit(type_of(Start), body)
    assert not shape.misfits
    assert sorted(hole.path[0] for hole in shape.holes) == ["at_end", "env", "port", "settle"]
    assert {leaf.path[0] for leaf in shape.leaves} == set(body)


def test_half_an_expression_is_not_a_number():
    assert misfits(Start, {"command": "a", "port": "80${{ vars.x }}"})[0][1] == "type"


def test_a_text_knows_its_kind_and_whether_a_list_would_do():
    leaves = {leaf.path: leaf for leaf in Shape().visit(type_of(Start), {"command": "a b", "profile": "x"}).leaves}
    assert leaves["command",].extra == {"kind": "shell"} and leaves["command",].list_too
    assert leaves["profile",].extra == {"kind": "profile"} and leaves["profile",].default == "generic"
