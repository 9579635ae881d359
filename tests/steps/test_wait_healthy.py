"""wait_healthy on real servers: every end but a bare timeout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runbook.diagnose.baseline import kin, usual
from runbook.lang.expressions import Unknown
from runbook.model.sample import Seen
from runbook.model.usual import MeasuredStart
from runbook.steps.wait_healthy import ExpectHealthy, WaitHealthy
from tests.steps.serving import Serving, free_port, plain_server, serving
from tests.support.context import LocalContext
from tests.support.processes import state_of
from tests.support.waiting import until

__all__ = ["serving"]


@pytest.mark.slow
def test_a_server_that_comes_up_is_passed_with_its_phases_and_identity(serving: Serving) -> None:
    result = serving.launch("--load", "0.2").do("up", WaitHealthy(server="server"))
    assert (result.verdict, result.diagnosis.rule, result.diagnosis.confidence) == ("passed", "ready", "proven")
    phases = {row["name"]: row["seconds"] for row in result.fields["phases"]}
    assert list(phases) == ["args", "weights", "http", "ready"]
    assert all(seconds is not None for seconds in phases.values())
    assert result.fields["ready_after"] >= 0.2
    assert result.fields["server_info"]["model_path"] == "tiny"
    assert (result.fields["checks"]["status"], result.fields["checks"]["body_bytes"]) == (200, 0)
    assert result.fields["diagnosis"]["verdict"] == "passed"


@pytest.mark.slow
def test_a_word_wanted_from_an_empty_body_is_a_wrong_check_at_once(serving: Serving) -> None:
    """The founding case: waiting on is pointless, and what to use instead is said."""
    result = serving.launch().do("up", WaitHealthy(server="server", expect=ExpectHealthy(body="ok")), box_s=60)
    assert (result.verdict, result.diagnosis.rule) == ("wrong_check", "never_matches")
    assert "empty by design" in result.reason and "status" in result.diagnosis.next[0]
    assert serving.ctx.clock.now() - serving.ctx.samples[0].t < 10


@pytest.mark.slow
def test_a_503_while_it_warms_up_is_waited_through(serving: Serving, tmp_path: Path) -> None:
    warm = tmp_path / "warm"

    def was_503() -> bool:
        return any(isinstance(sample.check, Seen) and sample.check.value.status == 503 for sample in serving.ctx.samples)

    with ThreadPoolExecutor(1) as warmer:
        done = warmer.submit(lambda: until(was_503) and warm.touch())
        result = serving.launch("--warm-until", str(warm)).do("up", WaitHealthy(server="server", interval="200ms"))
        done.result(5)
    assert result.verdict == "passed"


@pytest.mark.slow
def test_a_server_that_dies_of_an_exception_is_crashed_with_its_first_cause(serving: Serving) -> None:
    result = serving.launch("--load", "1", "--fails", "hidden size is not a multiple of 3").do("up", WaitHealthy(server="server"))
    assert (result.verdict, result.kind) == ("crashed", "exception")
    assert "ValueError: hidden size is not a multiple of 3" in result.reason
    assert isinstance(result.fields["ready_after"], Unknown)


@pytest.mark.slow
def test_a_box_that_ends_while_weights_load_is_slow_with_rate_and_eta(serving: Serving) -> None:
    result = serving.launch("--load", "60").do("up", WaitHealthy(server="server"), box_s=2.5)
    assert (result.verdict, result.diagnosis.phase) == ("slow", "weights")
    assert result.diagnosis.progress["bar"].endswith("/600")
    assert 20 < result.diagnosis.eta_s < 200
    assert state_of(serving.pid) in "SR"


@pytest.mark.slow
def test_somebody_elses_answer_on_our_port_is_the_wrong_server(serving: Serving) -> None:
    """A stale server answers all through a new load, since the engine binds its port last."""
    serving.launch("--load", "60")
    with plain_server(serving.port):
        result = serving.do("up", WaitHealthy(server="server"))
    assert result.verdict == "wrong_server"
    assert result.diagnosis.culprit.pid == os.getpid()


@pytest.mark.slow
def test_another_model_than_launched_is_an_invalid_experiment(serving: Serving) -> None:
    result = serving.launch("--model-path", "/m/right", "--says-model", "/m/wrong").do("up", WaitHealthy(server="server"))
    assert (result.verdict, result.diagnosis.rule) == ("invalid_experiment", "server_identity")
    assert "/m/right" in result.reason and "/m/wrong" in result.reason


@pytest.mark.slow
def test_info_that_was_expected_otherwise_is_an_invalid_experiment(serving: Serving) -> None:
    result = serving.launch().do("up", WaitHealthy(server="server", expect=ExpectHealthy(info={"tp_size": 8})))
    assert result.verdict == "invalid_experiment"
    assert "tp_size is 1, wanted 8" in result.reason


@pytest.mark.slow
def test_a_stopped_server_is_hung_and_a_loading_one_is_not(serving: Serving) -> None:
    serving.launch("--load", "60")
    stopper = threading.Timer(0.5, os.kill, (serving.pid, signal.SIGSTOP))
    stopper.start()
    result = serving.do("up", WaitHealthy(server="server"), box_s=60)
    assert (result.verdict, result.kind, result.diagnosis.culprit.pid) == ("hung", "stopped", serving.pid)
    os.kill(serving.pid, signal.SIGCONT)
    until(lambda: state_of(serving.pid) != "T")
    assert serving.do("up", WaitHealthy(server="server"), box_s=13).verdict == "slow"


@pytest.mark.slow
def test_a_bare_url_is_only_checked(local_host, tmp_path) -> None:
    with plain_server(body=b'{"status": "ok"}') as port:
        step = WaitHealthy(url=f"http://127.0.0.1:{port}", expect=ExpectHealthy(json={"status": "ok"}), consecutive=2)
        result = LocalContext(local_host, tmp_path).do(step)
    assert (result.verdict, result.fields["checks"]["count"]) == ("passed", 2)


@pytest.mark.slow
def test_a_url_that_is_written_out_is_asked_as_it_is(local_host, tmp_path) -> None:
    """A file server has no `/health`, and its `/` is a path like any other; what asks elsewhere is told which key names it."""
    command = [sys.executable, "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={"PYTHONUNBUFFERED": "1"}) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split("(")[1].split(")")[0]
        root = LocalContext(local_host, tmp_path).do(WaitHealthy(url=url))
        elsewhere = LocalContext(local_host, tmp_path, box_s=2).do(WaitHealthy(url=url.rstrip("/")))
        server.terminate()
    assert url.endswith("/") and (root.verdict, root.fields["checks"]["status"]) == ("passed", 200), root.reason
    assert elsewhere.verdict == "undecided" and "`path:` or `url:`" in elsewhere.diagnosis.next[0]
    assert "--" not in elsewhere.diagnosis.next[0]


@pytest.mark.slow
def test_a_bare_url_that_refuses_is_undecided_at_the_end(local_host, tmp_path) -> None:
    result = LocalContext(local_host, tmp_path, box_s=0.6).do(WaitHealthy(url=f"http://127.0.0.1:{free_port()}/health"))
    assert (result.verdict, "refused" in result.reason) == ("undecided", True)


def test_a_server_that_was_never_launched_is_undecided(local_host, tmp_path) -> None:
    result = LocalContext(local_host, tmp_path).do(WaitHealthy(server="server"))
    assert (result.verdict, "was not launched" in result.reason) == ("undecided", True)


def test_check_mode_asks_nothing(local_host, tmp_path) -> None:
    result = LocalContext(local_host, tmp_path, check_mode=True).do(WaitHealthy(server="server"))
    assert result.verdict == "passed" and isinstance(result.fields["ready_after"], Unknown)


@pytest.mark.parametrize(
    ("step", "where"),
    [(WaitHealthy(), ""), (WaitHealthy(server="a", url="http://h"), ""), (WaitHealthy(server="a", interval="5"), "interval")],
)
def test_mistakes_are_found_before_anything_runs(step: WaitHealthy, where: str) -> None:
    assert [problem[0] for problem in step.problems()] == [where]


@pytest.mark.slow
def test_a_start_is_measured_and_told_beside_earlier_ones(serving):
    """From the launch to the first good answer, its phases with their silences; a wait on what was up already measures nothing."""
    first = serving.launch("--load", "2").do("up", WaitHealthy(server="server"))
    ((ready_s, phases),) = serving.ctx.took
    assert ready_s == first.fields["ready_after"] > 2 and "usually" not in first.reason
    weights = next(phase for phase in phases if phase.name == "weights")
    assert 0.5 < weights.seconds < ready_s and weights.quiet_s is not None and weights.quiet_s < weights.seconds
    assert isinstance(first.fields["usual"], Unknown)
    serving.ctx.known_times = usual([MeasuredStart(kin=kin("h", (), "sglang", ()), ready_s=ready_s, phases=phases)], age_s=0.0)
    again = serving.do("again", WaitHealthy(server="server"))
    assert again.verdict == "passed" and again.fields["usual"]["ready"]["longest_s"] == ready_s
    assert len(serving.ctx.took) == 1, "it was up already"
