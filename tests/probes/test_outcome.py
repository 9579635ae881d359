"""What a silence means: evidence only when every other explanation is excluded."""

from __future__ import annotations

import msgspec
import pytest

from runbook.model.sample import Blind, Seen
from runbook.probes.outcome import by_process, judge
from runbook.probes.reading import Armed, Built, Channel, Hit, Loaded, Silence, Unarmed
from runbook.probes.view import Compiled, View, read_compiled

SHA = "a" * 64
ARMED = Armed(pid=7, start=70, time=15.0, file="/srv/model.py", sha256=SHA, how="import")
LOADED = Loaded(pid=7, start=70, time=15.2)
BUILT = Built(alive="Model", made="srv.Model", pid=7, start=70, time=16.0)
HIT = Hit(probe=0, pid=7, start=70, seq=2, time=105.0)
QUIET = View(
    channel=Channel(armed=(ARMED,), loaded=(LOADED,)),
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


FORKED = msgspec.structs.replace(ARMED, how="fork", ppid=5, time=20.0)
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
    "the import never came to its end": but(channel=channel(loaded=())),
    "a decorator has put something else there": but(
        channel=channel(loaded=(Loaded(pid=7, start=70, time=15.2, replaced={"0": "CustomOpDef from torch.library"}),))
    ),
    "nothing was built of the class": but(alive_names=("Model",)),
    "it was built after the window": but(alive_names=("Model",), channel=channel(built=(msgspec.structs.replace(BUILT, time=150.0),))),
    "only another class was built": but(alive_names=("Model", "Layer"), channel=channel(built=(BUILT,))),
    "a subclass overrides it": but(
        alive_names=("Model",), channel=channel(built=(msgspec.structs.replace(BUILT, replaced={"0": "function Sub.forward"}),))
    ),
    "a forked child's parent never finished the import": but(
        channel=channel(armed=(msgspec.structs.replace(ARMED, pid=5, start=50), FORKED), loaded=()), alive=Seen(frozenset({(7, 70)}))
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_silence_proves_nothing_when(case):
    found = judge(LEFT[case])
    assert found.outcome == "unseen" and found.left


def test_an_empty_bucket_that_ended_before_the_window_excludes_itself():
    old = Silence(kind="dropped", probe=0, pid=7, start=70, time=50.0, until=60.0)
    assert judge(but(channel=channel(silences=(old,)))).outcome == "not_reached"


def test_a_class_that_was_built_excludes_that_none_was():
    found = judge(but(alive_names=("Model",), channel=channel(built=(BUILT,))))
    assert found.outcome == "not_reached"
    assert any("built a srv.Model" in item.by for item in found.excluded)


def test_a_forked_child_has_what_its_parent_imported_and_built():
    parent = msgspec.structs.replace(ARMED, pid=5, start=50)
    records = channel(
        armed=(parent, FORKED),
        loaded=(msgspec.structs.replace(LOADED, pid=5, start=50),),
        built=(msgspec.structs.replace(BUILT, pid=5, start=50),),
    )
    view = but(channel=records, alive_names=("Model",), alive=Seen(frozenset({(7, 70)})))
    assert judge(view).outcome == "not_reached"
    assert [(armed.pid, one.outcome) for armed, one in by_process(view)] == [(5, "unseen"), (7, "not_reached")]


def test_a_main_script_needs_no_end_of_its_import():
    """Its last statement is the call that serves."""
    assert judge(but(channel=channel(armed=(msgspec.structs.replace(ARMED, module="__main__"),), loaded=()))).outcome == "not_reached"


def test_each_process_is_judged_by_its_own_records():
    other = msgspec.structs.replace(ARMED, pid=8, start=80, rank=1)
    records = channel(armed=(ARMED, other), loaded=(LOADED, msgspec.structs.replace(LOADED, pid=8, start=80)), hits=(HIT,))
    view = but(channel=records, alive=Seen(frozenset({(7, 70), (8, 80)})))
    assert judge(view).outcome == "fired"
    assert [(armed.pid, one.outcome) for armed, one in by_process(view)] == [(7, "fired"), (8, "not_reached")]


def test_what_used_the_bucket_up_is_counted():
    before = tuple(msgspec.structs.replace(HIT, time=90.0 + n, seq=n) for n in range(3))
    empty = Silence(kind="dropped", probe=0, pid=7, start=70, time=95.0, until=101.0)
    assert "by 3 hits before the window" in judge(but(channel=channel(hits=before, silences=(empty,)))).reason


UNREPORTED = {
    "could not start there": but(channel=Channel(unarmed=(Unarmed(pid=7, start=70, time=15.0, how="ImportError: half imported"),))),
    "as nobody": but(channel=Channel(), strangers="pid 9 runs as nobody"),
    "compiled the patched file": but(channel=Channel(), bytecode=(Compiled(path="/srv/m.pyc", time=16.0, of_the_patch=True),)),
}


@pytest.mark.parametrize("why", UNREPORTED)
def test_a_missing_report_proves_nothing_when_somebody(why):
    found = judge(UNREPORTED[why])
    assert found.outcome == "unseen" and why in found.reason


def test_the_header_of_bytecode_tells_whose_it_is():
    def head(flags: int, mtime: int, size: int) -> bytes:
        return b"\xa7\r\r\n" + b"".join(number.to_bytes(4, "little") for number in (flags, mtime, size))

    assert read_compiled("m.pyc", head(0, 1700, 90), 5.0, 1700.9, 90).of_the_patch
    assert not read_compiled("m.pyc", head(0, 1699, 90), 5.0, 1700.9, 90).of_the_patch
    assert read_compiled("m.pyc", head(1, 0, 0), 5.0, 0.0, 0) == Compiled(path="m.pyc", time=5.0, unchecked=True)
    assert read_compiled("m.pyc", head(3, 0, 0), 5.0, 0.0, 0) == Compiled(path="m.pyc", time=5.0)
    assert read_compiled("m.pyc", b"", 5.0, 0.0, 0) == Compiled(path="m.pyc", time=5.0)


NOT_ARMED = {
    "before the patch": but(channel=Channel(), launched=5.0),
    "imports /other/model.py": but(channel=Channel(), imports_from=Seen("/other/model.py")),
    "with sha256 bbbb": but(channel=Channel(armed=(msgspec.structs.replace(ARMED, sha256="b" * 64),))),
    "no process of this run": but(channel=Channel(), alive=Seen(frozenset())),
    "unchecked hash-based": but(channel=Channel(), bytecode=(Compiled(path="/srv/m.pyc", time=1.0, unchecked=True),)),
    "Ignore import error": but(channel=Channel(), import_errors=("Ignore import error when loading srv.model: no module",)),
    "ended without": but(channel=Channel(), alive=Seen(frozenset()), ended=14.0),
}


@pytest.mark.parametrize("why", NOT_ARMED)
def test_a_file_that_was_not_loaded_is_not_armed_and_says_why(why):
    found = judge(NOT_ARMED[why])
    assert found.outcome == "not_armed" and why in found.reason
