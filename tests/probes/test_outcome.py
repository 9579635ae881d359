"""What a silence means: evidence only when every other explanation is excluded."""

from __future__ import annotations

import msgspec
import pytest

from runbook.model.sample import Blind, Seen
from runbook.probes.outcome import View, judge
from runbook.probes.reading import Armed, Channel, Hit, Silence

SHA = "a" * 64
ARMED = Armed(pid=7, start=70, time=15.0, file="/srv/model.py", sha256=SHA, how="import")
HIT = Hit(probe=0, pid=7, start=70, seq=2, time=105.0)
QUIET = View(
    channel=Channel(armed=(ARMED,)),
    path="/srv/model.py",
    sha256=SHA,
    written=10.0,
    since=100.0,
    until=110.0,
    side=Seen(200),
    log=Seen(0),
    alive=Seen(frozenset({(7, 70)})),
    launched=12.0,
)


def but(**changes) -> View:
    return msgspec.structs.replace(QUIET, **changes)


def channel(**changes) -> Channel:
    return msgspec.structs.replace(QUIET.channel, **changes)


def test_a_hit_in_the_window_is_fired():
    assert judge(but(channel=channel(hits=(HIT,)))).outcome == "fired"


def test_hits_outside_the_window_do_not_count():
    early, late = (msgspec.structs.replace(HIT, time=t) for t in (99.0, 111.0))
    assert judge(but(channel=channel(hits=(early, late)))).outcome == "not_reached"
    assert judge(but(channel=channel(hits=(early,)), error_s=1.5)).outcome == "fired"


def test_not_reached_says_what_excludes_each_other_explanation():
    found = judge(QUIET)
    assert found.outcome == "not_reached" and not found.left
    assert len(found.excluded) >= 8 and all(item.by for item in found.excluded)


LEFT = {
    "an empty bucket reaches into the window": but(
        channel=channel(silences=(Silence(kind="dropped", probe=0, pid=7, start=70, time=95.0, until=101.0),))
    ),
    "the total was used up before": but(channel=channel(silences=(Silence(kind="spent", probe=0, pid=7, start=70, time=20.0),))),
    "a graph was captured": but(
        channel=channel(silences=(Silence(kind="graph", probe=0, pid=7, start=70, time=20.0, how="CUDA graph capture"),))
    ),
    "the importing process is gone": but(alive=Seen(frozenset({(7, 71)}))),
    "the process table was not readable": but(alive=Blind("no /proc")),
    "it was loaded after the window": but(channel=channel(armed=(msgspec.structs.replace(ARMED, time=120.0),))),
    "records were torn": but(channel=channel(torn=1)),
    "only the log was readable": but(side=Blind("gone")),
    "nothing was readable": but(side=Blind("gone"), log=Blind("rotated")),
}


@pytest.mark.parametrize("case", LEFT)
def test_silence_proves_nothing_when(case):
    found = judge(LEFT[case])
    assert found.outcome == "unseen" and found.left


def test_an_empty_bucket_that_ended_before_the_window_excludes_itself():
    old = Silence(kind="dropped", probe=0, pid=7, start=70, time=50.0, until=60.0)
    assert judge(but(channel=channel(silences=(old,)))).outcome == "not_reached"


NOT_ARMED = {
    "before the patch": but(channel=Channel(), launched=5.0),
    "imports /other/model.py": but(channel=Channel(), imports_from=Seen("/other/model.py")),
    "with sha256 bbbb": but(channel=Channel(armed=(msgspec.structs.replace(ARMED, sha256="b" * 64),))),
    "no process of this run": but(channel=Channel(), alive=Seen(frozenset())),
    "ended without": but(channel=Channel(), alive=Seen(frozenset()), ended=14.0),
}


@pytest.mark.parametrize("why", NOT_ARMED)
def test_a_file_that_was_not_loaded_is_not_armed_and_says_why(why):
    found = judge(NOT_ARMED[why])
    assert found.outcome == "not_armed" and why in found.reason
