"""driver and gpu_lost: the GPU and its driver, by the kernel's word; beside them faults that a server survives."""

from __future__ import annotations

from runbook.model.gpu import GpuSample, ToolSample
from runbook.model.sample import Absent, Seen
from tests.diagnose.scenes import FUTEX, proc, scene, stands
from tests.diagnose.stories import state

XID = "[12.3] NVRM: Xid (PCI:0000:18:00): 119, pid=7, Timeout waiting for RPC from GSP!"


def tool(age_s: float, letter: str = "D"):
    return Seen(ToolSample(pid=77, state=letter, age_s=age_s, wchan="rwsem_down_read_slowpath"))


def gpus(count: int):
    return Seen(tuple(GpuSample(index=n, name="g", used=10**9, total=8 * 10**10) for n in range(count)))


def test_a_tool_in_state_d_for_a_minute_is_the_driver() -> None:
    assert state(scene(stands(proc(wchan=FUTEX), gpu_tool=tool(40)), seconds=20)) is None
    verdict = state(scene(stands(proc(wchan=FUTEX), gpu_tool=tool(61)), seconds=20))
    assert (verdict.verdict, verdict.kind, verdict.rule, verdict.confidence) == ("hung", "driver", "driver", "proven")


def test_a_slow_tool_is_blindness() -> None:
    assert state(scene(stands(proc(), gpu_tool=tool(300, "S")), seconds=20)) is None


def test_a_wedged_tool_beside_a_server_that_works_is_not_its_hang() -> None:
    story = scene(lambda second: {"processes": [proc(read_so_far=int(second * 300_000))], "gpu_tool": tool(90)}, seconds=60)
    assert state(story, final=True).verdict == "slow"


def test_a_wait_for_gpu_memory_ends_on_a_wedged_tool() -> None:
    assert scene(stands(proc(), gpu_tool=tool(90)), seconds=4).judge(about="gpu_free").kind == "driver"


def test_a_new_xid_and_a_server_that_stands_still_are_the_driver() -> None:
    tell = lambda second: {"processes": [proc()], "kernel": Seen((XID,) if second > 5 else ())}  # noqa: E731
    assert state(scene(tell, seconds=14)).kind == "driver"


def test_an_xid_from_before_may_have_been_survived() -> None:
    assert state(scene(stands(proc(), kernel=Seen((XID,))), seconds=30)) is None
    assert state(scene(stands(proc(), kernel=Seen((XID,))), seconds=44)).kind == "driver"


def test_an_xid_that_the_server_survived_is_none() -> None:
    story = scene(lambda second: {"processes": [proc(read_so_far=int(second * 300_000))], "kernel": Seen((XID,))}, seconds=60)
    assert state(story, final=True).verdict == "slow"


def test_a_gpu_off_the_bus_is_a_crash() -> None:
    line = "NVRM: GPU at PCI:0000:18:00: GPU has fallen off the bus."
    verdict = state(scene(stands(proc(), kernel=Seen((line,))), seconds=14))
    assert (verdict.verdict, verdict.kind, verdict.rule) == ("crashed", "gpu_lost", "gpu_lost")


def test_fewer_gpus_than_at_first_twice_are_a_lost_one() -> None:
    tell = lambda second: {"processes": [proc()], "gpus": gpus(8 if second < 4 else 7)}  # noqa: E731
    assert state(scene(tell, seconds=16)).kind == "gpu_lost"


def test_a_listing_that_failed_once_is_no_lost_gpu() -> None:
    tell = lambda second: {"processes": [proc()], "gpus": gpus(7 if second == 14 else 8)}  # noqa: E731
    assert state(scene(tell, seconds=16)) is None


def test_no_tool_under_way_says_nothing() -> None:
    assert state(scene(stands(proc(), gpu_tool=Absent()), seconds=20)) is None
