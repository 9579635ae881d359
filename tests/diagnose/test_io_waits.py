"""io_blocked: a disk, a network file system or a download that brings nothing any more; beside it those that are slow."""

from __future__ import annotations

import pytest

from runbook.model.sample import FolderSample, PressureSample, Seen
from tests.diagnose.scenes import RECV, connection, proc, scene, stack, stacks_at, stands
from tests.diagnose.stories import state

NFS = "rpc_wait_bit_killable"


SAYS = Seen(("nfs: server store not responding, still trying",))


def test_a_file_system_that_does_not_answer_by_the_kernels_word_is_io_blocked() -> None:
    verdict = state(scene(stands(proc(wchan=NFS, state="D"), kernel=SAYS), seconds=62))
    assert (verdict.verdict, verdict.kind, verdict.rule) == ("hung", "io_blocked", "io_blocked")


@pytest.mark.parametrize(
    "says",
    [
        (),
        ("INFO: task cat:999 blocked for more than 120 seconds.",),
        ("nfs: server store not responding, still trying", "nfs: server store OK"),
        ("I/O error, dev sdb, sector 8 op 0x0:(READ)",),
    ],
    ids=["nothing", "another task", "it answers again", "it stood there before"],
)
def test_without_that_word_it_may_answer_after_minutes(says: tuple[str, ...]) -> None:
    tell = stands(proc(wchan=NFS, state="D"), kernel=Seen(says))
    assert state(scene(tell, seconds=300), final=True).verdict == "undecided"


def test_an_error_of_a_disk_since_it_stands_is_the_kernels_word() -> None:
    line = "I/O error, dev sdb, sector 8 op 0x0:(READ)"
    tell = lambda second: {"processes": [proc(wchan="folio_wait_bit", state="D")], "kernel": Seen((line,) if second > 15 else ())}  # noqa: E731
    assert state(scene(tell, seconds=62)).kind == "io_blocked"


def test_disks_under_pressure_get_twice_the_budget() -> None:
    tell = stands(proc(wchan=NFS, state="D"), pressure=Seen(PressureSample(cpu=0.0, io=99.0, memory=0.0)), kernel=SAYS)
    assert state(scene(tell, seconds=56)) is None
    assert state(scene(tell, seconds=66)).kind == "io_blocked"


def test_a_slow_disk_whose_bytes_come_is_slow() -> None:
    story = scene(
        lambda second: {"processes": [proc(wchan=NFS, state="D", read_so_far=int(second * 200_000), switches=int(second))]}, seconds=200
    )
    assert state(story, final=True).verdict == "slow"


def test_pages_that_come_in_from_swap_or_a_mapped_file_are_seen() -> None:
    def tell(second: float):
        return {"processes": [proc(wchan="folio_wait_bit_common", state="D", faults=int(second * 300), switches=int(second))]}

    assert state(scene(tell, seconds=150), final=True).verdict != "hung"


def download(second: float, *, flat_after: float = 20.0, grows: bool = False):
    got = int(min(second, flat_after) * 1e6) if not grows else int(second * 1e6)
    return {
        "processes": [proc(wchan=RECV, title="/usr/bin/hf download org/model")],
        "sockets": Seen((connection(received=got),)),
        "folders": Seen((FolderSample(path="/m", files=3, bytes=got),)),
        **stacks_at(second, stack(100, "readinto (socket.py:718)"), first=40, again=50),
    }


def test_a_downloader_whose_bar_stands_and_that_brings_nothing_for_two_minutes_is_io_blocked() -> None:
    def tell(second: float):
        return {**download(second), "log": f"\rmodel.safetensors: 41%| {min(int(second), 20) + 21}/100 [00:20<00:28, 1.00MB/s]\n"}

    assert state(scene(tell, seconds=130)) is None
    verdict = state(scene(tell, seconds=150))
    assert (verdict.kind, verdict.confidence) == ("io_blocked", "likely")


def test_a_downloader_without_a_bar_may_be_kept_waiting() -> None:
    assert state(scene(download, seconds=200), final=True).verdict == "undecided"


def test_a_download_that_goes_on_is_slow() -> None:
    assert state(scene(lambda second: download(second, grows=True), seconds=96), final=True).verdict == "slow"


def test_a_connection_that_never_brought_much_may_be_a_client_that_waits_for_an_answer() -> None:
    story = scene(lambda second: download(second, flat_after=0.5), seconds=150)
    assert state(story, final=True).verdict == "undecided"
