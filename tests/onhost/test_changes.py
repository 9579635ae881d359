"""What is sent and written of a look is what changed; what is read again is the whole look."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.onhost import changes

scalars = st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.just(1.0), st.sampled_from(["", "a", "=", "~"]))
things = st.builds(
    lambda pid, start, rest: {**rest, "pid": pid, "start": start},
    st.integers(0, 4),
    st.integers(0, 1),
    st.dictionaries(st.sampled_from(["rss", "threads", "files", "=", "~"]), st.one_of(scalars, st.lists(st.fixed_dictionaries({"tid": st.integers(0, 3), "run_ns": scalars}), max_size=3)), max_size=3),
)  # fmt: skip
sources = st.one_of(
    st.builds(lambda value: {"type": "seen", "value": value}, st.one_of(scalars, st.lists(things, max_size=5))),
    st.builds(lambda reason: {"type": "blind", "reason": reason}, st.sampled_from(["", "not asked"])),
)
looks = st.dictionaries(
    st.sampled_from(["processes", "peers", "sockets", "t", "=", "-", "+"]),
    st.one_of(scalars, sources, st.lists(scalars, max_size=3)),
    max_size=5,
)


@given(looks, looks)
def test_a_change_makes_the_new_look_of_the_old(old, new):
    before = copy.deepcopy(old)
    change = json.loads(json.dumps(changes.between(old, new)))
    made = changes.applied(old, change)
    assert made == new
    assert old == before


def test_only_what_moved_is_told():
    def row(pid, run):
        return {"pid": pid, "start": 1, "title": "x" * 100, "threads": [{"tid": pid, "run_ns": run}, {"tid": pid + 1, "run_ns": 5}]}

    old = {"processes": {"type": "seen", "value": [row(10, 1), row(20, 1), row(30, 1)]}}
    new = {"processes": {"type": "seen", "value": [row(10, 1), row(30, 2), row(40, 1)]}}
    moved = {"~": [[2, {"threads": {"~": [[0, {"run_ns": 2}]]}}]], "-": [1], "+": [row(40, 1)]}
    assert changes.between(old, new) == {"~": {"processes": {"~": {"value": moved}}}}


@pytest.mark.parametrize("change", [{}, {"~": {"processes": {"~": [[9, {}]]}}}, {"~": 3}, {"~": {"processes": {"~": [[0]]}}}])
def test_a_change_that_does_not_fit_is_an_error(change):
    with pytest.raises(ValueError):
        changes.applied({"processes": [{"pid": 1}]}, change)
