"""Who may end a process that stands: a script that started it and waits only so long."""

from __future__ import annotations

import pytest

from runbook.model.waits import CallSample
from tests.diagnose.scenes import FUTEX, SLEEP, WAIT4, beats, futex, locked, locks_at, proc, scene, stack, thread, waiting
from tests.diagnose.stories import load_profile, state

WAITS = CallSample(tid=100, call="child", child=101)
SLEEPS, LIMIT = CallSample(tid=100), CallSample(tid=180)


def told(second: float, call: CallSample, *others: CallSample, script: bool = True, title: str = "python grade.py"):
    """A child whose two threads hold each other's locks, and its parent, seen in its stacks where it is a script in Python."""
    others_too = tuple(
        thread(one.tid, SLEEP if one is LIMIT else FUTEX, switches=int(second * 20) if one is LIMIT else 50) for one in others
    )
    polls = {"wchan": SLEEP, "run_s": second / 200, "switches": int(second * 20)}
    parent = proc(title=title, others=others_too, **({"wchan": WAIT4} if call is WAITS else polls))
    seen = (stack(100, "wait (subprocess.py:1264)"), *(beats(one.tid, loop="open") for one in others)) if script else ()
    child = locks_at(second, pid=101, more=(waiting(100, call, *others),), beside=seen)
    return {"processes": [parent, locked(pid=101, ppid=100)], **child}


@pytest.mark.parametrize(
    ("calls", "more", "profile", "hung"),
    [
        ((WAITS,), {}, "generic", True),
        ((SLEEPS,), {}, "generic", False),
        ((WAITS, LIMIT), {}, "generic", False),
        ((WAITS, futex(180)), {}, "generic", True),
        ((SLEEPS,), {"script": False}, "generic", True),
        ((SLEEPS,), {"title": "python -m sglang.launch_server"}, "sglang", True),
    ],
    ids=["waits for its end", "polls for it", "another thread sleeps", "another thread stands", "is no script", "is the engine's own"],
)
def test_a_script_that_waits_only_so_long_may_end_what_it_started(calls, more, profile: str, hung: bool) -> None:
    """As `subprocess.run(..., timeout=60)` does, or a timer that kills."""
    verdict = state(scene(lambda second: told(second, *calls, **more), seconds=100, profile=load_profile(profile)), final=True)
    assert (verdict.kind == "deadlock") is hung
    assert hung or "pid 100 `python grade.py`, which started pid 101, may end it" in verdict.reason
