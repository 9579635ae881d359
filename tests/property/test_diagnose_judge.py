"""What holds for every history: blind is never guilt, time may shift, recordings judge the same."""

from __future__ import annotations

import os

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runbook.diagnose.ends import moved
from runbook.diagnose.judge import judge
from runbook.diagnose.view import View
from runbook.model.gpu import GpuHolder, GpuSample
from runbook.model.question import Expectation, Question
from runbook.model.sample import (
    Absent,
    Blind,
    CheckSample,
    ExitSample,
    IoSample,
    ListenerSample,
    LogSample,
    PressureSample,
    ProcessSample,
    Sample,
    Seen,
    ThreadSample,
)
from runbook.model.usual import Range, Usual
from runbook.model.verdict import EXIT_CODES
from tests.diagnose.stories import GENERIC, READY, SGLANG, T0, WEIGHTS, shard

EARLIER = Usual(
    age_s=40.0,
    ready=Range(name="ready", runs=2, shortest_s=20.0, median_s=25.0, longest_s=30.0),
    phases=(Range(name="weights", runs=2, shortest_s=1.0, median_s=2.0, longest_s=3.0, quiet_s=1.0),),
)
SOURCES = ("processes", "exit", "log", "check", "listeners", "gpus", "pressure", "link")
LINES = [
    *WEIGHTS.splitlines(),
    READY.strip(),
    *(shard(n).strip() for n in range(1, 6)),
    "Traceback (most recent call last):",
    "  File 'a.py', line 1",
    "ValueError: bad",
    "Killed",
    "",
    "[2031-04-02 08:20:00] Watchdog timeout (self.watchdog_timeout=300)",
]
MANY = int(os.environ.get("RUNBOOK_EXAMPLES", "10"))
SETTINGS = settings(max_examples=MANY, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

small = st.integers(0, 10**12)


def source(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.one_of(values.map(Seen), st.just(Absent("nothing there")), st.sampled_from([Blind("permission denied"), Blind("not asked")]))


threads = st.builds(ThreadSample, tid=st.integers(1, 9), state=st.sampled_from("RSDT"), run_ns=small, wait_ns=small, switches=small)
processes = st.builds(
    ProcessSample,
    pid=st.integers(1, 4),
    start=st.just(7),
    ppid=st.integers(0, 3),
    state=st.sampled_from("RSDTTTZ"),
    title=st.sampled_from(["python -m sglang.launch_server", "sglang::scheduler_TP0", "cicc", ""]),
    rss=small,
    threads=st.lists(threads, max_size=1).map(tuple),
    rank=st.sampled_from([None, 0, 1]),
    io=source(st.builds(IoSample, rchar=small, read_bytes=small, wchar=small)),
    mapped_weights=source(small),
)
tables = st.lists(processes, max_size=3, unique_by=lambda row: row.pid).map(tuple)
texts = st.one_of(st.sampled_from(LINES), st.text(max_size=40), st.from_regex(r"[a-z ]{0,9}\d{1,30}(/| of )\d{1,30}%?", fullmatch=True))
logs = st.builds(
    LogSample,
    path=st.just("/l"),
    inode=st.integers(1, 2),
    size=small,
    offset=small,
    end=small,
    lines=st.lists(texts, max_size=4).map(tuple),
    skipped=st.integers(0, 3),
    rotated=st.booleans(),
)
checks = st.builds(
    CheckSample,
    url=st.sampled_from(["http://127.0.0.1:1/health", "http://[::1]:1/x", "http://[bad", ""]),
    outcome=st.sampled_from(["answer", "refused", "timeout", "reset", "error"]),
    latency_s=st.floats(0, 60),
    status=st.sampled_from([None, 200, 404, 503]),
    body_bytes=st.sampled_from([None, 0, 7]),
    matched=st.booleans(),
    mismatch=st.sampled_from(["", "body", "status"]),
)
listeners = st.lists(
    st.builds(
        ListenerSample,
        pid=st.integers(0, 4),
        start=small,
        title=st.text(max_size=5),
        ours=st.booleans(),
        address=st.sampled_from(["", "127.0.0.1:1", "[::]:1"]),
        age_s=st.none(),
    ),
    max_size=2,
).map(tuple)
holders = st.lists(st.builds(GpuHolder, pid=st.integers(1, 4), used=st.sampled_from([None, 5, 10**10])), max_size=1).map(tuple)
gpus = st.lists(st.builds(GpuSample, index=st.integers(0, 1), name=st.just("g"), used=small, total=small, holders=holders), max_size=2).map(
    tuple
)
exits = st.builds(
    ExitSample,
    code=st.sampled_from([None, 0, 1, 137]),
    signal=st.sampled_from([None, "KILL", "TERM"]),
    lived_s=st.floats(0, 4000),
    oom_killed=st.booleans(),
    killed_by_us=st.booleans(),
)


@st.composite
def histories(draw: st.DrawFn, ends: bool = True) -> list[Sample]:
    """Samples in time order; every second one or so is a quiet copy of the one before, so that stretches exist."""
    samples: list[Sample] = []
    t = T0
    for _ in range(draw(st.integers(1, 6))):
        t += draw(st.sampled_from([0.0, 0.5, 2.0, 6.0, 11.0]))
        if samples and draw(st.booleans()):
            samples.append(msgspec.structs.replace(samples[-1], t=t))
            continue
        samples.append(
            Sample(
                t=t,
                host="h",
                host_t=t,
                boot_id="b",
                processes=draw(source(tables)),
                exit=draw(source(exits)) if ends and draw(st.booleans()) else Absent(),
                log=draw(source(logs)),
                check=draw(source(checks)),
                listeners=draw(source(listeners)),
                gpus=draw(source(gpus)),
                pressure=draw(source(st.builds(PressureSample, cpu=st.floats(0, 100), io=st.floats(0, 100), memory=st.floats(0, 100)))),
                link=draw(st.sampled_from([Seen(0.1), Seen(0.1), Absent("lost")])),
            )
        )
    return samples


@st.composite
def nearly_stopped(draw: st.DrawFn) -> list[Sample]:
    """A stopped main process beside a rank that moves once, in one of its counters or in the log."""
    samples: list[Sample] = []
    looks = draw(st.integers(4, 6))
    mover, moves_at = draw(st.sampled_from(["io", "mapped_weights", "log"])), draw(st.integers(1, looks - 1))
    for look in range(looks):
        done = 10**8 if look >= moves_at else 0
        io = Seen(IoSample(rchar=done if mover == "io" else 0, read_bytes=0, wchar=0))
        main = ProcessSample(pid=1, start=7, ppid=0, state="T", title="python", rss=1, io=io)
        pages = Seen(done if mover == "mapped_weights" else 0)
        rank = ProcessSample(pid=2, start=7, ppid=1, state="S", title="r", rss=1, rank=0, io=io, mapped_weights=pages)
        said = mover == "log" and look >= moves_at
        offset = 9 if mover == "log" and look > moves_at else 0
        log = LogSample(path="/l", inode=1, size=9 * said, offset=offset, end=9 * said, lines=("new words",) if said and not offset else ())
        t = T0 + 5.0 * look
        samples.append(
            Sample(t=t, host="h", host_t=t, boot_id="b", processes=Seen((main, rank)), exit=Absent(), log=Seen(log), link=Seen(0.1))
        )
    return samples


@st.composite
def questions(draw: st.DrawFn) -> Question:
    return Question(
        about=draw(st.sampled_from(["healthy", "request", "settle", "gpu_free"])),
        since=T0 - draw(st.sampled_from([0.0, 5.0, 500.0])),
        box_s=draw(st.sampled_from([1.0, 30.0, 3600.0])),
        final=draw(st.booleans()),
        expect=draw(
            st.sampled_from(
                [Expectation(), Expectation(body="ok"), Expectation(body="("), Expectation(status=(204,)), Expectation(json={"a": 1})]
            )
        ),
        consecutive=draw(st.integers(0, 3)),
        below=draw(small),
        stable_for_s=draw(st.sampled_from([0.0, 3.0])),
        usual=draw(st.sampled_from([None, EARLIER])),
    )


profiles = st.sampled_from([SGLANG, GENERIC])
ALL_BUT_THE_PROSE = ("verdict", "rule", "confidence", "phase", "progress", "eta_s", "quiet_s", "culprit")


@SETTINGS
@given(histories(), profiles, questions())
def test_judge_never_raises_and_answers_at_the_end(samples, profile, question) -> None:
    verdict = judge(samples, profile, question, samples[-1].t)
    assert verdict is None or verdict.verdict in EXIT_CODES
    assert not question.final or verdict is not None
    moved(View(samples, profile, question, samples[-1].t))


@SETTINGS
@given(histories(), profiles, questions())
def test_what_earlier_starts_took_proves_nothing(samples, profile, question) -> None:
    """It tells late from on_track of what is slow anyway."""
    asked = [msgspec.structs.replace(question, usual=usual) for usual in (None, EARLIER)]
    one, other = (judge(samples, profile, each, samples[-1].t) for each in asked)
    if one is None or other is None:
        assert one is other
        return
    assert all(getattr(one, name) == getattr(other, name) for name in ALL_BUT_THE_PROSE)
    assert one.kind == other.kind or (one.kind, other.kind) == ("on_track", "late")


@SETTINGS
@given(profiles, questions())
def test_no_sample_at_all_is_undecided_at_the_end(profile, question) -> None:
    final = msgspec.structs.replace(question, final=True)
    assert judge([], profile, final, T0).verdict == "undecided"


@SETTINGS
@given(histories(), profiles, questions())
def test_a_recording_is_judged_as_it_was_live(samples, profile, question) -> None:
    now = samples[-1].t
    replayed = msgspec.json.decode(msgspec.json.encode(samples), type=list[Sample])
    asked = msgspec.json.decode(msgspec.json.encode(question), type=Question)
    assert judge(replayed, profile, asked, now) == judge(samples, profile, question, now) == judge(samples, profile, question, now)


@SETTINGS
@given(histories(), profiles, questions(), st.integers(-(10**6), 10**6))
def test_shifting_all_times_changes_nothing(samples, profile, question, by) -> None:
    shifted = [msgspec.structs.replace(sample, t=sample.t + by, host_t=sample.host_t + by) for sample in samples]
    later = msgspec.structs.replace(question, since=question.since + by)
    assert judge(shifted, profile, later, shifted[-1].t) == judge(samples, profile, question, samples[-1].t)


@settings(SETTINGS, max_examples=3 * MANY)
@given(histories(ends=False), profiles, questions(), st.data())
def test_a_blind_sample_never_makes_a_verdict_hung(samples, profile, question, data) -> None:
    before = judge(samples, profile, question, samples[-1].t)
    index = data.draw(st.integers(0, len(samples) - 1))
    blinded = list(samples)
    names = data.draw(st.sets(st.sampled_from(("processes", "log", "gpus", "listeners", "pressure")), min_size=1))
    blinded[index] = msgspec.structs.replace(samples[index], **{name: Blind("permission denied") for name in names})
    after = judge(blinded, profile, question, blinded[-1].t)
    assert after is None or after.verdict != "hung" or (before is not None and before.verdict == "hung")


@settings(SETTINGS, max_examples=20 * MANY)
@given(nearly_stopped(), st.data())
def test_hiding_what_moved_never_makes_a_stopped_process_a_hang(samples, data) -> None:
    question = Question(about="healthy", since=T0, box_s=60)
    before = judge(samples, GENERIC, question, samples[-1].t)
    blinded = [_hide(sample, data.draw(st.sampled_from(["", "", "", "log", "io", "mapped_weights", "processes"]))) for sample in samples]
    after = judge(blinded, GENERIC, question, blinded[-1].t)
    assert after is None or after.verdict != "hung" or (before is not None and before.verdict == "hung")


def _hide(sample: Sample, name: str) -> Sample:
    """The same look, without rights for one source."""
    blind = Blind("permission denied")
    if name in ("io", "mapped_weights"):
        assert isinstance(sample.processes, Seen)
        return msgspec.structs.replace(
            sample, processes=Seen(tuple(msgspec.structs.replace(row, **{name: blind}) for row in sample.processes.value))
        )
    return msgspec.structs.replace(sample, **{name: blind}) if name else sample
