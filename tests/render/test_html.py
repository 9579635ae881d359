"""The page answers what its reader asks first, says what it leaves out, and can be read without eyes, colour, mouse or network."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys

import msgspec
import pytest

from runbook.model.event import (
    EvidenceSaved,
    Found,
    HostConnected,
    PhaseReached,
    Registered,
    RunEnded,
    RunSuspended,
    SampleTaken,
    StepEnded,
    StepStarted,
)
from runbook.model.sample import Absent, CheckSample, ProcessSample, Sample, Seen
from runbook.model.verdict import Diagnosis, Evidence, Finding
from runbook.render.html import LIMIT, html
from runbook.render.page.budget import DROP_ORDER
from runbook.render.page.style import DARK, LIGHT
from tests.render.long_wait import LOADS_S, ODD, events, numbered
from tests.render.test_html_hostile import parsed, seen
from tests.render.test_summary import HEADER

HUNG = html(numbered(events()))


def section(page: str, id: str) -> str:
    """The markup of a section."""
    found = re.search(rf'<section [^>]*id="{id}".*?</section>', page, re.S)
    assert found, f"no section {id}"
    return found[0]


def has(page: str, id: str) -> bool:
    return f'id="{id}"' in page


def run(*middle, verdict="passed", **more):
    """A small run of these events."""
    end = RunEnded(t=100.0, verdict=verdict, exit_code=0 if verdict == "passed" else 1, reason="every step passed", **more)
    return list(numbered([msgspec.structs.replace(HEADER, t=1.0), *middle, end]))


# the answer ----------------------------------------------------------------------------------------------------------


def test_the_banner_of_a_hang_says_what_where_since_when_and_who():
    banner = seen(section(HUNG, "verdict"))
    assert "Hung" in banner and "stopped" in banner
    assert "up (wait_healthy) on box, phase weights" in banner
    assert "nothing has moved since 14:38:20 UTC, 35m before the verdict" in banner
    assert f"rank {ODD}, sglang::scheduler_TP{ODD}, pid {100 + ODD}" in banner
    assert "proven" in banner and "exit code 3" in banner


def test_sections_stand_in_the_order_in_which_they_are_read():
    ids = re.findall(r'<section [^>]*id="([a-z]+)"', HUNG)
    assert ids == ["verdict", "evidence", "step", "time", "environment", "steps", "playbook", "files", "events"]


def test_evidence_leads_to_the_events_it_was_seen_in():
    linked = re.findall(r'href="#(e\d+)"', section(HUNG, "evidence"))
    assert len(linked) == 2 and set(linked) <= set(re.findall(r'id="(e\d+)"', HUNG))


def test_every_link_inside_the_page_has_a_place_to_go_and_every_place_one_name():
    ids = re.findall(r' id="([^"]+)"', HUNG)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', HUNG)) <= set(ids)


@pytest.mark.parametrize(
    ("verdict", "reason", "since"),
    [
        ("crashed", "the server was ended by SIGKILL", "it ended at 00:00:50 UTC, 39s after its start"),
        ("wrong_check", "the body is empty by design", "it has answered 200, empty body since 00:00:30 UTC"),
        ("slow", "still working in phase weights", "in phase weights since 00:00:20 UTC, 1m10s before the end of the box"),
    ],
)
def test_other_verdicts_say_since_when_in_their_own_terms(verdict, reason, since):
    from runbook.model.sample import ExitSample

    look = Sample(t=31.0, host="box", host_t=31.0, boot_id="b", server="server")
    check = CheckSample(url="u", outcome="answer", status=200, body_bytes=0, latency_s=1.0)
    ended = ExitSample(code=None, signal="SIGKILL", lived_s=39.0)
    page = html(
        run(
            Registered(t=10.0, kind="launch", step="server", host="box", data={}),
            StepStarted(t=11.0, step="up", type="wait_healthy", host="box"),
            PhaseReached(t=20.0, step="up", server="server", phase="weights"),
            SampleTaken(t=31.0, step="up", sample=msgspec.structs.replace(look, check=Seen(check))),
            SampleTaken(t=50.0, step="up", sample=msgspec.structs.replace(look, t=50.0, exit=Seen(ended))),
            StepEnded(
                t=90.0, step="up", type="wait_healthy", host="box", status="failed", verdict=verdict, reason=reason, seconds=79.0,
                diagnosis=Diagnosis(verdict=verdict, rule="r", reason=reason, phase="weights"),
            ),
            verdict=verdict, failed_step="up",
        )
    )  # fmt: skip
    assert since in seen(section(page, "verdict"))


def test_a_suspended_run_that_was_cancelled_still_shows_why_it_was_suspended():
    reason = "the server is still working"
    diagnosis = Diagnosis(verdict="slow", rule="slow", reason=reason, evidence=(Evidence(signal="read", value=175928, unit="B"),))
    end = StepEnded(
        t=40.0,
        step="up",
        type="wait_healthy",
        host="box",
        status="unknown",
        verdict="slow",
        seconds=30.0,
        reason=reason,
        diagnosis=diagnosis,
    )
    suspended = RunSuspended(t=41.0, verdict="slow", kind="on_track", exit_code=4, reason=reason, step="up", expires=99.0)
    page = html(run(StepStarted(t=10.0, step="up", type="wait_healthy", host="box"), end, suspended, verdict="interrupted"))
    assert f"Before that it was suspended as slow: {reason}" in seen(section(page, "verdict"))
    assert "171.8KiB" in seen(section(page, "evidence"))


def test_the_line_that_the_verdict_quotes_is_marked_among_the_last_lines():
    cause = "RuntimeError: mat1 and mat2 shapes cannot be multiplied"
    end = StepEnded(
        t=20.0, step="go", type="run", host="box", status="failed", verdict="failed", seconds=1.0, reason="r",
        result={"stdout": "\n".join([*(f"line {i}" for i in range(60)), cause, "after"])},
        diagnosis=Diagnosis(verdict="failed", rule="r", reason="r", evidence=(Evidence(signal="first_cause", value=cause),)),
    )  # fmt: skip
    page = html(run(StepStarted(t=19.0, step="go", type="run", host="box"), end, verdict="failed", failed_step="go"))
    step = section(page, "step")
    assert re.findall(r"<mark>([^<]*)</mark>", step) == [cause]
    assert "50 lines before" in step and "line 0" in step


def test_our_own_probe_lines_are_told_apart_from_the_servers():
    from runbook.model.sample import LogSample

    ours = '{"runbook": "' + HEADER.run + '/taps/1", "seq": 1}'
    log = LogSample(path="/l", inode=1, size=9, offset=0, end=9, lines=("Load weight begin", ours))
    sample = Sample(t=12.0, host="box", host_t=12.0, boot_id="b", server="server", log=Seen(log))
    end = StepEnded(t=20.0, step="up", type="wait_healthy", host="box", status="failed", verdict="hung", seconds=1.0, reason="r")
    page = html(
        run(
            StepStarted(t=11.0, step="up", type="wait_healthy", host="box"),
            SampleTaken(t=12.0, step="up", sample=sample),
            end,
            verdict="hung",
            failed_step="up",
        )
    )
    shown = seen(section(page, "step"))
    assert "Load weight begin" in shown and "taps/1" not in shown and "1 line of our own probes" in shown


# time ----------------------------------------------------------------------------------------------------------------


def rows(page: str) -> dict[str, str]:
    """The rows of the figure by their labels."""
    return {
        found[1]: found[0]
        for found in re.finditer(r'<div class="row[^"]*"><div class="label">([^<]*)</div>.*?<div class="value">.*?</div></div>', page, re.S)
    }


def test_the_odd_rank_stands_out_in_its_lane_and_in_each_plot():
    lanes = rows(HUNG)
    assert 'class="state"' in lanes[f"rank {ODD}"] and "stopped for 34m" in lanes[f"rank {ODD}"]
    assert 'class="row odd"' in lanes[f"rank {ODD}"] and 'class="row odd"' not in lanes["rank 0"]
    for signal in ("bytes read", "mapped weights", "thread run time"):
        assert lanes[signal].count('class="odd"') == 1 and lanes[signal].count('class="even"') == 7


def test_the_stretch_in_which_nothing_moved_is_shaded_in_every_row_and_no_bar_stands_in_it():
    begin = 1000 * LOADS_S / 3600
    for name, row in rows(HUNG).items():
        if name == "time":
            continue
        (shade,) = re.findall(r'<rect x="([\d.]+)" [^>]*class="stall"', row)
        assert abs(float(shade) - begin) < 2
        for x, width in re.findall(r'<rect x="([\d.]+)" [^>]*?width="([\d.]+)" [^>]*class="moved"', row):
            assert float(x) + float(width) <= begin + 5, name


@pytest.mark.slow
def test_a_load_that_goes_on_has_bars_to_the_end_and_no_shade():
    loading = itertools.takewhile(lambda event: not (isinstance(event, StepEnded) and event.step == "up"), events(600.0, still_after=1e9))
    page = html(numbered(loading))
    bars = re.findall(r'<rect x="([\d.]+)" [^>]*?width="([\d.]+)" [^>]*class="moved"', rows(page)["bytes read"])
    assert float(bars[-1][0]) + float(bars[-1][1]) > 985
    assert 'class="stall"' not in section(page, "time")


def test_a_rank_that_died_has_a_lane_that_ends():
    def look(t, *ranks):
        alive = tuple(ProcessSample(pid=10 + r, start=1, ppid=1, state="S", title=f"sglang::scheduler_TP{r}", rss=1, rank=r) for r in ranks)
        return SampleTaken(t=t, step="up", sample=Sample(t=t, host="box", host_t=t, boot_id="b", server="s", processes=Seen(alive)))

    started = StepStarted(t=10.0, step="up", type="wait_healthy", host="box")
    page = html(
        run(
            started,
            look(11.0, 0, 1),
            PhaseReached(t=12.0, step="up", server="s", phase="weights", rank=1, label="TP1"),
            look(13.0, 0, 1),
            look(15.0, 0),
            look(20.0, 0),
        )
    )
    lanes = rows(page)
    assert ">gone<" in lanes["rank 1"] and 'class="gone"' in lanes["rank 1"] and "gone" not in lanes["rank 0"]


def test_phases_end_where_their_rank_left_them():
    def phase(t, rank, **more):
        return PhaseReached(t=t, step="up", server="s", phase="weights", rank=rank, label=f"TP{rank}", **more)

    look = SampleTaken(t=110.0, step="up", sample=Sample(t=110.0, host="box", host_t=1.0, boot_id="b", server="s", processes=Absent("")))
    launch = Registered(t=10.0, kind="launch", step="s", host="box", data={})
    page = html(
        run(launch, StepStarted(t=10.0, step="up", type="wait_healthy"), phase(10.0, 0), phase(10.0, 1), phase(60.0, 0, ended=True), look)
    )
    lanes = rows(page)
    assert "weights done" in lanes["rank 0"] and "weights for 1m40s" in lanes["rank 1"]


def test_every_picture_has_words_and_every_figure_a_table():
    pictures = re.findall(r"<svg [^>]*>", HUNG)
    assert pictures and all('role="img"' in each and re.search(r'aria-label="[^"]{10,}"', each) for each in pictures)
    tables = re.findall(r"<caption>([^<]*)</caption>", section(HUNG, "time"))
    assert {"Lanes of server", "bytes read, after", "GPU memory, after", "log lines, after", "thread run time, after"} <= set(tables)
    spoken = next(each for each in pictures if "bytes read" in each)
    assert "+0B in 34m58s" in spoken and f"rank {ODD}:" in spoken


# the rest ------------------------------------------------------------------------------------------------------------


def test_hits_diffs_findings_files_and_targets_are_on_the_page():
    tensor = {"shape": [60, 192], "dtype": "float32", "device": "cpu", "mean": -0.13493, "std": 2.089, "nan": 0}
    hits = [{"hidden": tensor, "rank": i % 2, "pid": 7, "time": 1.79e9 + i, "seq": i, "probe": 0} for i in range(70)]
    page = html(
        run(
            HostConnected(t=2.0, host="box", address="u@box", seconds=0.1, facts={"hostname": "node7", "user": "u", "python_version": "3.11"}),
            StepStarted(t=3.0, step="taps", type="patch", host="box"),
            StepEnded(t=3.5, step="taps", type="patch", host="box", status="passed", verdict="passed", seconds=0.5, result={"path": "/m.py", "diff": "--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n-old\n+new\n same\n"}),
            StepStarted(t=4.0, step="seen", type="expect_probe", host="box"),
            StepEnded(t=5.0, step="seen", type="expect_probe", host="box", status="passed", verdict="passed", seconds=1.0, reason="fired: 70 hits", result={"hits": hits}),
            Found(t=5.0, finding=Finding(code="not_in_log", text="the log has no line of it")),
            EvidenceSaved(t=6.0, step="server", file="evidence/server/a b.log", bytes=2048, about="the log"),
            EvidenceSaved(t=6.0, step="server", file="../../etc/passwd", bytes=1, about="x"),
        )
    )  # fmt: skip
    parsed(page)
    probes = section(page, "probes")
    assert probes.count("[60 × 192]") == 60 and "mean -0.1349" in probes and "and 10 more hits" in probes
    assert "<ins>+new</ins>" in page and "<del>-old</del>" in page
    assert "not_in_log" in section(page, "findings") and "node7" in section(page, "environment")
    assert 'href="./evidence/server/a%20b.log"' in page and "2KiB" in page
    assert "../../etc/passwd" in page and 'href="./../' not in page and 'href="../' not in page


def test_what_excludes_the_other_explanations_of_a_silence_is_on_the_page():
    result = {"outcome": "not_reached", "hits": [], "excluded": [{"explanation": "stale bytecode ran", "by": "the <code> reports"}]}
    seen = StepEnded(t=5.0, step="seen", type="expect_probe", host="box", status="passed", verdict="passed", seconds=1.0, result=result)
    page = html(run(StepStarted(t=4.0, step="seen", type="expect_probe", host="box"), seen))
    parsed(page)
    assert "stale bytecode ran" in section(page, "probes") and "the &lt;code&gt; reports" in section(page, "probes")


def test_stacks_of_equal_ranks_are_one_group():
    groups = [{"ranks": [0, 1, 3], "frames": ["all_reduce (distributed.py:12)"]}, {"ranks": [2], "frames": ["forward (model.py:3)"]}]
    diagnosis = Diagnosis(verdict="hung", rule="desync", reason="r", evidence=(Evidence(signal="stacks", value=groups),))
    end = StepEnded(t=9.0, step="up", type="wait_healthy", status="failed", verdict="hung", seconds=1.0, reason="r", diagnosis=diagnosis)
    page = section(html(run(StepStarted(t=8.0, step="up", type="wait_healthy"), end, verdict="hung", failed_step="up")), "evidence")
    assert "Stacks: 2 groups" in page and "ranks 0, 1, 3" in page and "forward (model.py:3)" in page


def test_a_run_without_an_end_or_a_header_is_still_a_page():
    assert "Running" in seen(html([]))
    assert "Running" in seen(html(run(StepStarted(t=8.0, step="up", type="run"))[:-1]))


def test_all_steps_have_their_time_as_a_bar_on_the_runs_own_axis():
    steps = [
        StepStarted(t=1.0, step="a", type="run"), StepEnded(t=26.0, step="a", type="run", status="passed", verdict="passed", seconds=25.0),
        StepStarted(t=51.0, step="b", type="run"), StepEnded(t=100.0, step="b", type="run", status="passed", verdict="passed", seconds=49.0),
    ]  # fmt: skip
    bars = re.findall(r'<i style="left:([\d.]+)%;width:([\d.]+)%"', html(run(*steps)))
    assert [(round(float(x)), round(float(w))) for x, w in bars] == [(0, 25), (51, 49)]


def test_thousands_of_steps_keep_those_that_failed_and_say_what_is_left_out():
    many = []
    for i in range(1_500):
        verdict = "failed" if i == 700 else "passed"
        many += [
            StepStarted(t=2.0, step=f"s{i}", type="run"),
            StepEnded(t=3.0, step=f"s{i}", type="run", status=verdict, verdict=verdict, seconds=1.0),
        ]
    steps = section(html(run(*many)), "steps")
    assert ">s0<" in steps and ">s700<" in steps and ">s1499<" in steps and ">s600<" not in steps
    assert "steps are left out here; events.jsonl has them" in steps


# bounds --------------------------------------------------------------------------------------------------------------


def test_an_hour_of_eight_ranks_stays_far_below_the_limit():
    assert len(HUNG.encode()) < LIMIT / 2


@pytest.mark.slow
def test_what_gives_way_goes_in_a_fixed_order_is_named_and_never_the_answer():
    history = list(numbered(events(200.0, still_after=100.0)))
    whole = re.findall(r'<section [^>]*id="([a-z]+)"', html(history))
    gone: list[str] = []
    for limit in (60_000, 40_000, 28_000, 18_000, 16_000):
        page = html(history, limit)
        assert len(page.encode()) <= limit
        assert all(has(page, id) for id in ("verdict", "evidence", "step"))
        gone += [id for id in whole if not has(page, id) and id not in gone]
        if gone:
            assert "left out" in seen(page) and "the whole is in events.jsonl" in seen(page)
    assert gone == [id for id in DROP_ORDER if id in gone] and len(gone) >= 4, gone


@pytest.mark.slow
def test_a_list_of_events_that_is_too_long_says_which_numbers_it_leaves_out():
    listed = section(HUNG, "events")
    assert re.search(r"[\d,]+ events, [\d,]+ of them listed", listed)
    assert re.search(r"\d+–\d+: in events.jsonl only", listed)
    assert 'id="e0"' in listed, "the beginning is kept"
    assert f'id="e{len(list(events())) - 1}"' in listed, "and so is the end"


@pytest.mark.slow
def test_fifty_thousand_events_become_a_page_in_three_seconds_and_150_megabytes():
    """The bound in seconds is for an idle processor: a loop of known length tells how much slower this one is."""
    code = (
        "import time; from tests.render.long_wait import kib_for, seconds_for\n"
        "kib = kib_for(50_000); began = time.process_time(); sum(n for n in range(10_000_000)); loop = time.process_time() - began\n"
        "print(kib, seconds_for(50_000), loop)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    kib, seconds, loop = map(float, said.stdout.split())
    slower = max(1.0, loop / 0.45)
    assert seconds <= 3.0 * slower, f"{seconds} s where an idle processor is {slower:.1f} times as fast"
    assert kib <= 150 * 1024


# reading -------------------------------------------------------------------------------------------------------------


def test_there_is_no_script_no_request_and_a_policy_that_forbids_both():
    assert "default-src &#x27;none&#x27;; style-src &#x27;unsafe-inline&#x27;; img-src data:" in HUNG
    assert not re.search(r"<script|<iframe|<link|<img|@import|url\(|https?://|javascript:| on[a-z]+=", HUNG)


def test_headings_go_down_one_level_at_a_time_and_begin_with_the_verdict():
    levels = [int(level) for level in re.findall(r"<h([1-6])", HUNG)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_what_scrolls_can_be_reached_with_the_keyboard():
    assert all('tabindex="0"' in each for each in re.findall(r'<pre[^>]*>|<div [^>]*class="wide"[^>]*>', HUNG))
    assert re.search(r'<body><a href="#verdict" class="skip">', HUNG)


def channel(part: str) -> float:
    value = int(part, 16) / 255
    return value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = digits if len(digits) == 6 else "".join(each * 2 for each in digits)
    red, green, blue = (channel(digits[i : i + 2]) for i in (0, 2, 4))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


PAIRS = [
    *((ink, ground) for ink in ("ink", "soft", "link") for ground in ("page", "card", "code")),
    *((f"{tone}", f"{tone}-bg") for tone in ("bad", "wait", "good", "none")),
    *((tone, "card") for tone in ("bad", "wait", "good", "none")),
    *(("ink", ground) for ground in ("stall", "add", "del", *(f"p{i}" for i in range(8)))),
    ("page", "bad"), ("bad", "page"), ("bad", "bad-bg"), ("soft", "wait-bg"),
]  # fmt: skip


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_text_has_a_contrast_of_four_and_a_half_to_its_ground(theme):
    colours = dict(re.findall(r"--([a-z0-9-]+):(#[0-9a-f]{3,6})", theme))
    for ink, ground in PAIRS:
        bright, dark = sorted((luminance(colours[ink]), luminance(colours[ground])), reverse=True)
        ratio = (bright + 0.05) / (dark + 0.05)
        assert ratio >= 4.5, f"{ink} on {ground}: {ratio:.2f}"
