"""`post:` in a playbook: posted at the end of a good and of a bad run, and never the verdict's business."""

from __future__ import annotations

import json

import pytest

from tests.cli.running import runbook
from tests.tickets.conftest import start  # noqa: F401  (a fixture)
from tests.tickets.github_stub import TOKEN, GitHubStub

pytestmark = pytest.mark.slow
NO_CI = {"GITHUB_ACTIONS": "", "CI_JOB_URL": "", "GH_TOKEN": "", "GITHUB_TOKEN": "", "GITHUB_SERVER_URL": "", "GITHUB_API_URL": ""}


@pytest.fixture
def hub(start):  # noqa: F811
    """A GitHub."""
    stub = start(GitHubStub)
    yield stub
    assert stub.wrong == []


def run(folder, command: str, *tickets: str, argv=(), **env: str):
    """(exit code, answer, stderr) of a run of one command on this machine."""
    book = folder / "p.yaml"
    book.write_text(
        f"runbook: 1\nname: Posted\nhosts: {{box: local}}\npost: {json.dumps(tickets)}\nsteps: [{{id: one, run: {json.dumps(command)}}}]\n"
    )
    done = runbook("run", str(book), "--json", *argv, cwd=folder, **{**NO_CI, **env})
    return done.returncode, json.loads(done.stdout), done.stderr


def trusted(hub) -> dict[str, str]:
    return {"GH_HOST": hub.host, "GH_ENTERPRISE_TOKEN": TOKEN}


@pytest.mark.parametrize(("command", "code", "verdict"), [("true", 0, "passed"), ("exit 3", 1, "failed")])
def test_a_run_is_posted_whether_it_passed_or_failed(tmp_path, hub, command, code, verdict):
    url = f"{hub.url}/o/r/issues/3"
    found, answer, err = run(tmp_path, command, url, **trusted(hub))
    assert (found, answer["verdict"]) == (code, verdict)
    assert answer["posts"] == [{"ticket": url, "action": "created", "url": f"{url}#issuecomment-100", "error": "", "hint": ""}]
    assert hub.comments[100]["body"].startswith(f"# Posted: {verdict}") and "posted (created)" in err
    assert json.loads((tmp_path / answer["transcript"]["dir"] / "posts.json").read_text()) == answer["posts"]
    assert "posted (created)" in runbook("show", answer["transcript"]["dir"]).stdout


def test_a_failing_post_is_told_apart_and_the_others_go_on(tmp_path, hub):
    hub.script["POST"] = [(403, {}, {"message": "Resource not accessible"})]
    url = f"{hub.url}/o/r/issues/3"
    code, answer, err = run(tmp_path, "true", url, "env:NOT_SET", "env:TICKET", TICKET=f"{hub.url}/o/r/issues/3", **trusted(hub))
    assert (code, answer["verdict"]) == (0, "passed")
    assert [row["action"] for row in answer["posts"]] == ["failed", "failed", "created"]
    assert "HTTP 403" in answer["posts"][0]["error"] and "NOT_SET is not set" in answer["posts"][1]["error"]
    assert err.count("not posted: ") == 2


def test_a_playbook_cannot_send_a_token_to_a_host_of_its_own_choice(tmp_path, hub):
    code, answer, _ = run(tmp_path, "true", f"{hub.url}/o/r/issues/3", GH_ENTERPRISE_TOKEN=TOKEN)
    assert code == 0 and "no variable of the environment names this host" in answer["posts"][0]["error"]
    assert hub.seen == []


@pytest.mark.parametrize("flag", ["--no-post", "--check"])
def test_nothing_is_posted_when_it_is_not_wanted(tmp_path, hub, flag):
    _, answer, _ = run(tmp_path, "true", f"{hub.url}/o/r/issues/3", argv=[flag], **trusted(hub))
    assert "posts" not in answer and hub.seen == []


def test_an_unknown_ticket_is_an_error_before_anything_runs(tmp_path):
    book = tmp_path / "p.yaml"
    book.write_text("runbook: 1\nhosts: {box: local}\npost: https://example.com/x\nsteps: [{run: 'touch ran'}]\n")
    for command in ("run", "validate"):
        done = runbook(command, str(book), cwd=tmp_path)
        assert done.returncode == 2 and "no ticket of a known tracker" in done.stderr and "p.yaml:3" in done.stderr
    assert not (tmp_path / "ran").exists()
