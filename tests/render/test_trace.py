"""The trace: what Perfetto's JSON importer asks for, and where the time went."""

from __future__ import annotations

import json
from collections import defaultdict

from hypothesis import given

from runbook.model.event import ActionEnded, ActionStarted, Found, Interrupted, PhaseReached, RunEnded, SampleTaken, StepEnded, StepStarted
from runbook.model.gpu import GpuSample
from runbook.model.sample import CheckSample, IoSample, LogSample, ProcessSample, Sample, Seen
from runbook.model.verdict import Finding
from runbook.render.trace import trace
from tests.render.histories import histories, thorough
from tests.render.test_summary import HEADER


def valid(text: str) -> list[dict]:
    """The events, after a structural check: phases known, times in order, spans of a thread nested, every id named."""
    document = json.loads(text, parse_constant=lambda word: 1 / 0)
    events = document["traceEvents"]
    timed = [event for event in events if event["ph"] != "M"]
    assert [event["ts"] for event in timed] == sorted(event["ts"] for event in timed)
    processes = {event["pid"] for event in events if event["name"] == "process_name" and event["ph"] == "M"}
    threads = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name" and event["ph"] == "M"}
    stacks: dict[tuple, list[int]] = defaultdict(list)
    for event in timed:
        assert isinstance(event["name"], str) and isinstance(event["ts"], int) and event["ts"] >= 0 and event["pid"] in processes
        assert event["ph"] in ("X", "C", "i")
        if event["ph"] == "X":
            assert isinstance(event["dur"], int) and event["dur"] >= 0
            lane = (event["pid"], event["tid"])
            assert lane in threads
            while stacks[lane] and stacks[lane][-1] <= event["ts"]:
                stacks[lane].pop()
            assert not stacks[lane] or event["ts"] + event["dur"] <= stacks[lane][-1], "two spans of a thread overlap"
            stacks[lane].append(event["ts"] + event["dur"])
        if event["ph"] == "C":
            assert event["args"] and all(isinstance(value, (int, float)) for value in event["args"].values())
        if event["ph"] == "i":
            assert event["s"] in ("g", "p", "t")
    return events


def sample(t: float, read: int, status: int | None = None) -> SampleTaken:
    check = CheckSample(url="u", outcome="answer" if status else "refused", latency_s=0.1, status=status)
    process = ProcessSample(pid=7, start=1, ppid=1, state="S", title="t", rss=1, io=Seen(IoSample(rchar=read, read_bytes=0, wchar=0)))
    return SampleTaken(
        t=t,
        step="up",
        sample=Sample(
            t=t,
            host="box",
            host_t=t,
            boot_id="b",
            server="srv",
            processes=Seen((process,)),
            log=Seen(LogSample(path="/l", inode=1, size=read, offset=0, end=read // 2)),
            check=Seen(check),
            gpus=Seen((GpuSample(index=0, name="g", used=read * 2, total=10**9),)),
        ),
    )


RUN = [
    HEADER,
    StepStarted(t=2.0, step="up", type="wait_healthy", host="box"),
    ActionStarted(t=2.1, id="a1", step="up", host="box", action="connect"),
    ActionEnded(t=2.2, id="a1", step="up", host="box", action="connect", ok=True),
    PhaseReached(t=3.0, step="up", server="srv", phase="weights", rank=0),
    PhaseReached(t=3.5, step="up", server="srv", phase="weights", rank=1),
    sample(4.0, 100),
    PhaseReached(t=5.0, step="up", server="srv", phase="warmup", rank=0),
    sample(5.0, 300),
    sample(6.0, 300, 200),
    StepEnded(t=7.0, step="up", type="wait_healthy", host="box", status="failed", verdict="hung", kind="stopped", reason="r", seconds=5.0),
    Found(t=7.1, finding=Finding(code="foreign_requests", text="x")),
    Interrupted(t=7.2, by="SIGINT"),
    RunEnded(t=8.0, verdict="hung", kind="stopped", exit_code=3, reason="r"),
]


def test_steps_acts_and_the_phases_of_each_rank_are_spans():
    events = valid(trace(RUN))
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    spans = {(lanes[e["pid"], e["tid"]], e["name"]): (e["ts"], e["dur"]) for e in events if e["ph"] == "X"}
    assert spans == {
        ("steps", "up"): (2_000_000, 5_000_000),
        ("steps", "connect"): (2_100_000, 100_000),
        ("srv rank 0", "weights"): (3_000_000, 2_000_000),
        ("srv rank 0", "warmup"): (5_000_000, 2_000_000),
        ("srv rank 1", "weights"): (3_500_000, 3_500_000),
    }


def test_bytes_read_log_bytes_and_gpu_memory_are_counters():
    events = valid(trace(RUN))
    counters = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            counters[event["name"]].append(event["args"]["B"])
    assert counters["read of srv (total)"] == [0, 200, 200]
    assert counters["GPU 0 memory"] == [200, 600, 600] and counters["log of srv (total)"] == [50, 150, 150]


def test_a_change_of_the_check_a_finding_an_interruption_and_the_verdict_are_marks():
    marks = [(e["name"], e["ts"]) for e in valid(trace(RUN)) if e["ph"] == "i"]
    assert marks == [
        ("check: refused", 4_000_000),
        ("check: 200", 6_000_000),
        ("foreign_requests", 7_100_000),
        ("SIGINT", 7_200_000),
        ("hung/stopped", 8_000_000),
    ]


def test_a_step_without_an_end_lasts_as_long_as_the_journal_and_is_marked_so():
    (span,) = [e for e in valid(trace([*RUN[:2], sample(9.0, 1)])) if e["ph"] == "X"]
    assert span["dur"] == 7_000_000 and span["args"]["unfinished"] is True


def test_spans_that_overlap_go_to_lanes_of_their_own():
    events = [HEADER, *(StepStarted(t=float(n), step=f"s{n}", type="run", host="box") for n in (2, 3))]
    events += [
        StepEnded(t=t, step=f"s{n}", type="run", host="box", status="passed", verdict="passed", seconds=1.0)
        for n, t in ((2, 5.0), (3, 6.0))
    ]
    assert len({e["tid"] for e in valid(trace(events)) if e["ph"] == "X"}) == 2


@thorough(8)
@given(histories())
def test_any_history_is_a_valid_trace(events):
    text = trace(events)
    valid(text)
    assert text.isascii()
