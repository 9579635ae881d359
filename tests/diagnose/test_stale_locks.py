"""stale_lock: a lock file whose maker is gone; beside it locks that somebody holds."""

from __future__ import annotations

import msgspec
import pytest

from runbook.model.sample import LockSample, Seen
from runbook.model.waits import CallSample
from tests.diagnose.scenes import FUTEX, SLEEP, WAIT4, calls_at, futex, lock_file, proc, scene, stack, stacks_at, waiting
from tests.diagnose.stories import state

BATON = "wait (torch/utils/file_baton.py:49)"
SOFT = "BaseFileLock.acquire (filelock/_api.py:250)"
OTHER = "/cache/torch_extensions/other/lock"
KINDS = {BATON: "FileBaton", SOFT: "SoftFileLock"}


def polling(*locks: LockSample, more: tuple = (), frame: str = BATON, waits_for: str | None = None, kind: str | None = None, log: str = ""):
    """It waits for the first of these locks unless told otherwise: empty, if that is not known."""

    def tell(second: float):
        tree = [proc(wchan=SLEEP, run_s=second / 200, switches=int(second * 10)), *more]
        path = locks[0].path if waits_for is None else waits_for
        known = {"lock_file": path, "lock_class": (KINDS.get(frame, "") if kind is None else kind) if path else ""}
        taken = msgspec.structs.replace(stack(100, frame, "load (cpp_extension.py:1)"), **known)
        return {"processes": tree, "locks": Seen(locks), "log": log if second == 0 else "", **stacks_at(second, taken)}

    return tell


def test_a_lock_file_older_than_every_process_is_named_by_whom_it_holds_up() -> None:
    assert state(scene(polling(lock_file()), seconds=22)) is None
    verdict = state(scene(polling(lock_file()), seconds=26))
    assert (verdict.verdict, verdict.kind, verdict.rule) == ("hung", "stale_lock", "stale_lock")
    assert "rm /cache/torch_extensions/rotary/lock" in verdict.next[0]


@pytest.mark.parametrize(
    "frame", ["poll_jobs (scheduler.py:8)", "wait_until_ready (engine.py:3)", "run (core.py:146)", "Event.wait (threading.py:1)"]
)
def test_old_lock_files_that_lie_about_beside_a_process_that_polls_prove_nothing(frame: str) -> None:
    """Nothing ties an idle or polling server to a lock file but its stack."""
    assert state(scene(polling(lock_file(), frame=frame), seconds=150), final=True).verdict == "undecided"


def test_without_stacks_a_poller_is_tied_to_no_lock() -> None:
    def tell(second: float):
        return {"processes": [proc(wchan=SLEEP, run_s=second / 200, switches=int(second * 10))], "locks": Seen((lock_file(),))}

    assert state(scene(tell, seconds=150), final=True).verdict == "undecided"


def test_a_lock_that_is_younger_than_the_server_may_be_its_own() -> None:
    assert state(scene(polling(lock_file(age_s=300)), seconds=60)) is None


def test_a_lock_that_somebody_has_open_is_held() -> None:
    assert state(scene(polling(lock_file(holder=4000)), seconds=60)) is None


def test_a_lock_whose_holder_cannot_be_seen_is_not_called_stale() -> None:
    unseen = LockSample(path="/nfs/cache/lock", kind="file", holder=None, holder_known=False, age_s=90_000.0)
    assert state(scene(polling(unseen), seconds=60)) is None


NAMED = "acquire_lock_file (build.py:3)"


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (NAMED, {}),
        (NAMED, {"maker": 4711}),
        (BATON, {"maker": 4711}),
        (BATON, {"elsewhere": True}),
        (BATON, {"elsewhere": None}),
        (BATON, {"maker": 4711, "maker_gone": True, "elsewhere": True}),
    ],
)
def test_a_lock_whose_maker_may_live_is_not_called_stale(frame: str, told) -> None:
    """By existence alone, as a shell's noclobber makes it: nobody has it open while its maker works, perhaps on another host."""
    path = "/cache/torch_extensions/rotary/lock" if frame == BATON else "/build/build.lock"
    verdict = state(scene(polling(lock_file(path, **told), frame=frame), seconds=150), final=True)
    assert verdict.verdict == "undecided"


def test_a_lock_beside_a_compiler_is_in_use() -> None:
    compiler = proc(101, "", ppid=100, title="cicc")
    assert state(scene(polling(lock_file(), more=(compiler,)), seconds=60)) is None


def test_a_lock_beside_a_parent_that_computes_is_nobodys_wait() -> None:
    def tell(second: float):
        return {"processes": [proc(run_s=second * 0.9)], "locks": Seen((lock_file(),))}

    assert state(scene(tell, seconds=150), final=True).verdict != "hung"


HUB = "/root/.cache/huggingface/hub/.locks/models--m/{}.lock"


@pytest.mark.parametrize("frame", [BATON, SOFT, NAMED])
@pytest.mark.parametrize("waits_for", [OTHER, "/elsewhere/job.lock", ""])
def test_an_old_lock_that_lies_beside_the_one_that_is_waited_for_is_not_blamed(frame: str, waits_for: str) -> None:
    """Whether that is held by another job, lies where nobody looks, or is not known: and then the candidates are named."""
    old, held = lock_file(maker=4711, maker_gone=True), lock_file(OTHER, holder=4000)
    verdict = state(scene(polling(old, held, frame=frame, waits_for=waits_for), seconds=150), final=True)
    assert verdict.verdict == "undecided" and (waits_for or old.path) in verdict.reason


@pytest.mark.parametrize("maker", [{}, {"maker": 4711, "maker_gone": True}])
@pytest.mark.parametrize(("frame", "kind"), [(SOFT, "SoftFileLock"), (SOFT, "UnixFileLock"), (SOFT, ""), (NAMED, "")])
def test_a_lock_of_another_kind_may_be_broken_or_given_up(frame: str, kind: str, maker) -> None:
    """`SoftFileLock(timeout=60)`, or a lifetime; the kernel gives its own lock to the next who asks, and the file stays for ever."""
    verdict = state(scene(polling(lock_file(HUB.format("4a5b"), **maker), frame=frame, kind=kind), seconds=150), final=True)
    assert verdict.verdict == "undecided"


@pytest.mark.parametrize(("limit", "kind"), [(False, "stale_lock"), (True, None)])
def test_who_started_it_may_wait_for_it_only_so_long(limit: bool, kind: str | None) -> None:
    def tell(second: float):
        told = polling(lock_file())(second)
        child = msgspec.structs.replace(told["processes"][0], pid=101, start=1101, ppid=100)
        main = proc(wchan=SLEEP if limit else WAIT4, switches=int(second * 20) if limit else 50)
        if "stacks" in told:
            seen = [msgspec.structs.replace(one, pid=101, tid=101) for one in told["stacks"].value]
            mine = stacks_at(second, stack(100, "wait (subprocess.py:1264)"))["stacks"].value
            told["stacks"] = Seen((*seen, *mine))
        call = CallSample(tid=100) if limit else CallSample(tid=100, call="child", child=101)
        return {**told, "processes": [main, child], **calls_at(second, waiting(100, call))}

    assert state(scene(tell, seconds=150), final=True).kind == kind


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (f"Waited on lock file {lock_file().path!r} for 60 seconds.\n", "stale_lock"),
        (f"{lock_file().path} is free, waiting for {OTHER}\n", None),
        (f"waiting for {lock_file().path}.2\n", None),
        (f"waiting for {OTHER}\n", None),
        ("building extension rotary\n", None),
    ],
)
def test_where_its_objects_cannot_be_read_the_last_line_of_its_log_names_the_lock(log: str, said: str | None) -> None:
    locks = (lock_file(), lock_file(OTHER, holder=4000))
    assert state(scene(polling(*locks, waits_for="", log=log), seconds=150), final=True).kind == said


def test_a_lock_of_the_kernel_with_a_working_holder_is_no_stale_lock() -> None:
    def tell(second: float):
        held = LockSample(path="/m/model.lock", kind="flock", waiters=(100,), holder=101, holder_known=True)
        holder = proc(101, "", ppid=100, read_so_far=int(second * 300_000))
        return {"processes": [proc(wchan="locks_lock_inode_wait"), holder], "locks": Seen((held,))}

    assert state(scene(tell, seconds=200), final=True).verdict == "slow"


@pytest.mark.parametrize(("known_at", "kind"), [(0, "stale_lock"), (10, "stale_lock"), (-1, None)])
def test_that_nobody_holds_it_open_is_asked_seldom_on_a_busy_host(known_at: int, kind: str | None) -> None:
    def tell(second: float):
        lock = msgspec.structs.replace(lock_file(), holder_known=second == known_at)
        return {**polling(lock)(second), "log": "moved\n" if second == 4 else ""}

    verdict = state(scene(tell, seconds=34))
    assert (verdict.kind if verdict else None) == kind


def test_on_a_busy_host_who_polls_a_lock_file_waits_for_its_turn_and_works_not() -> None:
    def tell(second: float):
        told = polling(lock_file())(second)
        return {**told, "processes": [proc(wchan=SLEEP, run_s=second / 200, wait_s=second * 0.3, switches=int(second * 10))]}

    assert state(scene(tell, seconds=30)).kind == "stale_lock"


def test_a_lock_of_the_kernel_whose_holder_hangs_names_the_holder() -> None:
    opened = {"opened_by": (100, 101), "opened_known": True}
    held = LockSample(path="/m/model.lock", kind="flock", waiters=(100,), holder=101, holder_known=True, **opened)

    def tell(second: float, timed: bool = False):
        waits = calls_at(second, waiting(100, CallSample(tid=100, call="lock")), waiting(101, futex(101, timed=timed)))
        return {"processes": [proc(wchan="locks_lock_inode_wait"), proc(101, FUTEX, ppid=100)], "locks": Seen((held,)), **waits}

    story = scene(tell, seconds=16)
    assert (state(story).kind, state(story).culprit.pid) == ("deadlock", 101)
    assert state(scene(lambda second: tell(second, True), seconds=200), final=True).verdict == "undecided"


@pytest.mark.parametrize("opened", [{"opened_by": (100, 101)}, {"opened_by": (100, 101, 900), "opened_known": True}])
def test_a_lock_that_somebody_else_may_release_is_no_knot(opened: dict) -> None:
    """A flock ends with its open file description, which a daemon may have inherited."""
    held = LockSample(path="/m/model.lock", kind="flock", waiters=(100,), holder=101, holder_known=True, **opened)

    def tell(second: float):
        waits = calls_at(second, waiting(100, CallSample(tid=100, call="lock")), waiting(101))
        return {"processes": [proc(wchan="locks_lock_inode_wait"), proc(101, FUTEX, ppid=100)], "locks": Seen((held,)), **waits}

    verdict = state(scene(tell, seconds=200), final=True)
    assert verdict.verdict == "undecided" and "/m/model.lock" in verdict.reason
