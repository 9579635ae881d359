"""Histories of any shape for the property tests: hostile texts in every field that a host or another machine can fill."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from runbook.model.event import (
    ActionEnded,
    ActionStarted,
    EvidenceSaved,
    Found,
    HostConnected,
    Interrupted,
    Moved,
    PhaseReached,
    RunEnded,
    RunStarted,
    RunSuspended,
    SampleTaken,
    StepEnded,
    StepStarted,
)
from runbook.model.gpu import GpuSample
from runbook.model.sample import Absent, Blind, CheckSample, IoSample, LogSample, ProcessSample, Sample, Seen, ThreadSample
from runbook.model.verdict import EXIT_CODES, Culprit, Diagnosis, Evidence, Finding


def thorough(examples: int) -> settings:
    """Settings of a property over histories: more with RUNBOOK_EXAMPLES; never shrunk, since that takes minutes and the case is printed."""
    most = int(os.environ.get("RUNBOOK_EXAMPLES", examples))
    return settings(
        max_examples=most, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.reuse, Phase.generate]
    )


HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(1)>",
    "</details></summary>\n\n# I am the verdict\n",
    "```\nout of the fence\n```` ~~~\n",
    "`a` ``b` `<b>` `c`` d`",
    "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x1b[0m \x9b1m \x00 \x07",
    "\u202egnp.exe\u2066 \u200b \ufeff \ufffe",
    "bad \udcff\ud800 bytes",
    "| a | b |\n| --- |\n|| \\| \\\\|",
    "@everyone #1 \n/close\n::error::owned ##[group]x",
    "]]>&amp;<!-- --> <?php ?> <![CDATA[",
    "=cmd|' /C calc'!A0",
    "$x^2$ *b* _i_ [l](javascript:alert(1)) ![i](http://e/x.png)",
    "1. one\n- two\n    code\n\t> q",
    "\r 12%\r 100%\r\n",
    "",
)


class Long(str):
    """A text of many bytes, short in a failing test's message."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "LONG"


LONG = Long("A`*<\u20ac\U0001f600\x1b[1m@b" * 30_000)

texts = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(), max_size=40), st.just(LONG))
words = st.one_of(st.sampled_from(["up", "server", "taps", "lab", ""]), texts)
small = st.integers(0, 2**40)
times = st.one_of(st.floats(1.79e9, 1.79e9 + 100), st.sampled_from([0.0, -5.0, 1e18]))
seconds = st.floats(0, 1e6)
plain: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=True), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=5,
)
verdicts = st.sampled_from([word for word in EXIT_CODES if word != "invalid"])
diagnoses = st.builds(
    Diagnosis,
    verdict=verdicts,
    rule=words,
    reason=texts,
    kind=st.none() | words,
    confidence=st.none() | words,
    progress=st.dictionaries(words, plain, max_size=2),
    culprit=st.none() | st.builds(Culprit, host=words, title=texts, note=texts, pid=st.none() | small, rank=st.none() | small),
    evidence=st.lists(st.builds(Evidence, signal=words, value=plain, unit=words, points_to=words), max_size=4).map(tuple),
    blind=st.lists(texts, max_size=3).map(tuple),
    next=st.lists(texts, max_size=3).map(tuple),
)
claims = st.lists(
    st.fixed_dictionaries(
        {"that": texts, "because": texts, "outcome": st.sampled_from(["true", "false", "unknown"]), "note": texts},
        optional={"parts": st.lists(st.fixed_dictionaries({"source": texts, "value": texts}), max_size=2)},
    ),
    max_size=3,
)
phases = st.lists(st.fixed_dictionaries({"name": words, "start": plain, "seconds": plain, "ranks": plain}), max_size=3)
hits = st.lists(st.dictionaries(words, st.one_of(plain, st.just({"shape": [2, 64], "mean": 0.5, "nan": 0})), max_size=3), max_size=3)
excluded = st.lists(st.fixed_dictionaries({"explanation": texts | plain, "by": texts | plain}), max_size=2)
results = st.fixed_dictionaries(
    {},
    optional={
        "claims": claims | plain,
        "stderr": texts,
        "stdout": texts,
        "text": texts,
        "diff": texts,
        "argv": st.lists(texts, max_size=3) | plain,
        "versions": st.dictionaries(words, plain, max_size=2) | plain,
        "metrics": st.dictionaries(words, plain, max_size=2) | plain,
        "phases": phases | plain,
        "usual": st.fixed_dictionaries({"phases": phases | st.lists(plain, max_size=2), "ready": plain}) | plain,
        "hits": hits | plain,
        "excluded": excluded | plain,
        "env": plain,
    },
)


def source(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Seen, absent or blind."""
    return st.one_of(values.map(Seen), st.just(Absent("none")), texts.map(Blind))


processes = st.builds(
    ProcessSample,
    pid=st.integers(1, 3),
    start=st.just(1),
    ppid=st.just(0),
    state=st.just("S"),
    title=texts,
    rss=small,
    threads=st.lists(
        st.builds(ThreadSample, tid=st.just(1), state=st.just("S"), run_ns=small, wait_ns=small, switches=small), max_size=1
    ).map(tuple),
    io=source(st.builds(IoSample, rchar=small, read_bytes=small, wchar=small)),
    mapped_weights=source(small),
)
samples = st.builds(
    Sample,
    t=times,
    host=words,
    host_t=times,
    boot_id=st.just("b"),
    server=words,
    processes=source(st.lists(processes, max_size=2).map(tuple)),
    log=source(
        st.builds(LogSample, path=words, inode=small, size=small, offset=small, end=small, lines=st.lists(texts, max_size=3).map(tuple))
    ),
    check=source(
        st.builds(
            CheckSample, url=words, outcome=st.sampled_from(["answer", "refused"]), latency_s=seconds, status=st.none() | small, error=texts
        )
    ),
    gpus=source(st.lists(st.builds(GpuSample, index=st.integers(0, 1), name=words, used=small, total=small), max_size=2).map(tuple)),
)
steps = st.sampled_from(["up", "server", "taps"]) | texts
types = st.sampled_from(["assert", "launch", "wait_healthy", "expect_probe", "request", "run"]) | texts
middle = st.one_of(
    st.builds(StepStarted, t=times, step=steps, type=types, name=texts, host=words, attempt=st.integers(1, 2), box_s=st.none() | seconds),
    st.builds(
        StepEnded,
        t=times,
        step=steps,
        type=types,
        host=words,
        item=st.none() | st.integers(0, 2),
        status=st.sampled_from(["passed", "failed", "unknown", "skipped"]),
        verdict=st.none() | verdicts,
        kind=st.none() | words,
        reason=texts,
        seconds=seconds,
        result=results,
        diagnosis=st.none() | diagnoses,
        ignored=st.booleans(),
    ),
    st.builds(ActionStarted, t=times, id=st.sampled_from(["a1", "a2"]), step=steps, host=words, action=words, detail=results),
    st.builds(ActionEnded, t=times, id=st.sampled_from(["a1", "a2"]), step=steps, host=words, action=words, ok=st.booleans(), error=texts),
    st.builds(
        PhaseReached,
        t=times,
        step=steps,
        server=words,
        phase=words,
        rank=st.none() | st.integers(0, 2),
        line=texts,
        label=words,
        ended=st.booleans(),
    ),
    st.builds(SampleTaken, t=times, step=steps, sample=samples),
    st.builds(Moved, t=times, step=steps, host=words, phase=st.none() | words, text=texts, elapsed_s=seconds),
    st.builds(Found, t=times, finding=st.builds(Finding, code=words, text=texts)),
    st.builds(EvidenceSaved, t=times, step=steps, file=words, bytes=small, about=texts),
    st.builds(HostConnected, t=times, host=words, address=words, facts=st.dictionaries(words, plain, max_size=3), seconds=seconds),
    st.builds(Interrupted, t=times, by=words),
)
headers = st.builds(
    RunStarted,
    t=times,
    format=st.just(1),
    run=words,
    version=words,
    playbook=texts,
    playbook_text=texts,
    playbook_sha256=words,
    name=texts,
    targets=st.just({}),
    vars=st.dictionaries(words, plain, max_size=2),
)
ends = st.one_of(
    st.builds(
        RunEnded,
        t=times,
        verdict=verdicts,
        kind=st.none() | words,
        exit_code=st.integers(0, 143),
        reason=texts,
        failed_step=st.none() | steps,
        left_behind=st.lists(texts, max_size=5),
        next=st.lists(texts, max_size=5),
    ),
    st.builds(
        RunSuspended,
        t=times,
        verdict=verdicts,
        kind=st.none() | words,
        exit_code=st.integers(0, 9),
        reason=texts,
        step=steps,
        expires=times,
        next=st.lists(texts, max_size=2),
    ),
)


def histories(most: int = 12) -> st.SearchStrategy[list[Any]]:
    """Journals: a header or none, anything, an end or none."""
    head = st.lists(headers, max_size=1)
    return st.builds(lambda a, b, c: [*a, *b, *c], head, st.lists(middle, max_size=most), st.lists(ends, max_size=1))
