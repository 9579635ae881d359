"""A real Redmine, from the distribution's package: one note for each run, files byte for byte. Skipped where it is not installed."""

from __future__ import annotations

import pytest

from runbook.render.markdown import markdown
from runbook.tickets import tracker_for
from runbook.tickets.base import OutcomeUnknown, Refused
from runbook.tickets.flow import post
from tests.render.test_markdown import full_run
from tests.tickets.conftest import TEXT, draft, page
from tests.tickets.real_redmine import RealRedmine, is_installed

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not is_installed(), reason="needs the packages redmine, redmine-sqlite and puma")]


@pytest.fixture(scope="module")
def redmine(tmp_path_factory):
    """One for all tests: it takes ten seconds to make."""
    made = RealRedmine(tmp_path_factory.mktemp("redmine"))
    yield made
    made.close()


@pytest.fixture
def env(redmine):
    return {"REDMINE_API_KEY": redmine.key}


def test_posting_twice_leaves_one_note_with_the_new_text(redmine, env, poster):
    url = redmine.new_issue()
    assert poster(tracker_for(url, env), env).action == "created"
    done = poster(tracker_for(url, env), env, draft(TEXT.replace("90s", "300s")))
    assert done.action == "updated"
    (note,) = redmine.notes(url)
    assert "no progress for 300s" in note and note.splitlines()[-1].startswith("runbook run 20260301-101500-ab12, body ")


def test_an_attachment_downloads_byte_for_byte_and_is_there_once(redmine, env, poster):
    url, file = redmine.new_issue(), page(data=bytes(range(256)) * 800)
    for _ in range(2):
        done = poster(tracker_for(url, env), env, files=(file,))
        assert (done.attached, done.not_attached) == ([file.name], {})
    assert redmine.files(url) == {file.name: file.data}


def test_an_answer_lost_on_the_way_makes_no_second_note(redmine, env, poster):
    """The request is done, and its answer does not come."""
    url = redmine.new_issue()
    tracker = tracker_for(url, env)
    client = poster.client(tracker, env)
    sent, lost = client.send, []

    def send(request, accept=()):
        answer = sent(request, accept)
        if request.method == "PUT" and not lost:
            lost.append(request)
            raise OutcomeUnknown("the answer was lost")
        return answer

    client.send = send
    assert post(tracker, client, draft(), []).action == "created"
    assert lost and len(redmine.notes(url)) == 1


def test_a_transcript_over_the_limit_is_cut_and_says_so(redmine, env, poster):
    url = redmine.new_issue()
    long = [*full_run()[:-1], *full_run()[1:-1] * 60, full_run()[-1]]
    tracker = tracker_for(url, env)
    what = draft("")
    what = type(what)(run=what.run, started=what.started, render=lambda budget: markdown(long, budget))
    poster(tracker, env, what)
    (note,) = redmine.notes(url)
    assert len(note.encode()) <= tracker.limit.most and "left out" in note


def test_a_wrong_key_and_an_unknown_issue_are_refused_with_a_reason(redmine, env, poster):
    with pytest.raises(Refused, match="401"):
        poster(tracker_for(redmine.new_issue(), env), {"REDMINE_API_KEY": "0" * 40})
    with pytest.raises(Refused, match="404"):
        poster(tracker_for(f"{redmine.url}/issues/99999", env), env)
