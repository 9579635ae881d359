"""The page of a real run in a real browser: its answer is seen at once, it asks for nothing, and it can be read in any way."""

from __future__ import annotations

import http.server
import os
import signal
import threading
from pathlib import Path

import pytest
import yaml

from runbook.engine.journal import read_events
from runbook.model.event import PhaseReached, StepEnded
from runbook.onhost.procs import descendants
from tests.e2e.cli import STORY, Outcome, start
from tests.support.chromium import Browser
from tests.support.waiting import until

pytestmark = pytest.mark.e2e
STOPPED = 2


@pytest.fixture(scope="module")
def hung(lab, tmp_path_factory) -> Outcome:
    """A run whose server of four ranks has one stopped while it loads."""
    folder = tmp_path_factory.mktemp("hung")
    playbook = yaml.safe_load(STORY.read_text())
    flags = f"--port {_free_port()} --speculative-algorithm EAGLE3 --ranks 4 --load-rate 40KiB".split()
    launch = next(step["launch"] for step in playbook["steps"] if "launch" in step)
    launch["command"] = ["python", "-m", "lab_engine.launch_server", *flags]
    path = folder / "hung.yaml"
    path.write_text(yaml.safe_dump(playbook, sort_keys=False))
    run = folder / "run"
    child = start("run", path, "--json", "--out", run, state=lab.state)
    try:
        os.kill(until(lambda: _rank_that_loads(run / "events.jsonl"), 90), signal.SIGSTOP)
        out, err = child.communicate(timeout=150)
    finally:
        child.kill()
    return Outcome(child.returncode, out, err)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _rank_that_loads(journal: Path) -> int | None:
    """The pid of the rank to stop, once it loads weights: of the launched server's processes, the one whose title names it."""
    events = read_events(journal.read_bytes()) if journal.exists() else []
    if not any(isinstance(event, PhaseReached) and event.rank == STOPPED and event.phase == "weights" for event in events):
        return None
    server = next(event.result["pid"] for event in events if isinstance(event, StepEnded) and "pid" in event.result)
    titled = [pid for pid in descendants(server) if f"scheduler_TP{STOPPED}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return titled[0] if titled else None


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def page(hung, browser):
    return browser.open(Path(hung.json["transcript"]["html"]))


def test_the_journal_tells_the_phases_of_each_rank(hung):
    assert (hung.code, hung.json["verdict"], hung.json["kind"]) == (3, "hung", "stopped"), hung.err
    phases = [event for event in hung.events if isinstance(event, PhaseReached) and not event.whole]
    assert {event.rank for event in phases if event.phase == "weights"} == {0, 1, 2, 3}
    assert any(event.phase == "dist_init" and event.ended for event in phases)


def test_the_verdict_is_above_the_fold_with_where_since_when_and_the_rank(page):
    seen = page.above_the_fold()
    for part in (
        "Hung",
        "stopped",
        f"rank {STOPPED}",
        f"sglang::scheduler_TP{STOPPED}",
        "phase weights",
        "nothing has moved since",
        "exit code 3",
    ):
        assert part in seen, f"{part!r} is not in: {seen}"


def test_the_lane_of_the_stopped_rank_is_the_odd_one(page):
    lanes = page.evaluate(
        "[...document.querySelectorAll('.row')].map(row => [row.children[0].textContent, row.className, row.children[2].textContent])"
    )
    ranks = {label: (classes, value) for label, classes, value in lanes if label.startswith("rank ")}
    assert set(ranks) == {f"rank {number}" for number in range(4)}
    assert [label for label, (classes, _) in ranks.items() if "odd" in classes] == [f"rank {STOPPED}"]
    assert ranks[f"rank {STOPPED}"][1].startswith("stopped for")


def test_the_browser_has_nothing_to_complain_of_and_is_asked_for_nothing_else(page, hung):
    assert page.complaints() == []
    assert page.requested() == [Path(hung.json["transcript"]["html"]).resolve().as_uri()]


def test_the_policy_holds_even_against_what_does_not_belong_on_the_page(hung, browser, tmp_path):
    """What the test above would see if something got in: here it does get in, and is kept from the network."""
    asked: list[str] = []

    class Note(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Note) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        evil = f'<img src="{url}/i"><script src="{url}/s"></script><script>document.title="owned"</script><link rel="stylesheet" href="{url}/c">'
        copy = tmp_path / "evil.html"
        copy.write_text(Path(hung.json["transcript"]["html"]).read_text().replace("<body>", f"<body>{evil}"))
        opened = browser.open(copy)
        assert len([line for line in opened.complaints() if "Content Security Policy" in line]) >= 3, opened.complaints()
        assert opened.evaluate("document.title") != "owned"
        server.shutdown()
    assert asked == []


def test_every_link_can_be_reached_and_followed_with_the_keyboard(page):
    page.evaluate("document.activeElement.blur()")
    targets = []
    for _ in range(7):
        page.press("Tab")
        targets.append(page.evaluate("document.activeElement.getAttribute('href')"))
    assert targets[0] == "#verdict" and {"#evidence", "#time", "#steps"} <= set(targets)
    page.evaluate("document.querySelector('#evidence a').focus()")
    anchor = page.evaluate("document.activeElement.getAttribute('href')")
    page.press("Enter")
    until(lambda: page.evaluate(f"document.querySelector('{anchor}').closest('details').open"))


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_and_a_narrow_window_fit(hung, browser, dark):
    opened = browser.open(Path(hung.json["transcript"]["html"]), width=400, dark=dark)
    assert opened.evaluate("document.documentElement.scrollWidth") <= 400
    ground = [int(part) for part in opened.evaluate("getComputedStyle(document.body).backgroundColor")[4:-1].split(",")]
    assert (max(ground) < 60) if dark else (min(ground) > 200)
    assert len(opened.screenshot()) > 5_000 and "Hung" in opened.above_the_fold()


def test_a_long_name_of_a_phase_fits_a_narrow_window_too(hung, browser, tmp_path):
    copy = tmp_path / "long.html"
    copy.write_text(Path(hung.json["transcript"]["html"]).read_text().replace("weights", "weights_of_the_target_and_of_the_draft_model"))
    assert browser.open(copy, width=400).evaluate("document.documentElement.scrollWidth") <= 400


def test_it_prints_on_a_few_sheets(page):
    assert page.pdf().startswith(b"%PDF")


def test_a_passed_run_says_so_above_the_fold_with_its_figure(lab, port, browser):
    outcome = lab.runbook("run", STORY, "-e", f"port={port}", "--json")
    assert outcome.code == 0, outcome.err
    opened = browser.open(Path(outcome.json["transcript"]["html"]))
    seen = opened.above_the_fold()
    assert "Passed" in seen and "every step passed" in seen and "bytes read" in seen
    assert opened.complaints() == []
    assert "[60 × 192]" in opened.evaluate("document.querySelector('#probes').textContent")
