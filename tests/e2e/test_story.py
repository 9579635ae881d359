"""The founding story on the lab: through real SSH, on real processes, with a really trained draft model."""

from __future__ import annotations

import hashlib
import html
import importlib.util
import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest
import yaml

from runbook.model.event import SampleTaken
from runbook.model.sample import Seen
from tests.e2e.cli import ROOT, STORY, Outcome, start
from tests.support.pages import missing, shown_as
from tests.support.waiting import until

pytestmark = pytest.mark.e2e
DRAFT = Path("lab_engine/models/llama_eagle3.py")


def nothing_stays(lab, outcome: Outcome) -> None:
    """No process, no file of ours, and the object says so."""
    assert outcome.json["left_behind"] == [], outcome.err
    assert lab.processes() == []
    assert lab.host_files() == []


def story(folder: Path, **changes) -> Path:
    """The shipped playbook with some steps changed: {step id or type: {key: value}}."""
    playbook = yaml.safe_load(STORY.read_text())
    for step in playbook["steps"]:
        for key, change in changes.items():
            kind = next(
                (name for name in step if isinstance(step[name], dict) and name in ("wait_healthy", "launch", "request", "patch")), None
            )
            if kind and key in (step.get("id"), kind):
                step[kind].update(change)
    path = folder / "story.yaml"
    path.write_text(yaml.safe_dump(playbook, sort_keys=False))
    return path


def fingerprint(path: Path) -> tuple[str, int, int]:
    """Hash, mode and modification time."""
    stat = path.stat()
    return hashlib.sha256(path.read_bytes()).hexdigest(), stat.st_mode, stat.st_mtime_ns


def as_shown(name: str, outcome: Outcome) -> None:
    """The README shows what this run printed."""
    assert missing(shown_as("README.md", name), outcome.err) is None, outcome.err


def rows(svg: str) -> list[str]:
    """Of a picture of a run: mark and name of each finished step, then the first two words of its end."""
    lines: dict[str, list[str]] = {}
    for y, text in re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>(.*?)</text>', svg):
        lines.setdefault(y, []).append(html.unescape(text).replace("\xa0", " "))
    joined = ["".join(parts) for parts in lines.values()]
    return [found[0] for line in joined if (found := re.match(r"[✓✗] ?\w+|(?:PASSED|FAILED) \(exit \d\)|cleanup: \w+", line))]


def as_pictured(name: str, outcome: Outcome) -> None:
    """The README's picture has the steps and the end of this run. `make picture` makes it anew."""
    spec = importlib.util.spec_from_file_location("make_pictures", ROOT / "docs" / "images" / "make.py")
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    made = rows(maker.picture(Path(outcome.json["transcript"]["dir"]), "title", name))
    assert len(made) > 8 and rows((ROOT / "docs" / "images" / f"{name}.svg").read_text(encoding="utf-8")) == made, made


@pytest.fixture(scope="module")
def right(lab):
    """The whole story as it should be: the draft's file before, and how the run ended."""
    before = fingerprint(lab.home / DRAFT)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return before, lab.runbook("run", STORY, "-e", f"port={port}", "--json")


def test_the_whole_story_passes_and_leaves_nothing(lab, right):
    before, outcome = right
    assert outcome.code == 0, outcome.err
    assert outcome.json["verdict"] == "passed" and outcome.json["cleanup"] == {"status": "passed"}
    assert fingerprint(lab.home / DRAFT) == before
    as_shown("passed", outcome)
    as_pictured("run_passed", outcome)
    nothing_stays(lab, outcome)
    folder = Path(outcome.json["transcript"]["dir"])
    assert (folder / "transcript.md").read_text().startswith("# EAGLE-3 fusion check: passed")
    assert "fired up and ready" in (folder / "evidence/server/server.log").read_text()


def test_the_skipped_fusion_is_shown_with_both_widths_and_the_acceptance_length(lab, port, right):
    outcome = lab.runbook("run", STORY, "-e", f"port={port}", "-e", "algorithm=EAGLE", "--json")
    assert outcome.code == 1, outcome.err
    assert outcome.json["verdict"] == "failed"
    claims = _claims(outcome)
    assert [claim["outcome"] for claim in claims] == ["false", "false"]
    shown = " ".join(part["source"] + "=" + part["value"] for claim in claims for part in claim["parts"])
    assert "64" in shown, "the width of the embeddings and of the one hidden layer"
    accept = float(next(part["value"] for part in claims[1]["parts"] if "accept_length" in part["source"]))
    assert 1.0 <= accept < 1.5
    as_shown("skipped", outcome)
    as_pictured("run_failed", outcome)
    nothing_stays(lab, outcome)
    compared = lab.runbook("compare", right[1].json["run"], outcome.json["run"])
    assert compared.code == 1 and missing(shown_as("docs/guides/reports.md", "compared"), compared.out) is None, compared.out


def _claims(outcome: Outcome) -> list[dict]:
    (end,) = [event for event in outcome.events if getattr(event, "type", "") == "assert" and hasattr(event, "verdict")]
    return end.result["claims"]


def test_a_check_for_text_in_an_empty_body_is_a_wrong_check_soon_after_the_first_200(lab, port, tmp_path):
    path = story(tmp_path, up={"expect": {"status": 200, "body": "ok"}})
    outcome = lab.runbook("run", path, "-e", f"port={port}", "--json")
    assert outcome.code == 7, outcome.err
    assert outcome.json["verdict"] == "wrong_check"
    assert "empty" in outcome.json["reason"] and outcome.json["next"]
    checks = [
        (event.sample.t, event.sample.check.value)
        for event in outcome.events
        if isinstance(event, SampleTaken) and isinstance(event.sample.check, Seen)
    ]
    first = next(t for t, check in checks if check.status == 200)
    end = next(event for event in outcome.events if getattr(event, "step", "") == "up" and hasattr(event, "verdict"))
    assert end.t - first < 10
    as_shown("wrong_check", outcome)
    nothing_stays(lab, outcome)


def test_a_launch_that_dies_of_an_exception_is_crashed_with_its_first_cause(lab, port, tmp_path):
    path = story(tmp_path, launch={"command": _command(port, "--crash-at", "load")})
    outcome = lab.runbook("run", path, "--json")
    assert outcome.code == 5, outcome.err
    assert outcome.json["verdict"] == "crashed" and outcome.json["kind"] == "exception"
    assert "sigquit" not in outcome.json["reason"].lower(), "an echo, not the cause"
    assert "RuntimeError" in outcome.json["reason"], outcome.json["reason"]
    nothing_stays(lab, outcome)


@pytest.fixture
def memory_group():
    """A memory cgroup of 700 MB: enough to import, too little for the hog."""
    folder = Path(f"/sys/fs/cgroup/memory/runbook-test-{os.getpid()}")
    unified = Path(f"/sys/fs/cgroup/runbook-test-{os.getpid()}")
    group = folder if folder.parent.is_dir() else unified
    group.mkdir()
    limit = group / ("memory.limit_in_bytes" if group is folder else "memory.max")
    limit.write_text(str(700 * 2**20))
    yield group
    until(lambda: not (group / "cgroup.procs").read_text().split())
    group.rmdir()


def test_a_launch_killed_by_a_real_memory_limit_is_crashed_oom_host(lab, port, tmp_path, memory_group):
    shell = f"echo $$ > {memory_group}/cgroup.procs; exec python -m lab_engine.launch_server --port {port} --mem-hog 4GiB"
    outcome = lab.runbook("run", story(tmp_path, launch={"command": shell, "port": port}), "--json")
    assert outcome.code == 5, outcome.err
    assert (outcome.json["verdict"], outcome.json["kind"]) == ("crashed", "oom_host")
    nothing_stays(lab, outcome)


def test_a_port_that_something_answers_already_is_wrong_server_and_nothing_starts(lab, port, tmp_path):
    with subprocess.Popen(
        ["python3", "-m", "http.server", str(port), "--bind", "127.0.0.1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as other:
        try:
            until(lambda: _answers(port))
            outcome = lab.runbook("run", STORY, "-e", f"port={port}", "--json")
        finally:
            other.terminate()
    assert outcome.code == 7, outcome.err
    assert outcome.json["verdict"] == "wrong_server" and str(port) in outcome.json["reason"]
    assert outcome.step("server")["verdict"] == "wrong_server"
    nothing_stays(lab, outcome)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _command(port: int, *more: str) -> list[str]:
    return ["python", "-m", "lab_engine.launch_server", "--port", str(port), "--speculative-algorithm", "EAGLE3", *more]


def test_a_wait_that_ends_while_weights_still_load_is_slow_and_suspended_until_cancel(lab, port, tmp_path):
    path = story(tmp_path, launch={"command": _command(port, "--load-rate", "20KiB")}, up={"timeout": "14s"})
    before = fingerprint(lab.home / DRAFT)
    outcome = lab.runbook("run", path, "--json")
    assert outcome.code == 4, outcome.err
    answer = outcome.json
    assert (answer["verdict"], answer["state"]) == ("slow", "suspended")
    assert any("cancel" in line for line in answer["next"]) and "expires" in answer
    assert any("scheduler" in title or "launch_server" in title for title in lab.processes()), "the server goes on loading"
    assert fingerprint(lab.home / DRAFT)[0] != before[0], "the patch is still in place"
    cancelled = lab.runbook("cancel", answer["run"], "--json")
    assert cancelled.code == 0, cancelled.err
    assert cancelled.json["state"] == "ended"
    assert fingerprint(lab.home / DRAFT) == before
    nothing_stays(lab, cancelled)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_in_the_middle_of_the_wait_cleans_up(lab, port, tmp_path, number, code):
    path = story(tmp_path, launch={"command": _command(port, "--load-rate", "20KiB")})
    before = fingerprint(lab.home / DRAFT)
    folder = tmp_path / "run"
    child = start("run", path, "--json", "--out", folder, state=lab.state)
    journal = folder / "events.jsonl"
    until(lambda: journal.exists() and '"step":"up"' in journal.read_text() and '"event":"sample"' in journal.read_text(), 60)
    assert fingerprint(lab.home / DRAFT)[0] != before[0], "the patch is in"
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    outcome = Outcome(child.returncode, out, err)
    assert outcome.code == code, err
    assert outcome.json["verdict"] == "interrupted"
    assert fingerprint(lab.home / DRAFT) == before
    nothing_stays(lab, outcome)
