"""An answer against what a step expects."""

from __future__ import annotations

import pytest

from runbook.diagnose.check import check_sample, subset
from runbook.model.question import Expectation


def check(payload: bytes = b"", status: int = 200, **expect: object):
    return check_sample("http://h/", "answer", 0.1, Expectation(**expect), status=status, body=payload)


def test_status_alone_is_enough_by_default() -> None:
    assert check().matched


@pytest.mark.parametrize(
    ("body", "expect", "mismatch"),
    [
        (b"", {"body": "ok"}, "body"),
        (b"all ok", {"body": "ok"}, ""),
        (b"", {"body": "("}, "body"),
        (b"{", {"json": {}}, "json"),
        (b'{"a": 1, "b": 2}', {"json": {"a": 1}}, ""),
        (b'{"a": 2}', {"json": {"a": 1}}, "json"),
        (b"[" * 100_000, {"json": []}, "json"),
        (b"\xff\xfe", {"body": "x"}, "body"),
    ],
)
def test_the_part_that_does_not_hold_is_named(body: bytes, expect: dict[str, object], mismatch: str) -> None:
    found = check(body, **expect)
    assert (found.mismatch, found.matched) == (mismatch, not mismatch)


def test_an_exchange_without_an_answer_never_matches() -> None:
    found = check_sample("http://h/", "timeout", 30.0, Expectation(status=()), error="read timed out")
    assert not found.matched and found.body_bytes is None


@pytest.mark.parametrize(
    ("wanted", "actual", "says"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, None),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, "`a.b` is missing; there are: c"),
        ([1, 2], [1, 2, 3], "the value is [1, 2, 3], wanted [1, 2]"),
        ([{"x": 1}], [{"x": 1, "y": 2}], None),
        (True, 1, "the value is 1, wanted True"),
        (1, 1.0, None),
        ({"a": 1}, [1], "the value is [1], not a mapping"),
    ],
)
def test_a_subset_says_where_something_is_missing(wanted: object, actual: object, says: str | None) -> None:
    assert subset(wanted, actual) == says
