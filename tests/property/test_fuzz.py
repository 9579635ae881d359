"""A sample of the fuzz: damaged playbooks, journals and messages give a value or one of our own errors."""

from __future__ import annotations

import pytest

from tests.chaos.fuzz import fuzz

pytestmark = pytest.mark.slow


def test_nothing_that_was_damaged_at_random_breaks_anything():
    result = fuzz(300, seed=20261130)
    assert not result.failures, f"python -m tests.chaos.fuzz: {result.failures[0].seed}\n{result.failures[0].trace}"
    assert set(result.cases.values()) == {75}


def test_a_failure_is_told_with_what_makes_it_again(monkeypatch):
    """The drive itself: an error that nobody expects is a failure, one of ours is not."""
    from tests.chaos import fuzz as driver

    broken = driver.Target("t", [b"seed"], lambda data: 1 / 0)
    ours = driver.Target("u", [b"seed"], lambda data: 1 / 0, (ZeroDivisionError,))
    monkeypatch.setattr(driver, "playbooks", lambda: broken)
    monkeypatch.setattr(driver, "journals", lambda: ours)
    result = driver.fuzz(4, 1, "<lambda>")
    assert [failure.target for failure in result.failures] == ["t", "t"] and "ZeroDivisionError" in result.failures[0].trace
