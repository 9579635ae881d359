"""The real command against a real tracker: one message for a run, also when the command is killed before it hears the answer."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.e2e.cli import runbook, start
from tests.tickets.journal import RUN, hung, write
from tests.tickets.real_roundup import PASSWORD, USER, RealRoundup

pytestmark = pytest.mark.e2e
ENV = {"ROUNDUP_USER": USER, "ROUNDUP_PASSWORD": PASSWORD}


@pytest.fixture(scope="module")
def tracker(tmp_path_factory):
    """A tracker of its own."""
    made = RealRoundup(tmp_path_factory.mktemp("roundup"))
    yield made
    made.close()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state home with one run that hung."""
    write(tmp_path, hung())
    return tmp_path


class Held:
    """While active, the answer to the first write to `path` is held back, after the tracker has done it."""

    def __init__(self, tracker: RealRoundup, path: str) -> None:
        self.done, self.free = threading.Event(), threading.Event()
        self._tracker, self._path, self._app = tracker, path, tracker._app

    def _serve(self, environ, start_response):
        hold = not self.done.is_set() and environ["REQUEST_METHOD"] != "GET" and environ["PATH_INFO"].startswith(self._path)
        answer = self._app(environ, start_response)
        if hold:
            self.done.set()
            assert self.free.wait(30)
            raise ConnectionAbortedError("nobody listens any more")
        return answer

    def __enter__(self):
        self._tracker._app = self._serve
        return self

    def __exit__(self, *_):
        self._tracker._app = self._app
        self.free.set()


@pytest.mark.parametrize("path", ["/rest/data/msg", "/rest/data/issue/", "/rest/data/file"])
def test_killed_between_request_and_answer_it_is_still_one_message(tracker, state, path):
    issue = tracker.new_issue()
    with Held(tracker, path) as held:
        child = start("post", RUN, issue.url, "--attach", "html", state=state, env=ENV)
        assert held.done.wait(30), child.communicate(timeout=30)
        child.kill()
        child.communicate(timeout=10)
    again = runbook("post", RUN, issue.url, "--attach", "html", "--json", state=state, env=ENV)
    assert again.code == 0, again.err
    (text,) = issue.messages()
    assert text.startswith("# Fusion check: hung / deadlock") and tracker.messages_of(issue) == 1
    assert list(issue.files()) == again.json["attached"] and len(issue.files()) == 1


def test_posted_twice_it_is_one_message_and_the_page_downloads_byte_for_byte(tracker, state, tmp_path):
    issue = tracker.new_issue()
    first = runbook("post", "last", issue.url, "--attach", "html", "--attach", "zip", state=state, env=ENV)
    second = runbook("post", "last", issue.url, "--attach", "html", "--attach", "zip", "--json", state=state, env=ENV)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert first.out.startswith("created: ") and second.json["action"] == "updated" and len(issue.messages()) == 1
    program = f"cp {{html}} {{zip}} {tmp_path}"
    assert runbook("post", "last", "--post-command", program, state=state, env=ENV).code == 0
    here = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    there = {name.split(".", 2)[2]: data for name, data in issue.files().items()}
    assert there == here and set(there) == {"transcript.html", "runbook.zip"}


def test_what_is_typed_shows_no_password(tracker, state):
    issue = tracker.new_issue()
    done = runbook("post", "last", issue.url, "--dry-run", state=state, env=ENV)
    assert done.code == 0 and "Authorization: Basic ***ROUNDUP_PASSWORD***" in done.out
    assert PASSWORD not in done.out + done.err and tracker.messages_of(issue) == 0
