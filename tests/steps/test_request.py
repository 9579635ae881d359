"""request on a real server: the answer, the numbers of its window, and what happens when none comes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runbook.hosts.local import connect_local
from runbook.lang.expressions import Unknown
from runbook.steps.request import Answering, ExpectAnswer, Request
from runbook.steps.wait_healthy import WaitHealthy
from tests.steps.serving import Serving, free_port, plain_server, serving
from tests.support.context import LocalContext

__all__ = ["serving"]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server that is ready; the tests of this file share it, since a request leaves nothing behind."""
    state, folder = tmp_path_factory.mktemp("state"), tmp_path_factory.mktemp("run")
    host = connect_local(via=["env", f"XDG_STATE_HOME={state}"])
    found = Serving(host, folder, "sglang")
    try:
        assert found.launch("--load", "0.1").do("up", WaitHealthy(server="server")).verdict == "passed"
        yield found
    finally:
        found.close()
        host.close()


@pytest.mark.slow
def test_an_answer_is_given_as_data(up: Serving) -> None:
    result = up.do("chat", Request(server="server", get="/echo", params={"n": 3, "deep": True}, headers={"X-Tag": "a b"}))
    assert (result.verdict, result.fields["http_status"]) == ("passed", 200)
    assert result.fields["json"]["path"] == "/echo?n=3&deep=true"
    assert {name.lower(): value for name, value in result.fields["json"]["headers"].items()}["x-tag"] == "a b"
    assert result.fields["headers"]["content-type"] == "application/json"
    assert result.fields["bytes"] == len(result.fields["text"]) and 0 < result.fields["latency"] < 5


@pytest.mark.parametrize(
    ("get", "expect", "verdict"),
    [
        ("/nothing", ExpectAnswer(), "failed"),
        ("/nothing", ExpectAnswer(status=404, text="no such"), "passed"),
        ("/echo", ExpectAnswer(status=[200, 201], json={"path": "/echo"}), "passed"),
        ("/echo", ExpectAnswer(json={"path": "/other"}), "failed"),
    ],
)
def test_the_answer_is_held_against_what_was_expected(up: Serving, get: str, expect: ExpectAnswer, verdict: str) -> None:
    assert up.do("chat", Request(server="server", get=get, expect=expect)).verdict == verdict


@pytest.mark.slow
def test_acceptance_length_comes_from_the_log_lines_of_the_window(up: Serving) -> None:
    up.do("before", Request(server="server", post="/v1/chat/completions", json={"steps": 1, "accept": 1.0}))
    result = up.do("chat", Request(server="server", post="/v1/chat/completions", json={"steps": 3, "accept": 4.5}))
    assert result.fields["metrics"]["accept_length"] == pytest.approx(4.5)
    assert result.fields["metrics_info"]["accept_length"] == {"source": "log", "n": 3}


def test_a_number_in_the_answer_comes_before_the_log(up: Serving) -> None:
    body = {"steps": 1, "accept": 1.0, "meta": {"completion_tokens": 40, "spec_verify_ct": 10}}
    result = up.do("chat", Request(server="server", post="/generate", json=body))
    assert result.fields["metrics"]["accept_length"] == 4.0
    assert result.fields["metrics_info"]["accept_length"]["source"].startswith("response")


def test_no_number_is_unknown_with_its_reason(up: Serving) -> None:
    result = up.do("chat", Request(server="server", post="/v1/chat/completions", json={"steps": 0}))
    value = result.fields["metrics"]["accept_length"]
    assert isinstance(value, Unknown) and "40 decode forwards" in value.reason


def test_a_stream_has_ttft_and_tokens(up: Serving) -> None:
    result = up.do("chat", Request(server="server", post="/v1/chat/completions", json={"stream": True}, stream=True))
    assert (result.verdict, result.fields["tokens"], result.fields["text"]) == ("passed", 3, "one two three")
    assert 0 < result.fields["ttft"] < result.fields["latency"]
    assert result.fields["tokens_per_s"] > 0


@pytest.mark.slow
def test_many_requests_give_percentiles(up: Serving) -> None:
    result = up.do("load", Request(server="server", get="/echo", times=9, parallel=3))
    spread = result.fields["percentiles"]
    assert result.verdict == "passed" and spread["p50"] <= spread["p90"] <= spread["max"]


@pytest.mark.slow
def test_a_server_that_dies_meanwhile_is_crashed(serving: Serving) -> None:
    assert serving.launch("--load", "0.1").do("up", WaitHealthy(server="server")).verdict == "passed"
    result = serving.do("chat", Request(server="server", get="/die"))
    assert (result.verdict, result.kind) == ("crashed", "exception")
    assert "the draft has no fc" in result.reason
    assert isinstance(result.fields["json"], Unknown)


@pytest.mark.slow
def test_a_box_that_ends_while_it_decodes_is_slow(up: Serving) -> None:
    result = up.do("chat", Request(server="server", post="/v1/chat/completions", json={"steps": 300}), box_s=1.5)
    assert (result.verdict, "Decode batch" in result.diagnosis.progress["steps"]) == ("slow", True)


def test_a_bare_url_has_no_numbers(local_host, tmp_path) -> None:
    with plain_server(body=b"not json") as port:
        result = LocalContext(local_host, tmp_path).do(Request(url=f"http://127.0.0.1:{port}", get="x"))
    assert (result.verdict, result.fields["metrics"]) == ("passed", {})
    assert isinstance(result.fields["json"], Unknown)


@pytest.mark.slow
def test_a_refused_connection_is_failed(local_host, tmp_path) -> None:
    result = LocalContext(local_host, tmp_path, box_s=1).do(Request(url=f"http://127.0.0.1:{free_port()}", get="/"))
    assert (result.verdict, "refused" in result.reason) == ("failed", True)


@pytest.mark.parametrize(
    "step",
    [
        Request(get="/"),
        Request(server="s"),
        Request(server="s", get="/", post="/"),
        Request(server="s", post="/", json=1, data="x"),
        Request(server="s", get="/", parallel=2),
    ],
)
def test_mistakes_are_found_before_anything_runs(step: Request) -> None:
    assert len(step.problems()) == 1


def test_a_request_whose_link_was_lost_says_nothing_about_the_server() -> None:
    """Whatever the samples hold: nobody knows whether it was handled, and it is not sent again."""
    goal = object.__new__(Answering)
    goal._lost = "the connection was reset"
    answer = goal.judge([], 0.0, final=True)
    assert answer is not None and (answer.verdict, answer.rule) == ("unreachable", "request_lost") and "not sent again" in answer.reason
