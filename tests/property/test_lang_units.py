"""Durations and sizes: what is printed is read back."""

import math

from hypothesis import given
from hypothesis import strategies as st

from runbook.model.units import Duration, Size, UnitError, format_duration, format_size


@given(st.floats(0, 10**7))
def test_a_printed_duration_reads_back_within_its_rounding(seconds):
    again = Duration.parse(format_duration(seconds))
    assert math.isclose(again, seconds, rel_tol=0.05, abs_tol=0.0006 if seconds < 1 else 0.06)


@given(st.integers(0, 2**50))
def test_a_printed_size_reads_back_within_its_rounding(count):
    assert math.isclose(Size.parse(format_size(count)), count, rel_tol=0.06, abs_tol=1)


@given(st.integers(0, 999), st.sampled_from(["ms", "s", "m", "h", "d"]))
def test_a_whole_duration_means_its_unit(count, unit):
    factor = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}[unit]
    assert math.isclose(Duration.parse(f"{count}{unit}"), count * factor)


@given(st.text(max_size=12) | st.integers() | st.floats() | st.none() | st.booleans() | st.lists(st.integers(), max_size=2))
def test_anything_else_is_a_unit_error(value):
    for unit in (Duration, Size):
        try:
            assert unit.parse(value) >= 0
        except UnitError as error:
            assert str(error)
