"""Comparison: what differs and nothing else; sides never swapped; numbers that always differ are no difference."""

from __future__ import annotations

from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given

from runbook.model.event import Found, HostConnected, RunEnded, SampleTaken, StepEnded
from runbook.model.sample import LogSample, Sample, Seen
from runbook.model.verdict import Finding
from runbook.render.compare import against, compare
from runbook.render.comparison import as_html, as_text
from runbook.render.facts import facts, flags
from tests.render.histories import histories, thorough
from tests.render.test_summary import HEADER


def tensor(width: int, mean: float = 0.5) -> dict:
    return {"shape": [60, width], "dtype": "float32", "device": "cpu", "mean": mean, "std": 1.0, "nan": 0}


def run(
    name: str = "r1",
    *,
    verdict: str = "passed",
    argv=("serve", "--algo", "EAGLE3"),
    seconds: float = 5.0,
    width: int = 192,
    accept: float = 4.98,
    torch: str = "2.13.0",
    log: tuple[str, ...] = ("[08:00:01] ready in 3.2s",),
    skipped: int = 0,
    python: str = "3.11.7",
) -> list:
    sample = Sample(
        t=2.0,
        host="box",
        host_t=2.0,
        boot_id="b",
        log=Seen(LogSample(path="/l", inode=1, size=9, offset=0, end=9, lines=log, skipped=skipped)),
    )
    ends = [
        {"step": "srv", "type": "launch", "result": {"argv": list(argv), "env": {"A": "1"}, "versions": {"torch": torch}}},
        {"step": "up", "type": "wait_healthy", "seconds": seconds, "result": {"phases": [{"name": "weights", "seconds": seconds - 1}]}},
        {"step": "chat", "type": "request", "result": {"status": 200, "metrics": {"accept_length": accept}}},
        {"step": "seen", "type": "expect_probe", "result": {"outcome": "fired", "hits": [{"hidden": tensor(width), "pid": 7}]}},
    ]
    made = [StepEnded(**{"status": "passed", "verdict": "passed", "seconds": 1.0, "t": 3.0, **end}) for end in ends]
    header = msgspec.structs.replace(HEADER, run=name, vars={"port": 8000})
    facts_of_host = HostConnected(host="box", address="a", facts={"hostname": "h", "python_version": python}, seconds=0.1)
    return [
        header,
        facts_of_host,
        SampleTaken(step="up", sample=sample, t=2.0),
        *made,
        RunEnded(verdict=verdict, exit_code=0, reason=f"of {name}", t=4.0),
    ]


def rows(result) -> dict[str, tuple]:
    return {f"{section.name}: {row.what}": (row.a, row.b) for section in result.sections for row in section.rows}


def test_equal_runs_have_no_difference_and_it_is_said_plainly():
    result = compare(run("r1", log=("[08:00:01] ready in 3.2s pid 77",)), run("r2", log=("[09:11:59] ready in 4.1s pid 9911",)))
    assert result.sections == () and result.same_verdict
    assert as_text(result).endswith("\nno difference\n") and "no difference" in as_html(result)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"verdict": "hung"}, {"verdict: verdict": ("passed", "hung"), "verdict: reason": ("of r1", "of r2")}),
        ({"argv": ("serve", "--algo", "EAGLE")}, {"launch: srv --algo": ("EAGLE3", "EAGLE")}),
        ({"argv": ("serve", "--algo", "EAGLE3", "--tp=2")}, {"launch: srv --tp": (None, "2")}),
        ({"torch": "2.12.0"}, {"versions: srv torch": ("2.13.0", "2.12.0")}),
        ({"python": "3.10"}, {"environment: box python_version": ("3.11.7", "3.10")}),
        ({"width": 64}, {"probes: seen hidden width": ("192", "64")}),
        ({"accept": 1.01}, {"metrics: chat accept_length": ("4.98", "1.01")}),
        ({"accept": 4.9}, {}),
        ({"seconds": 20.0}, {"durations: step up": ("5s", "20s"), "durations: phase up weights": ("4s", "19s")}),
        ({"seconds": 5.6}, {}),
        ({"log": ("[08:00:01] ready in 3.2s", "NCCL WARN x")}, {"log lines: new": (None, "NCCL WARN x")}),
        ({"log": ()}, {"log lines: gone": ("[08:00:01] ready in 3.2s", None)}),
    ],
)
def test_each_difference_is_found_alone_and_on_its_side(change, expected):
    result = compare(run("r1"), run("r2", **change))
    assert rows(result) == expected
    assert rows(compare(run("r2", **change), run("r1"))).keys() == {
        key.replace("new", "_").replace("gone", "new").replace("_", "gone") if "log" in key else key for key in expected
    }
    assert result.same_verdict == ("verdict" not in change)
    text, page = as_text(result), as_html(result)
    for a, b in expected.values():
        assert all(value is None or (value in text and value in page) for value in (a, b))


def test_findings_are_compared():
    found = [*run("r2"), Found(finding=Finding(code="foreign_requests", text="3 requests"))]
    assert rows(compare(run(), found)) == {"findings: foreign_requests": (None, "3 requests")}


def test_against_good_runs_only_what_none_of_them_had_is_a_difference():
    good = [
        facts(run("g1", seconds=5.0, torch="2.13.0")),
        facts(run("g2", seconds=9.0, torch="2.12.0", log=("a", "b"))),
        facts(run("g3", log=("b",))),
    ]
    result = against(good, facts(run("r", seconds=9.4, torch="2.12.0", log=("a",), verdict="crashed")))
    assert set(rows(result)) == {"verdict: verdict", "verdict: reason"}, "9.4 s is as long as one of the good ones"
    slow = against(good, facts(run("r", seconds=30.0)))
    (note,) = [row.note for section in slow.sections for row in section.rows if row.what == "step up"]
    assert "5s to 9s in 3 runs" in note and slow.a.runs == 3


def test_log_lines_are_capped_and_what_the_samples_left_out_is_a_note():
    result = compare(run("r1", skipped=5), run("r2", log=tuple(f"line {'x' * n}" for n in range(1, 99))))
    (section,) = result.sections
    assert len(section.rows) == 21 and section.more == 78
    assert "5 log lines of A are not in its samples" in result.notes[0] and "and 78 more" in as_text(result)


def test_a_command_line_is_read_flag_by_flag():
    assert dict(flags(["python", "-m", "srv", "--a", "1", "--b=2", "--on", "--temp", "-0.5", "-"])) == {
        "argument 0": "python",
        "-m": "srv",
        "--a": "1",
        "--b": "2",
        "--on": "set",
        "--temp": "-0.5",
        "argument 1": "-",
    }
    assert dict(flags(["exec srv --a 'x y'"])) == {"argument 0": "exec", "argument 1": "srv", "--a": "x y"}


@pytest.mark.parametrize("width", [40, 80, 120])
def test_both_sides_are_aligned_and_narrow_terminals_are_kept(width):
    text = as_text(compare(run("r1"), run("r2", torch="2.12.0", python="3.10", argv=("serve", "--a-very-long-flag-name", "v" * 90))), width)
    assert max(map(len, text.splitlines())) <= width
    lines = [line for line in as_text(compare(run("r1"), run("r2", accept=1.0, width=64)), 100).splitlines() if line.startswith("  seen")]
    assert len({line.index("  ", 3) for line in lines}) == 1


class Page(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)


@thorough(6)
@given(histories(6), histories(6))
def test_any_two_histories_compare_and_their_texts_are_inert(a, b):
    result = compare(a, b)
    page = Page()
    page.feed(as_html(result))
    assert page.tags <= set("html head meta title style body h1 h2 table tr th td p".split())
    assert all(char.isprintable() or char == "\n" for char in as_text(result))
    msgspec.json.encode(result)


@thorough(5)
@given(histories(8))
def test_a_run_never_differs_from_itself(events):
    assert compare(events, events).sections == ()
