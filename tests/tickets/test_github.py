"""GitHub: one comment for each run, whatever happens on the way. Requests are checked against GitHub's own API description."""

from __future__ import annotations

import pytest

from runbook.tickets import tracker_for
from runbook.tickets.base import NoToken, Refused, TooLong, Unreachable
from runbook.tickets.marker import is_about, mark, marked
from tests.tickets.conftest import TEXT, draft, page
from tests.tickets.github_stub import TOKEN, GitHubStub, violations
from tests.tickets.stub import LOST, Seen

ENV = {"GH_ENTERPRISE_TOKEN": TOKEN}


@pytest.fixture
def hub(start):
    """A GitHub Enterprise Server."""
    stub = start(GitHubStub)
    yield stub
    assert stub.wrong == []


@pytest.fixture
def send(hub, poster):
    """Post to issue 3."""
    return lambda what=None, files=(): poster(tracker_for(f"{hub.url}/o/r/issues/3", ENV), ENV, what, files)


def test_the_description_refuses_what_github_refuses():
    """Else a pass of the other tests would mean nothing."""
    path = "/repos/o/r/issues/3/comments"
    assert violations(Seen("POST", path, {}, {}, b'{"body":"x"}'), path) == []
    for body in (b'{"bod":"x"}', b'{"body":5}', b'{"body":"x","more":1}'):
        assert violations(Seen("POST", path, {}, {}, body), path)
    assert violations(Seen("GET", path, {"perpage": "1"}, {}, b""), path)
    assert violations(Seen("POST", "/repos/o/r/issues/3/files", {}, {}, b"{}"), "/repos/o/r/issues/3/files")


def test_posting_twice_leaves_one_comment_with_the_new_text(hub, send):
    assert send().action == "created"
    done = send(draft(TEXT.replace("90s", "300s")))
    assert done.action == "updated" and done.comment.url.endswith("#issuecomment-100")
    (row,) = hub.comments.values()
    assert "no progress for 300s" in row["body"] and is_about(row["body"], "20260301-101500-ab12")


def test_two_runs_are_two_comments(hub, send):
    send()
    send(draft(run="20260301-111500-cd34"))
    assert len(hub.comments) == 2


def test_our_comment_is_found_behind_hundreds_of_others(hub, send):
    for number in range(250):
        hub.add("someone", f"me too {number}")
    send()
    send()
    assert len(hub.comments) == 251


def test_a_quotation_of_our_comment_is_not_our_comment(hub, send):
    send()
    body = hub.comments[100]["body"]
    hub.comments.clear()
    hub.add("someone", body)
    hub.add(hub.me, "> " + body.replace("\n", "\n> ") + "\n\nI see.")
    assert send().action == "created"
    assert len(hub.comments) == 3


@pytest.mark.parametrize("planned", [LOST, (502, {}, None), (504, {}, {"message": "upstream"})])
def test_a_lost_answer_makes_no_second_comment(hub, send, planned):
    """The comment was written; only the answer did not come."""
    if planned == LOST:
        hub.script["POST"] = [LOST]
        assert send().action == "created"
    else:
        hub.add(hub.me, TEXT + "\n" + mark(draft().run, "other").hidden)
        hub.script["GET"] = [(200, {}, {"login": hub.me}), (200, {}, [])]  # the first look comes too early
        hub.script["POST"] = [planned]
        assert send().action == "created"
    assert len(hub.comments) == 1 and hub.count("POST") == 1


def test_an_answer_that_was_lost_with_the_request_is_tried_again(hub, send):
    """A gateway's 502 and no comment there: only then the request is repeated."""
    hub.script["POST"] = [(502, {}, None)]
    assert send().action == "created"
    assert len(hub.comments) == 1 and hub.count("POST") == 2 and hub.count("GET", "/comments") == 2


def test_a_200_that_kept_the_old_body_is_noticed(hub, send):
    send()
    hub.keeps_old = True
    with pytest.raises(Refused, match=r"answered that all is well, and comment 100 holds an older text"):
        send(draft(TEXT + "more\n"))


def test_a_rate_limit_is_waited_for_as_long_as_github_asks(hub, send, poster):
    hub.script["POST"] = [
        (429, {"Retry-After": "7"}, {"message": "slow down"}),
        (403, {"Retry-After": "11"}, {"message": "secondary rate limit"}),
    ]
    assert send().action == "created"
    assert poster.clock.waits == [7.0, 11.0] and len(hub.comments) == 1
    assert "trying again in 7 s" in poster.told[0] and "slow down" in poster.told[0]


def test_the_reset_time_of_a_limit_counts_when_there_is_no_retry_after(hub, send, poster):
    limited = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(poster.clock.t) + 30)}
    hub.script["GET"] = [(200, {}, {"login": hub.me}), (403, limited, {"message": "API rate limit exceeded"})]
    send()
    assert poster.clock.waits == [30.0]


def test_a_wait_of_an_hour_is_told_not_waited_for(hub, send, poster):
    hub.script["POST"] = [(429, {"Retry-After": "3600"}, {"message": "slow down"})]
    with pytest.raises(Refused, match="asks to wait 3600 s"):
        send()
    assert poster.clock.waits == []


@pytest.mark.parametrize(
    ("status", "said", "hint"),
    [
        (403, "Resource not accessible by personal access token", "right to write comments"),
        (404, "Not Found", "no such ticket, or this token may not see it (token from GH_ENTERPRISE_TOKEN)"),
        (410, "This issue was deleted", "deleted"),
        (422, "Validation Failed", ""),
    ],
)
def test_a_refusal_tells_what_github_said_and_what_to_try(hub, send, status, said, hint):
    hub.script["POST"] = [(status, {}, {"message": said})]
    with pytest.raises(Refused) as refused:
        send()
    assert f"HTTP {status}: {said}" in refused.value.summary and hint in refused.value.hint
    assert refused.value.exit_code == 1 and hub.count("POST") == 1


def test_a_wrong_token_names_the_variable(hub, poster):
    environ = {"GH_ENTERPRISE_TOKEN": "ghp_wrong_wrong_wrong"}
    with pytest.raises(Refused) as refused:
        poster(tracker_for(f"{hub.url}/o/r/pull/3", environ), environ)
    assert (
        "Bad credentials" in refused.value.summary
        and "GH_ENTERPRISE_TOKEN" in refused.value.hint
        and "ghp_wrong" not in str(vars(refused.value))
    )


def test_a_smaller_limit_than_known_is_respected(hub, send):
    """GitHub names its limit in the refusal; the text is cut to that."""
    refusal = (422, {}, {"message": "Validation Failed", "errors": [{"message": "Body is too long (maximum is 3000 characters)"}]})
    hub.script["POST"] = [refusal]
    send(draft(TEXT + "## Files\n\n" + "x" * 50 + "\n" + "line\n" * 2000))
    body = hub.comments[100]["body"]
    assert len(body) <= 3000 and "## Evidence" in body and "*Cut to fit: without Files." in body and marked(body)


def test_a_limit_that_nothing_fits_is_an_error(hub, send):
    hub.script["POST"] = [(422, {}, {"message": "Body is too long (maximum is 100 characters)"})]
    with pytest.raises(TooLong, match="not even the verdict fits into the 100 characters"):
        send()


def test_files_are_named_and_not_sent(hub, send):
    done = send(files=(page(),))
    assert done.not_attached == {page().name: "GitHub's API takes no attachments"} and not done.files_refused
    assert f"Not attached: `{page().name}`" in hub.comments[100]["body"] and hub.count("POST") == 1


def test_an_app_that_may_not_ask_who_it_is_knows_its_own_by_being_a_bot(hub, send):
    hub.me = "runbook[bot]"
    hub.script["GET"] = [(403, {}, {"message": "Resource not accessible by integration"})]
    send()
    body = hub.comments[100]["body"]
    hub.comments.clear()
    hub.add("someone", body)
    hub.add(hub.me, body, kind="Bot")
    hub.script["GET"] = [(403, {}, {"message": "Resource not accessible by integration"})]
    assert send().action == "updated" and hub.count("PATCH", "/101") == 1


def test_nobody_there_is_unreachable(poster, start):
    stub = start(GitHubStub)
    stub.close()
    with pytest.raises(Unreachable) as gone:
        poster(tracker_for(f"{stub.url}/o/r/issues/3", ENV), ENV)
    assert gone.value.exit_code == 6 and len(poster.clock.waits) == 4


@pytest.mark.parametrize(
    ("url", "environ", "variable"),
    [
        ("https://github.com/o/r/issues/3", {"GITHUB_TOKEN": "a" * 9, "GH_TOKEN": "b" * 9}, "GH_TOKEN"),
        ("https://github.com/o/r/pull/3#issuecomment-1", {"GITHUB_TOKEN": "a" * 9, "GH_TOKEN": " "}, "GITHUB_TOKEN"),
        ("https://acme.ghe.com/o/r/issues/3", {"GH_TOKEN": "b" * 9}, "GH_TOKEN"),
        ("https://git.acme.example/o/r/issues/3", {"GH_TOKEN": "b" * 9, "GITHUB_ENTERPRISE_TOKEN": "c" * 9}, "GITHUB_ENTERPRISE_TOKEN"),
        ("https://git.acme.example/o/r/issues/3", {"GH_TOKEN": "b" * 9, "GH_HOST": "git.acme.example"}, "GH_TOKEN"),
        (
            "https://git.acme.example/o/r/issues/3",
            {"GITHUB_TOKEN": "b" * 9, "GITHUB_SERVER_URL": "https://git.acme.example"},
            "GITHUB_TOKEN",
        ),
    ],
)
def test_the_token_is_taken_in_ghs_order(url, environ, variable):
    login = tracker_for(url, environ).login(environ)
    assert login.source == variable and login.headers == {"Authorization": f"Bearer {environ[variable]}"}


def test_the_public_token_goes_to_no_other_host():
    environ = {"GH_TOKEN": "b" * 9}
    with pytest.raises(NoToken, match=r"no token for GitHub at evil\.example"):
        tracker_for("https://evil.example/o/r/issues/3", environ).login(environ)


@pytest.mark.parametrize(
    ("url", "environ", "base"),
    [
        ("https://github.com/o/r/issues/3", {}, "https://api.github.com"),
        ("https://acme.ghe.com/o/r/issues/3", {}, "https://api.acme.ghe.com"),
        ("https://git.acme.example/o/r/issues/3", {}, "https://git.acme.example/api/v3"),
        ("https://git.acme.example/o/r/issues/3", {"GITHUB_API_URL": "https://elsewhere.example/api"}, "https://git.acme.example/api/v3"),
    ],
)
def test_where_the_api_is(url, environ, base):
    assert tracker_for(url, environ).base == base
