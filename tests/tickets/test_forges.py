"""GitLab, Jira and Redmine, against strict stand-ins: one comment for each run, files, limits, tokens."""

from __future__ import annotations

import io
import zipfile
from typing import Any, NamedTuple

import pytest

from runbook.tickets import tracker_for
from runbook.tickets.adf import text_of
from runbook.tickets.base import Misused, NoToken, Refused
from runbook.tickets.marker import marked
from tests.tickets.conftest import TEXT, draft, page
from tests.tickets.forge_stubs import GitLabStub, JiraStub, RedmineStub
from tests.tickets.stub import LOST


class Forge(NamedTuple):
    """A stand-in, the ticket's path there, the environment, and the texts of its comments."""

    stub: Any
    path: str
    environ: dict[str, str]
    texts: Any
    creates: str

    @property
    def ticket(self):
        return tracker_for(self.stub.url + self.path, self.environ)


def gitlab(start, path="/team/sub/engine/-/issues/7"):
    stub = start(GitLabStub)
    return Forge(stub, path, {"GITLAB_TOKEN": stub.token, "GITLAB_HOST": stub.host}, lambda: [note["body"] for note in stub.notes], "POST")


def merge_request(start):
    return gitlab(start, "/team/sub/engine/-/merge_requests/8")


def cloud(start):
    stub = start(JiraStub, True)
    environ = {"JIRA_USER": "me@example.com", "JIRA_API_TOKEN": "ATATT-secret-0123", "JIRA_URL": stub.url}
    return Forge(stub, "/browse/RUN-5", environ, lambda: [text_of(row["body"]) for row in stub.comments], "POST")


def server(start):
    stub = start(JiraStub, False)
    return Forge(stub, "/jira/browse/RUN-5", {"JIRA_PAT": "jira-pat-0123456789"}, lambda: [row["body"] for row in stub.comments], "POST")


def redmine(start):
    stub = start(RedmineStub)
    return Forge(
        stub, "/redmine/issues/12", {"REDMINE_API_KEY": stub.key}, lambda: [row["notes"] for row in stub.journals if row["notes"]], "PUT"
    )


ALL = [gitlab, merge_request, cloud, server, redmine]
every = pytest.mark.parametrize("forge", ALL, indirect=True)


@pytest.fixture
def forge(request, start):
    """One of them."""
    return request.param(start)


@every
def test_posting_twice_leaves_one_comment_with_the_new_text(forge, poster):
    assert poster(forge.ticket, forge.environ).action == "created"
    assert poster(forge.ticket, forge.environ, draft(TEXT.replace("90s", "300s"))).action == "updated"
    (text,) = forge.texts()
    assert "no progress for 300s" in text and "hung / deadlock" in text and marked(text)


@every
def test_a_lost_answer_makes_no_second_comment(forge, poster):
    forge.stub.script[forge.creates] = [LOST]
    assert poster(forge.ticket, forge.environ).action == "created"
    assert len(forge.texts()) == 1


@every
def test_somebody_elses_copy_of_our_comment_is_left_alone(forge, poster):
    poster(forge.ticket, forge.environ)
    stub = forge.stub
    rows = stub.notes if isinstance(stub, GitLabStub) else stub.comments if isinstance(stub, JiraStub) else stub.journals
    rows[0].update(author={"id": 1, "accountId": "z", "name": "z"}, user={"id": 1})
    before = forge.texts()[0]
    assert poster(forge.ticket, forge.environ, draft(TEXT + "more\n")).action == "created"
    assert forge.texts()[0] == before and len(forge.texts()) == 2


@every
def test_a_comment_is_found_behind_many_others(forge, poster):
    poster(forge.ticket, forge.environ)
    for number in range(130):
        poster_rows(forge, f"answer {number}")
    assert poster(forge.ticket, forge.environ).action == "updated"
    assert len(forge.texts()) == 131


def poster_rows(forge, text):
    if isinstance(forge.stub, GitLabStub):
        forge.stub.notes.append({"id": 300 + len(forge.stub.notes), "body": text, "author": {"id": 1}})
    elif isinstance(forge.stub, JiraStub):
        forge.stub.comments.insert(0, {"id": f"x{text}", "body": text, "author": {"accountId": "z", "name": "z"}})
    else:
        forge.stub.journals.append({"id": len(forge.stub.journals), "user": {"id": 1}, "notes": text})


@every
def test_a_transcript_over_the_limit_is_cut_and_says_so(forge, poster):
    long = (
        TEXT + "".join(f"| {n} | step with a name \\| and {'words ' * 6} |\n" for n in range(3000)) + "\n## Files\n\n" + "é" * 40_000 + "\n"
    )
    poster(forge.ticket, forge.environ, draft(long))
    (text,) = forge.texts()
    assert "Cut to fit: without All steps, Files." in text and "hung / deadlock" in text and "quiet" in text and marked(text)


@every
def test_an_attachment_arrives_byte_for_byte_and_once(forge, poster):
    forge.stub.refused_types = set()
    file = page()
    for _ in range(2):
        assert poster(forge.ticket, forge.environ, files=(file,)).attached == [file.name]
    assert forge.stub.files == {file.name: file.data}
    assert sum(seen.method == "POST" and seen.path.endswith(("uploads", "attachments", "uploads.json")) for seen in forge.stub.seen) == 1


@every
def test_an_attachment_whose_answer_was_lost_is_there_once(forge, poster):
    forge.stub.refused_types = set()
    forge.stub.script["POST"] = [LOST]
    poster(forge.ticket, forge.environ, files=(page(),))
    assert forge.stub.files == {page().name: page().data} and len(forge.texts()) == 1


@every
def test_a_wrong_token_is_told(forge, poster):
    environ = {key: value if "://" in value or value == forge.stub.host else "wrong-wrong-1" for key, value in forge.environ.items()}
    with pytest.raises(Refused, match="HTTP 401"):
        poster(forge.ticket, environ)


@every
def test_without_a_token_the_variables_are_named(forge):
    with pytest.raises(NoToken) as none:
        forge.ticket.login({"GITLAB_HOST": forge.stub.host})
    assert any(name in none.value.hint for name in forge.environ)


@every
def test_another_ticket_is_a_404(forge, poster):
    path = forge.path.replace("sub", "sup").replace("RUN-5", "RUN-6").replace("issues/12", "issues/13")
    with pytest.raises(Refused, match="HTTP 404"):
        poster(tracker_for(forge.stub.url + path, forge.environ), forge.environ)


def test_gitlab_shows_the_upload_in_the_note(start, poster):
    forge = gitlab(start)
    poster(forge.ticket, forge.environ, files=(page(),))
    assert f"Attached: [{page().name}](/uploads/" in forge.texts()[0]


@pytest.mark.parametrize(
    ("environ", "headers"),
    [
        ({"GITLAB_TOKEN": "tok-1", "GITLAB_ACCESS_TOKEN": "tok-2"}, {"PRIVATE-TOKEN": "tok-1"}),
        ({"GITLAB_ACCESS_TOKEN": "tok-2", "CI_JOB_TOKEN": "tok-4"}, {"PRIVATE-TOKEN": "tok-2"}),
        ({"OAUTH_TOKEN": "tok-3", "CI_JOB_TOKEN": "tok-4"}, {"Authorization": "Bearer tok-3"}),
        ({"CI_JOB_TOKEN": "tok-4"}, {"JOB-TOKEN": "tok-4"}),
    ],
)
def test_gitlabs_tokens_in_glabs_order(environ, headers):
    assert tracker_for("https://gitlab.com/a/b/-/issues/1", environ).login(environ).headers == headers


def test_a_gitlab_token_goes_only_to_the_host_that_is_named():
    environ = {"GITLAB_TOKEN": "tok-1", "GITLAB_HOST": "git.acme.example"}
    assert tracker_for("https://git.acme.example/a/b/-/issues/1", environ).login(environ).headers
    with pytest.raises(NoToken, match=r"evil\.example"):
        tracker_for("https://evil.example/a/b/-/issues/1", environ).login(environ)


def test_a_jira_token_goes_to_no_other_host():
    environ = {"JIRA_URL": "https://jira.acme.example", "JIRA_PAT": "pat-12345"}
    with pytest.raises(NoToken, match=r"is for jira\.acme\.example \(JIRA_URL\), and this ticket is at evil\.example"):
        tracker_for("https://evil.example/browse/X-1", environ).login(environ)


def test_a_jira_administrators_smaller_limit_is_respected(start, poster):
    forge = server(start)
    forge.stub.most = 3000
    poster(forge.ticket, forge.environ, draft(TEXT + "## Files\n\n" + "- file\n" * 2000))
    assert len(forge.texts()[0]) <= 3000 and "Cut to fit" in forge.texts()[0]


def test_host_text_stays_text_in_jiras_markup(start, poster):
    hostile = "# {code} [~admin] !http://x/y.png! *bold*\n\n```text\n{noformat}\n{code:java}\n```\n\n| a | b |\n| --- | --- |\n| x\\|y | {color:red} |\n"
    forge = server(start)
    poster(forge.ticket, forge.environ, draft(hostile))
    text = forge.texts()[0]
    assert r"h1. \{code\} \[\~admin\] \!http" in text and "{noformat}\n{\u200bnoformat}\n{\u200bcode:java}\n{noformat}" in text
    assert r"|x\|y|\{color:red\}|" in text


@pytest.mark.slow
def test_redmine_takes_a_refused_page_as_a_zip(start, poster):
    forge = redmine(start)
    done = poster(forge.ticket, forge.environ, files=(page(),))
    assert done.attached == [page().name + ".zip"] and not done.files_refused
    with zipfile.ZipFile(io.BytesIO(forge.stub.files[page().name + ".zip"])) as archive:
        assert archive.read(page().name) == page().data
    poster(forge.ticket, forge.environ, files=(page(),))
    assert len(forge.stub.files) == 1


def test_a_file_that_is_too_large_leaves_the_comment_and_says_so(start, poster):
    forge = redmine(start)
    done = poster(forge.ticket, forge.environ, files=(page(data=b"\x00" * (5121 * 1024)),))
    assert done.files_refused and "maximum allowed file size" in done.not_attached[page().name]
    assert len(forge.texts()) == 1 and "Not attached: `" in forge.texts()[0]


def test_a_redmine_that_keeps_no_note_is_noticed(start, poster):
    """Without the permission Redmine answers 204 all the same."""
    forge = redmine(start)
    forge.stub.deaf = True
    with pytest.raises(Refused, match="kept no note"):
        poster(forge.ticket, forge.environ)


def test_a_redmine_that_cannot_change_notes_gets_no_second_one(start, poster):
    forge = redmine(start)
    forge.stub.edits = False
    poster(forge.ticket, forge.environ)
    with pytest.raises(Refused, match="does not let the key's user change note 0"):
        poster(forge.ticket, forge.environ)
    assert len(forge.texts()) == 1


def test_host_text_cannot_leave_redmines_preformatted_block(start, poster):
    forge = redmine(start)
    poster(forge.ticket, forge.environ, draft("x </pre> !http://x/y.png! <PRE> y\n"))
    text = forge.texts()[0]
    assert text.count("<pre>") == 1 and text.lower().count("</pre>") == 1 and text.index("</pre>") > text.index("y.png")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://gitlab.com/a/b/c/-/issues/3", "GitLab"),
        ("https://gitlab.com/a/b/-/work_items/3", "GitLab"),
        ("https://gitlab.com/a/b/issues/3", "GitLab"),
        ("https://github.com/a/b/issues/3", "GitHub"),
        ("https://acme.atlassian.net/browse/AB-3", "Jira"),
        ("https://bugs.example/issue3", "Roundup"),
        ("https://bugs.example/tracker/issue3", "Roundup"),
        ("https://redmine.example/issues/3", "Redmine"),
        ("webhook+https://x.example/hook", "webhook"),
        ("https://hooks.slack.com/services/T0/B0/x", "webhook"),
    ],
)
def test_the_address_tells_the_tracker(url, name):
    assert tracker_for(url, {}).name == name


def test_a_tracker_that_is_named_in_the_environment_is_that_one():
    """Redmine below two folders looks like GitHub."""
    url = "https://x.example/a/b/issues/3"
    assert tracker_for(url, {}).name == "GitHub"
    assert tracker_for(url, {"REDMINE_URL": "https://x.example/a/b"}).name == "Redmine"
    assert tracker_for(url, {}, "redmine").name == "Redmine"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "https://",
        "https://x.example/",
        "ftp://x/issues/3",
        "https://x.example:port/issues/3",
        "https://[::1/issues/3",
        "webhook+file:///etc/passwd",
    ],
)
def test_an_address_that_is_no_ticket_is_a_usage_error(url):
    with pytest.raises(Misused, match="no ticket of a known tracker"):
        tracker_for(url, {})


def test_an_address_with_a_password_is_refused():
    with pytest.raises(Misused, match="holds a user name or password"):
        tracker_for("https://me:secret@github.com/o/r/issues/3", {})
