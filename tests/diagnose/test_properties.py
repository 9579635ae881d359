"""What must hold for every history: a live one is never hung, however it is looked at; blindness never convicts."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runbook.diagnose.judge import judge
from runbook.model.question import Question
from runbook.model.sample import Blind, FolderSample, LockSample, Sample, Seen
from tests.diagnose.scenes import (
    FUTEX,
    LOOP,
    PIPE_READ,
    RECV,
    SLEEP,
    WAIT4,
    calls_at,
    connection,
    lock_file,
    locked,
    locks_at,
    pipe,
    proc,
    reads,
    scene,
    stands,
    thread,
    waiting,
)
from tests.diagnose.stories import READY, SGLANG, T0, answer, listener, shard
from tests.diagnose.test_ranks import REDUCE, USER, group, rank
from tests.diagnose.test_turning import four_looks

SECONDS = 150.0


def worker(second: float, share: float = 0.5, tid: int = 201):
    return thread(tid, "", run_s=second * share, state="R")


LIVE = {
    "mapped weights on a warm cache": lambda s: {"processes": [proc(mapped_weights=Seen(int(s * 2e6)))]},
    "a throttled read": lambda s: {"processes": [proc(wchan=SLEEP, read_so_far=int(s * 100_000), switches=int(s))]},
    "a trickle": lambda s: {"processes": [proc(wchan=SLEEP, read_so_far=int(s * 21_000), switches=int(s / 3))]},
    "a slow download": lambda s: {"processes": [proc(wchan=RECV)], "sockets": Seen((connection(received=int(s * 200_000)),))},
    "a compiler in a grandchild": lambda s: {
        "processes": [proc(wchan=WAIT4), proc(101, WAIT4, ppid=100, title="sh"), proc(102, "", ppid=101, title="cicc", run_s=s)]
    },
    "compiling without a word": lambda s: {"processes": [proc(run_s=s * 0.9, wchan="", state="R", faults=int(s * 900))]},
    "unpickling": lambda s: {"processes": [proc(run_s=s, wchan="", state="R", rss=10**8 + int(s * 10**6))]},
    "one long native call": lambda s: {
        "processes": [proc(run_s=s, wchan="", state="R")],
        **four_looks(s, "svd (numpy/linalg.py:1)", loop="none"),
    },
    "a slow all_reduce": lambda s: {"processes": [proc(wchan=WAIT4), *(rank(n, run_s=s / 9000, switches=int(s / 3)) for n in range(4))]},
    "one rank computes": lambda s: {
        **group(s, dict.fromkeys(range(3), REDUCE) | {3: USER}),
        "processes": [proc(wchan=WAIT4), *(rank(n) for n in range(3)), rank(3, run_s=s * 0.6, wchan="")],
    },
    "a lock whose holder works": lambda s: {
        "processes": [proc(wchan="locks_lock_inode_wait"), proc(101, SLEEP, ppid=100, read_so_far=int(s * 150_000), switches=int(s))],
        "locks": Seen((LockSample(path="/m.lock", kind="flock", waiters=(100,), holder=101, holder_known=True),)),
    },
    "a lock whose holder is a thread that reads": lambda s: {"processes": [proc(read_so_far=int(s * 150_000), others=(worker(s, 0.02),))]},
    "a bar by carriage returns": lambda s: {"processes": [proc(wchan=SLEEP, switches=int(s))], "log": shard(int(s), 1000)},
    "a block-buffered log": lambda s: {"processes": [proc(run_s=s * 0.3, switches=int(s))]},
    "pressure on memory": lambda s: {"processes": [proc(wchan="do_swap_page", state="D", faults=int(s * 250), switches=int(s * 9))]},
    "a long prefill": lambda s: {"processes": [proc(others=(worker(s, 0.9),))], "check": answer(503), "listeners": listener()},
    "a good answer that takes a second": lambda s: {
        "processes": [proc(wchan=LOOP)],
        "check": answer(latency_s=1.0),
        "listeners": listener(),
    },
    "a survived traceback": lambda s: {
        "processes": [proc(read_so_far=int(s * 150_000))],
        "log": "Traceback (most recent call last):\n  File 'a'\nImportError: x\n" if s == 20 else "",
    },
    "a harmless zombie": lambda s: {
        "processes": [proc(read_so_far=int(s * 150_000)), proc(101, "", ppid=100, state="Z", exit_code=1)],
    },
    "an idle server": lambda s: {"processes": [proc(wchan=LOOP)], "log": READY if not s else "", "listeners": listener()},
    "an idle server that nobody named": lambda s: {
        "processes": [proc(others=(thread(201, LOOP),))],
        "sockets": Seen((connection(state="LISTEN", received=0),)),
    },
    "a sleep": lambda s: {"processes": [proc(wchan=SLEEP)]},
    "a ring whose producer computes": lambda s: {
        "processes": [proc(run_s=s, wchan="", state="R"), proc(101, "", ppid=100, run_s=s, state="R")],
        **four_looks(s, "poll_completion (e.py:1)", pids=(100, 101)),
    },
    "a consumer whose producer outside works": lambda s: {
        "processes": [proc(wchan=PIPE_READ, stdin="pipe", pipes=Seen((pipe(0, "read", peers=(900,)),)))],
        "peers": Seen((proc(900, "", run_s=s * 0.7),)),
    },
    "a file lock whose holder outside works": lambda s: {
        "processes": [proc(wchan="locks_lock_inode_wait")],
        "locks": Seen((LockSample(path="/m.lock", kind="flock", waiters=(100,), holder=900, holder_known=True),)),
        "peers": Seen((proc(900, "", run_s=s * 0.7),)),
    },
    "a server that polls beside old lock files": lambda s: {
        "processes": [proc(wchan=SLEEP, run_s=s / 200, switches=int(s * 10))],
        "locks": Seen((lock_file(),)),
        **four_looks(s, "poll_jobs (s.py:1)"),
    },
    "a thread that loads while the main one waits for commands": lambda s: {
        "processes": [proc(wchan=PIPE_READ, stdin="pipe", pipes=Seen((pipe(0, "read", peers=(1,)),)), read_so_far=int(s * 200_000))],
    },
    "an answer from another host": lambda s: {"processes": [proc(wchan=RECV)], "sockets": Seen((connection(),))},
    "a cache that fills": lambda s: {
        "processes": [proc(wchan=WAIT4), proc(101, RECV, ppid=100, title="hf")],
        "folders": Seen((FolderSample(path="/c", files=int(s / 9), bytes=int(s * 1e6)),)),
    },
    "a worker that polls another host": lambda s: {
        "processes": [proc(wchan=SLEEP, switches=int(s), run_s=s / 100), proc(101, PIPE_READ, ppid=100)],
    },
}
HUNG = {
    "deadlock": stands(),
    "a knot": lambda s: {"processes": [proc()], **calls_at(s, waiting(100))},
    "silent peer": lambda s: {
        "processes": [proc(wchan=RECV)],
        "sockets": Seen((connection(peer_pid=900),)),
        "peers": Seen((proc(900, FUTEX),)),
        **calls_at(s, waiting(100, reads(900)), waiting(900), first=10.0),
    },
    "spin": lambda s: {"processes": [proc(run_s=s, wchan="", state="R")], **four_looks(s, "wait_for_peer (e.py:1)")},
    "desync": lambda s: group(s, dict.fromkeys(range(3), REDUCE) | {3: USER}),
    "circle of two locks": lambda s: {"processes": [locked()], **locks_at(s, main="take_other (app.py:31)")},
}
SOURCES = ("log", "sockets", "locks", "folders", "peers", "stacks", "calls", "check", "listeners")
FIELDS = ("io", "pipes", "files", "mapped_weights", "threads")


def question(**more) -> Question:
    return Question(about="state", since=T0, box_s=SECONDS, final=True, **more)


def verdict_of(samples: list[Sample], profile) -> str:
    found = judge(samples, profile, question(), samples[-1].t)
    assert found is not None
    return found.verdict


def perturbed(samples: list[Sample], rng: random.Random) -> list[Sample]:
    """Other times (never shorter), lost looks, and a source that some looks could not read."""
    lost, pace = rng.choice((0.0, 0.2, 0.6)), rng.choice((1.0, 1.3))
    kept = [sample for index, sample in enumerate(samples) if index in (0, len(samples) - 1) or rng.random() >= lost]
    found = [msgspec.structs.replace(one, t=T0 + (one.t - T0) * pace + rng.uniform(-0.4, 0.4)) for one in kept]
    source = rng.choice(("", *SOURCES, *FIELDS))
    return [blinded(one, source) if rng.random() < 0.7 else one for one in found] if source else found


def blinded(sample: Sample, source: str) -> Sample:
    if source in SOURCES:
        return msgspec.structs.replace(sample, **{source: Blind("not permitted")})
    if not isinstance(sample.processes, Seen):
        return sample
    nothing = () if source == "threads" else Blind("not permitted")
    return msgspec.structs.replace(
        sample, processes=Seen(tuple(msgspec.structs.replace(one, **{source: nothing}) for one in sample.processes.value))
    )


@pytest.fixture(scope="module")
def told() -> dict[str, tuple[list[Sample], object]]:
    """Every story once: telling them costs more than judging them."""
    profile = {"an idle server": SGLANG}
    stories = {
        name: scene(tell, seconds=SECONDS, **({"profile": profile[name]} if name in profile else {}))
        for name, tell in {**LIVE, **HUNG}.items()
    }
    return {name: (story.samples, story.profile) for name, story in stories.items()}


@pytest.mark.parametrize("name", LIVE)
def test_a_live_history_is_never_hung_and_is_not_suspected_into_it_by_perturbation(name: str, told) -> None:
    samples, profile = told[name]
    assert verdict_of(samples, profile) != "hung"
    rng = random.Random(name)
    for _ in range(3):
        assert verdict_of(perturbed(samples, rng), profile) != "hung"


@pytest.mark.parametrize("name", HUNG)
def test_a_hung_history_is_found_and_never_called_slow_or_passed(name: str, told) -> None:
    samples, profile = told[name]
    assert verdict_of(samples, profile) == "hung"
    rng = random.Random(name)
    for _ in range(3):
        assert verdict_of(perturbed(samples, rng), profile) in ("hung", "undecided")


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(sorted(LIVE)),
    sources=st.sets(st.sampled_from(SOURCES + FIELDS), min_size=1),
    share=st.floats(0.1, 1.0),
    seed=st.integers(0, 99),
)
def test_blinding_sources_never_turns_a_history_into_a_hang(name: str, sources: set[str], share: float, seed: int, told) -> None:
    samples, profile = told[name]
    rng = random.Random(seed)
    for source in sorted(sources):
        samples = [blinded(one, source) if rng.random() < share else one for one in samples]
    assert verdict_of(samples, profile) != "hung"


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(LIVE) + sorted(HUNG)), by=st.integers(0, 10**6))
def test_shifting_all_times_changes_nothing(name: str, by: int, told) -> None:
    samples, profile = told[name]
    later = [msgspec.structs.replace(one, t=one.t + by) for one in samples]
    asked = msgspec.structs.replace(question(), since=T0 + by)
    assert judge(later, profile, asked, later[-1].t).rule == judge(samples, profile, question(), samples[-1].t).rule
