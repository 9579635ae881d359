"""The client: what is tried again, where a token may travel, what is masked, and that every failure is one of ours."""

from __future__ import annotations

import email.utils
import inspect
import json
import threading

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.engine.redact import Mask
from runbook.tickets.base import Answer, File, Login, OutcomeUnknown, Refused, Request, TicketError, Unreachable, Upload, next_link
from runbook.tickets.bodies import as_json, encoded, multipart
from runbook.tickets.client import FAILURES, HttpClient, _Again, _translated
from runbook.tickets.dry import DryClient
from runbook.tickets.said import refusal, sentence
from tests.tickets.conftest import JumpingClock
from tests.tickets.stub import LOST, Reply, Seen, Stub, form

TOKEN = "tok_0123456789abcdef"


class Echo(Stub):
    """Answers 200 to everything."""

    def answer(self, seen: Seen) -> Reply:
        return 200, {}, {"path": seen.path}


@pytest.fixture
def echo(start):
    """A server that says yes."""
    return start(Echo)


@pytest.fixture
def client(echo):
    """A client with a token for it."""
    clock = JumpingClock()
    login = Login({"Authorization": f"Bearer {TOKEN}"}, {"Authorization": "Bearer ***T***"}, {"T": TOKEN}, "T")
    made = HttpClient(echo.url, login, mask=Mask({"T": TOKEN}).text, clock=clock, timeout=httpx.Timeout(2.0))
    made.clock = clock
    yield made
    made.close()


def get(url: str) -> Request:
    return Request(method="GET", url=url, repeatable=True)


@pytest.mark.parametrize("planned", [(429, {}, None), (502, {}, None), (503, {}, None), (504, {}, None), LOST])
def test_a_read_is_tried_again(echo, client, planned):
    echo.script["GET"] = [planned, planned]
    assert client.send(get(f"{echo.url}/x")).data == {"path": "/x"}
    assert len(client.clock.waits) == 2 and client.clock.waits[0] < client.clock.waits[1]


@pytest.mark.parametrize("planned", [(502, {}, None), (503, {"Retry-After": "9"}, None), (504, {}, None), LOST])
def test_a_write_whose_outcome_is_unknown_is_not(echo, client, planned):
    echo.script["POST"] = [planned]
    with pytest.raises(OutcomeUnknown) as lost:
        client.send(Request(method="POST", url=f"{echo.url}/x", data={}))
    assert echo.count("POST") == 1 and lost.value.wait_s == (9.0 if planned[1] else 1.0) if planned != LOST else True


def test_a_write_that_was_told_to_wait_is_tried_again(echo, client):
    echo.script["POST"] = [(429, {"Retry-After": email.utils.formatdate(client.clock.t + 20, usegmt=True)}, None)]
    client.send(Request(method="POST", url=f"{echo.url}/x", data={}))
    assert client.clock.waits == [20.0]


def test_trying_again_ends(echo, client):
    echo.script["GET"] = [(503, {}, {"message": "down for maintenance"})] * 9
    with pytest.raises(Unreachable, match="down for maintenance"):
        client.send(get(f"{echo.url}/x"))
    assert echo.count("GET") == 5


def test_a_redirect_on_the_same_host_is_followed_and_keeps_a_write_a_write(echo, client):
    echo.script["POST"] = [(307, {"Location": "/moved"}, None)]
    assert client.send(Request(method="POST", url=f"{echo.url}/x", data={"a": 1})).data == {"path": "/moved"}
    assert echo.seen[-1].json == {"a": 1}


def test_a_token_never_follows_a_redirect_to_another_host(echo, client, start):
    other = start(Echo)
    echo.script["GET"] = [(302, {"Location": f"{other.url}/x"}, None)]
    with pytest.raises(Refused, match="points to another host"):
        client.send(get(f"{echo.url}/x"))
    assert other.seen == []
    with pytest.raises(Refused):
        client.send(get(f"{other.url}/x"))
    assert other.seen == []


@pytest.mark.parametrize(("method", "status"), [("POST", 301), ("PUT", 302), ("PATCH", 303)])
def test_a_write_that_has_moved_is_told_where(echo, client, method, status):
    """A browser would turn it into a read."""
    echo.script[method] = [(status, {"Location": f"{echo.url}/new"}, None)]
    with pytest.raises(Refused, match=r"it has moved to .*/new"):
        client.send(Request(method=method, url=f"{echo.url}/x", data={}))


def test_redirects_in_a_circle_end(echo, client):
    echo.script["GET"] = [(302, {"Location": "/x"}, None)] * 9
    with pytest.raises(Refused, match="more than 5 redirects"):
        client.send(get(f"{echo.url}/x"))


def test_a_server_that_never_answers_is_unreachable(echo, client):
    quiet = HttpClient(echo.url, Login(), mask=str, clock=JumpingClock(), timeout=httpx.Timeout(0.05))
    echo.answer = lambda seen: threading.Event().wait(0.4) or (200, {}, None)
    with pytest.raises(OutcomeUnknown):
        quiet.send(Request(method="POST", url=f"{echo.url}/x", data={}))
    quiet.close()


def test_every_failure_of_the_library_becomes_one_of_ours():
    """Walks httpx's exception tree: a new class there must not become a traceback here."""
    kinds = [kind for _, kind in inspect.getmembers(httpx, inspect.isclass) if issubclass(kind, Exception)]
    assert len(kinds) > 20
    for kind in kinds:
        if kind is httpx.HTTPStatusError:
            continue  # raised only by raise_for_status, which is not called
        assert issubclass(kind, FAILURES), kind
        error = kind.__new__(kind)
        for repeatable in (True, False):
            made = _translated(error, Request(method="POST", url="https://x", repeatable=repeatable), "POST https://x")
            assert isinstance(made.error if isinstance(made, _Again) else made, TicketError)


def test_a_write_that_was_not_sent_is_tried_again_and_one_that_was_is_not():
    request = Request(method="POST", url="https://x")
    for kind in (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError):
        assert isinstance(_translated(kind("x"), request, ""), _Again)
    for kind in (httpx.ReadTimeout, httpx.WriteTimeout, httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError, httpx.CloseError):
        assert isinstance(_translated(kind("x"), request, ""), OutcomeUnknown)


SECRETS = {
    "HF_TOKEN": "hf_0123456789abcdefghijklmnopqrstuvwx",
    "PASSWORD": 'p"ss\\w/ord&=',
    "PEM": "-----BEGIN KEY-----\nabcdefgh12345\n-----END KEY-----",
}


@pytest.mark.parametrize("name", list(SECRETS))
def test_no_secret_leaves_in_any_part_of_a_request(echo, name):
    value = SECRETS[name]
    client = HttpClient(echo.url, Login(), mask=Mask(SECRETS).text, clock=JumpingClock())
    client.send(Request(method="POST", url=f"{echo.url}/x", data={"body": f"a {value} b", value: [value]}))
    file = File("f.txt", "text/plain", b"\xff " + value.encode() + b" \x00")
    client.send(Request(method="POST", url=f"{echo.url}/x", upload=Upload("file", file, {"name": value})))
    client.send(Request(method="POST", url=f"{echo.url}/x", raw=file))
    client.close()
    assert len(echo.seen) == 3
    for seen in echo.seen:
        for piece in value.splitlines():
            assert piece.encode() not in seen.body and f"***{name}***".encode() in seen.body
    assert form(echo.seen[1])["file"][2].startswith(b"\xff ***") and echo.seen[2].body.endswith(b" \x00")


@settings(max_examples=40)
@given(
    st.binary(max_size=200),
    st.text(st.characters(codec="ascii", exclude_characters='"\\\r\n', exclude_categories=["Cc"]), min_size=1, max_size=20),
)
def test_a_form_carries_any_bytes_unchanged(data, name):
    body, kind = multipart(Upload("file", File(name, "application/zip", data), {"a": "b"}), str)
    parts = form(Seen("POST", "", {}, {"content-type": kind}, body))
    assert parts["file"][2] == data and parts["a"][2] == b"b"


@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=5,
    )
)
def test_a_body_without_secrets_is_its_json(data):
    assert json.loads(as_json(data, str)) == data


def test_a_dry_run_shows_the_bytes_of_the_real_one(echo, client):
    dry = DryClient(Login({"A": TOKEN}, {"A": "***T***"}, {}, "T"), Mask({"T": TOKEN}).text)
    request = Request(method="POST", url=f"{echo.url}/x?q={TOKEN}", data={"body": f"é {TOKEN}"})
    answer = dry.send(request)
    client.send(request)
    assert dry.requests[0]["body"].encode() == echo.seen[0].body == encoded(request, Mask({"T": TOKEN}).text)[0]
    assert TOKEN not in str(dry.requests) and dry.requests[0]["headers"]["A"] == "***T***"
    assert list(answer.data) == [] and answer.data["a"]["b"].get("c") == "<c>"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"message": "Validation Failed", "errors": [{"field": "body", "message": "is too long"}]}, "Validation Failed; is too long; body"),
        ({"errorMessages": ["No."], "errors": {"comment": "too long"}}, "No.; comment: too long"),
        ({"error": {"status": 404, "msg": "no such issue 9"}}, "no such issue 9"),
        ({"errors": ["Notes is too long"]}, "Notes is too long"),
        (None, "Bad gateway nginx"),
    ],
)
def test_what_a_tracker_said_is_found_in_its_answer(data, words):
    assert sentence(data, "<html><b>Bad gateway</b>\x1b[31m\n nginx</html>") == words


def test_a_trackers_words_are_one_line_of_bounded_length():
    made = sentence({"message": "a\u202e\x00b\n" + "x" * 5000}, "")
    assert len(made) == 300 and made.startswith("a b x") and made.isprintable()


@pytest.mark.parametrize(
    ("words", "most"),
    [("maximum is 65536 characters", 65536), ("exceeds the allowed limit of 32,767 characters", 32767), ("too long", None)],
)
def test_the_limit_in_a_refusal_is_read(words, most):
    assert refusal("POST x", 422, {"message": f"Body is too long ({words})"}, "", "").most == most


def test_the_next_page_is_the_one_that_is_called_so():
    assert next_link('<https://x/1>; rel="prev", <https://x/3?a=b>; rel="next"') == "https://x/3?a=b"
    assert next_link('<https://x/1>; rel="prev"') is None and next_link("") is None
    assert Answer(200, {}, None).data is None
