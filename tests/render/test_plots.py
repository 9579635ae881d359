"""What a figure leaves out cannot be seen: the drawn line stays within half a pixel of every reading."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.render.page.axis import WIDTH, Axis
from runbook.render.page.curves import Curve, Spans, Total
from runbook.render.page.plots import FLOOR, TOLERANCE, Row, bars, change, columns, placed, plot, simplified
from runbook.render.page.plots import LOG as LOG_LINES
from runbook.render.page.plots import READ as BYTES_READ

heights = st.floats(0, 44, allow_subnormal=False)
lines = st.lists(st.tuples(st.floats(0, 1000, allow_subnormal=False).map(lambda x: round(x, 1)), heights), min_size=1, max_size=80).map(
    lambda points: sorted({x: (x, y) for x, y in points}.values())
)


def curve(*readings: tuple[float, float]) -> Curve:
    """A curve of these readings."""
    made = Curve()
    for t, value in readings:
        made.add(t, value)
    return made


def height_at(line: list[tuple[float, float]], x: float) -> float:
    """Where a polyline stands at `x`."""
    right = min(max(bisect_right([point[0] for point in line], x), 1), len(line) - 1)
    (x0, y0), (x1, y1) = line[right - 1], line[right]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0) if x1 > x0 else y1


@given(lines)
def test_no_reading_is_further_from_the_line_than_half_a_pixel(points):
    drawn = simplified(points)
    assert drawn[0] == points[0] and drawn[-1] == points[-1] and set(drawn) <= set(points)
    if len(drawn) > 1:
        for x, y in points:
            assert abs(height_at(drawn, x) - y) <= TOLERANCE + 1e-6


def test_a_straight_line_is_two_points_and_a_jump_stays_a_jump():
    assert simplified([(float(x), x / 50) for x in range(1000)]) == [(0.0, 0.0), (999.0, 999 / 50)]
    step = [(0.0, 30.0), (10.0, 30.0), (10.0, 5.0), (20.0, 5.0)]
    assert simplified(step) == step


@given(st.lists(st.tuples(st.floats(0, 50), heights), max_size=200).map(sorted), st.sampled_from([1.0, 4.0]))
def test_a_column_of_pixels_keeps_its_ends_and_extremes(points, width):
    kept = columns(points, width)
    for column in {x // width for x, _ in points}:
        inside, shown = ([p for p in each if p[0] // width == column] for each in (points, kept))
        assert len(shown) <= 4 and shown[0] == inside[0] and shown[-1] == inside[-1]
        assert {min(y for _, y in inside), max(y for _, y in inside)} <= {y for _, y in shown}


@given(st.floats(0, 2e9), st.floats(0.01, 1e7))
def test_ticks_are_few_round_and_on_the_axis(begin, span):
    ticks = list(Axis(begin, begin + span).ticks())
    assert 1 <= len(ticks) <= 9
    assert all(0 <= x <= WIDTH for x, _ in ticks) and len({text for _, text in ticks}) == len(ticks)


def test_a_curve_begins_at_the_axis_with_what_was_known_before():
    points = placed(curve((0.0, 10.0), (50.0, 20.0), (150.0, 30.0), (300.0, 99.0)), Axis(100.0, 200.0), 0.0, 30.0)
    assert [x for x, _ in points] == [0.0, 500.0]
    assert points[1][1] == pytest.approx(3.0) and points[0][1] > points[1][1]


def test_a_curve_that_never_moved_lies_at_the_bottom():
    assert {y for _, y in placed(curve((0.0, 7.0), (5.0, 7.0)), Axis(0.0, 10.0), 7.0, 7.0)} == {FLOOR}


def test_bars_stand_where_all_lines_together_moved_and_are_low_under_the_strong_rate():
    """Four ranks that read 5 KiB/s each are a weak motion together, and none alone."""
    ranks = {f"rank {i}": curve((0.0, 0.0), (10.0, 51_200.0), (20.0, 51_200.0), (30.0, 5e6)) for i in range(4)}
    drawn = [(float(r.split('"')[1]), 'height="4"' in r) for r in bars(Row(BYTES_READ, ranks), Axis(0.0, 30.0))]
    assert drawn == [(0.0, False), (666.7, True)]
    assert list(bars(Row(BYTES_READ, {"rank 0": ranks["rank 0"]}), Axis(0.0, 15.0))) == []


def test_the_gain_in_the_end_is_that_of_readings_and_names_their_own_time():
    axis = Axis(0.0, 100.0, stall=90.0)
    assert change(BYTES_READ, [curve((0.0, 0.0), (80.0, 2048.0), (98.0, 2048.0))], axis) == "+0B in 18s"
    assert change(LOG_LINES, [curve((88.0, 1.0), (92.0, 3.0), (100.0, 8.0))], axis) == "+5 in 8s"


def test_a_plot_of_one_reading_of_anything_is_still_a_picture():
    assert plot(Row(BYTES_READ, {"all": curve((1.0, 5.0))}), Axis(0.0, 10.0)).startswith("<svg ")


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=30))
def test_a_total_never_falls_when_threads_or_processes_end(readings):
    total, before = Total(), 0
    for number, value in enumerate(readings):
        total.add((number % 3, 1), value)
        assert int(total) >= before
        before = int(total)


def test_a_span_goes_on_until_the_next_and_only_its_own_end_ends_it():
    spans = Spans()
    spans.enter("weights", 1.0)
    spans.enter("weights", 2.0)
    spans.leave(3.0, "kv_cache")
    spans.enter("graphs", 4.0)
    assert [(span.name, span.begin, span.end) for span in spans] == [("weights", 1.0, 4.0), ("graphs", 4.0, None)]
