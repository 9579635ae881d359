"""A real Roundup in this process: one message for each run, files byte for byte, also when answers get lost."""

from __future__ import annotations

import httpx
import pytest

from runbook.tickets import tracker_for
from runbook.tickets.base import NoToken, Refused
from tests.tickets.conftest import TEXT, draft, page
from tests.tickets.real_roundup import PASSWORD, USER, AnswerLost, RealRoundup

pytestmark = pytest.mark.slow

ENV = {"ROUNDUP_USER": USER, "ROUNDUP_PASSWORD": PASSWORD}


@pytest.fixture(scope="module")
def tracker(tmp_path_factory):
    """A tracker of its own; its answers can be lost on the way."""
    made = RealRoundup(tmp_path_factory.mktemp("roundup"))
    yield made
    made.close()


@pytest.fixture
def issue(tracker):
    """A fresh issue."""
    return tracker.new_issue()


def test_posting_twice_leaves_one_message_with_the_new_text(tracker, issue, poster):
    assert poster(tracker_for(issue.url, ENV), ENV).action == "created"
    done = poster(tracker_for(issue.url, ENV), ENV, draft(TEXT.replace("90s", "300s")))
    assert done.action == "updated"
    (text,) = issue.messages()
    assert "no progress for 300s" in text and "runbook run 20260301-101500-ab12, body " in text.splitlines()[-1]


def test_an_attachment_downloads_byte_for_byte_and_is_there_once(tracker, issue, poster):
    file = page(data=bytes(range(256)) * 800)
    for _ in range(2):
        assert poster(tracker_for(issue.url, ENV), ENV, files=(file,)).attached == [file.name]
    assert issue.files() == {file.name: file.data}


def test_another_runs_file_of_a_like_name_is_another_file(tracker, issue, poster):
    poster(tracker_for(issue.url, ENV), ENV, files=(page(),))
    poster(tracker_for(issue.url, ENV), ENV, draft(run="20260301-101500-ab123"), files=(page("20260301-101500-ab123"),))
    assert len(issue.files()) == 2 and len(issue.messages()) == 2


@pytest.mark.parametrize("what", ["/rest/data/msg", "/rest/data/issue/"])
def test_an_answer_lost_on_the_way_makes_no_second_message(tracker, issue, poster, what):
    """Lost after the message was written, and after it was linked."""
    with AnswerLost(tracker, what) as lost:
        poster(tracker_for(issue.url, ENV), ENV)
    assert lost.count == 1 and len(issue.messages()) == 1 and tracker.messages_of(issue) == 1


def test_a_change_of_the_issue_in_between_is_seen(tracker, issue, poster):
    """The ETag is stale then: Roundup answers 412 and we look again."""
    with AnswerLost(tracker, "/rest/data/issue/", before=issue.rename):
        poster(tracker_for(issue.url, ENV), ENV)
    assert len(issue.messages()) == 1


def test_a_wrong_password_is_told_with_its_variable(tracker, issue, poster):
    environ = {**ENV, "ROUNDUP_PASSWORD": "not-this-one"}
    with pytest.raises(Refused, match="HTTP 401") as refused:
        poster(tracker_for(issue.url, environ), environ)
    assert "ROUNDUP_PASSWORD" in refused.value.hint and "not-this-one" not in refused.value.summary


def test_an_issue_that_is_not_there_is_told(tracker, poster):
    with pytest.raises(Refused, match="HTTP 404: no such issue 9999"):
        poster(tracker_for(f"{tracker.url}issue9999", ENV), ENV)
    assert tracker.messages_of(None) == 0, "a message that no issue links"


def test_a_password_goes_to_no_other_host(tracker, issue):
    environ = {**ENV, "ROUNDUP_URL": tracker.url}
    assert tracker_for(issue.url, environ).login(environ).headers
    with pytest.raises(NoToken):
        tracker_for("https://evil.example/issue1", environ).login(environ)


def test_the_tracker_is_a_real_one(tracker):
    """It refuses what Roundup refuses: a request that does not say where it comes from."""
    answer = httpx.post(f"{tracker.url}rest/data/issue", json={"title": "x"}, auth=(USER, PASSWORD))
    assert answer.status_code == 400 and "Required Header Missing" in answer.text
