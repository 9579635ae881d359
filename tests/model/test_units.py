"""Units: text with a unit in, seconds and bytes out; a bare number never."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.model.units import Duration, Rate, Rung, Size, UnitError, dec_hook, enc_hook, format_duration, format_size


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1h30m", 5400), ("1.5s", 1.5), ("200ms", 0.2), ("2d", 172800), ("0s", 0)])
def test_durations(text, seconds):
    assert Duration.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize("bad", [10, 1.5, "10", "10 minutes", "m10", "", "1h30", "-5s", True, None, "1e3s", "9" * 400 + "s"])
def test_what_is_no_duration_is_refused_with_what_to_type(bad):
    with pytest.raises(UnitError) as caught:
        Duration.parse(bad)
    assert caught.value.hint


@pytest.mark.parametrize(("text", "count"), [("1GiB", 2**30), ("500MB", 500_000_000), ("64 KiB", 65536), ("1.5MiB", 1572864), ("7B", 7)])
def test_sizes(text, count):
    assert Size.parse(text) == count


@pytest.mark.parametrize("bad", [1, "1", "1G", "GiB", "1 gib", None, False, "9" * 400 + "B"])
def test_what_is_no_size_is_refused(bad):
    with pytest.raises(UnitError):
        Size.parse(bad)


def test_rungs_and_rates():
    rung, rate = Rung.parse("SIGTERM 15s"), Rate.parse("20 per 10s")
    assert (rung.signal, rung.wait_s, rate.per_window, rate.window_s) == ("TERM", 15.0, 20, 10.0)
    for kind, bad in ((Rung, "TERM"), (Rung, "15s TERM"), (Rung, 9), (Rate, "20"), (Rate, "0 per 1s"), (Rate, "1 per 0s")):
        with pytest.raises(UnitError):
            kind.parse(bad)


@given(st.floats(0, 1e8, allow_nan=False))
def test_what_is_shown_can_be_typed_and_is_near(seconds):
    again = float(Duration.parse(format_duration(seconds)))
    assert again == pytest.approx(seconds, rel=0.05, abs=0.06)


@given(st.integers(0, 2**50))
def test_a_shown_size_can_be_typed_and_is_near(count):
    assert int(Size.parse(format_size(count))) == pytest.approx(count, rel=0.06, abs=1)


@given(st.floats(0, 1e9, allow_nan=False), st.integers(0, 2**60))
def test_units_survive_json(seconds, count):
    class Both(msgspec.Struct):
        a: Duration
        b: Size

    made = Both(Duration(seconds), Size(count))
    again = msgspec.json.decode(msgspec.json.encode(made, enc_hook=enc_hook), type=Both, dec_hook=dec_hook)
    assert int(again.b) == count and float(again.a) == pytest.approx(seconds, abs=1e-9)
