"""Faults from outside in SGLang and vLLM themselves: each has the verdict, the culprit and the time that the table says, and leaves nothing."""

from __future__ import annotations

import os

import pytest

from tests.real.conftest import need
from tests.real.faults import known
from tests.real.faults.playing import play
from tests.real.faults.table import GAPS, STARTS
from tests.zoo.lab import lab

ALL = [pytest.param(engine, one, id=f"{engine}-{one.name}") for engine, starts in STARTS.items() for one in starts]


@pytest.mark.skipif(os.geteuid() != 0, reason="limits and mounts need root")
@pytest.mark.parametrize(("engine", "one"), ALL)
def test_a_fault_has_its_verdict(engine, one):
    need(engine)
    with lab() as state:
        ended = play(state, engine, one)
    known.keep(engine, ended)
    wrong = {fault.fault.name: (known.row(fault), fault.reason) for fault in ended if not fault.right}
    gaps = [GAPS[engine, name] for name in list(wrong) if (engine, name) in GAPS and wrong.pop(name)]
    assert not wrong
    if gaps:
        pytest.xfail("; ".join(gaps))
