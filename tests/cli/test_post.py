"""`runbook post`, as somebody types it: exit codes, what is shown, what leaves."""

from __future__ import annotations

import html
import io
import json
import subprocess
import sys
import zipfile

import msgspec
import pytest

from runbook.cli.main import exit_code
from runbook.engine.journal import Journal
from runbook.engine.redact import Mask, forms
from runbook.model.clock import SystemClock
from tests.support.secret_texts import corpus, made
from tests.tickets.conftest import start  # noqa: F401  (a fixture)
from tests.tickets.forge_stubs import GitLabStub, RedmineStub
from tests.tickets.github_stub import TOKEN, GitHubStub
from tests.tickets.journal import RUN, hung, write
from tests.tickets.stub import form

MUST_MASK = {
    "HF_TOKEN": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567",
    "OPENAI_API_KEY": "sk-proj-abcDEF0123456789_-abcDEF0123456789",
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "REDIS_PASSWORD": "p_ss*w|rd`[x](y)<b>&~",
    "DECLARED": "correct horse battery staple",
}


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    """No token or CI of whoever runs the tests."""
    for name in (
        "GH_TOKEN",
        "GITHUB_TOKEN",
        "GH_ENTERPRISE_TOKEN",
        "GITHUB_ENTERPRISE_TOKEN",
        "GH_HOST",
        "GITHUB_ACTIONS",
        "GITHUB_API_URL",
        "GITHUB_SERVER_URL",
        "CI_JOB_URL",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(own_state):
    """The folder of a run that hung."""
    return write(own_state, hung())


@pytest.fixture
def hub(start, monkeypatch):  # noqa: F811
    """A GitHub with a token in the environment."""
    stub = start(GitHubStub)
    monkeypatch.setenv("GH_ENTERPRISE_TOKEN", TOKEN)
    yield stub
    assert stub.wrong == []


@pytest.mark.slow
def test_posting_twice_is_one_comment(run, hub, capsys):
    url = f"{hub.url}/o/r/issues/3"
    assert exit_code(["post", "last", url]) == 0
    assert capsys.readouterr().out.startswith(f"created: {url}#issuecomment-100")
    assert exit_code(["post", RUN, url, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["action"] == "updated" and answer["tracker"] == "GitHub" and answer["run"] == RUN and answer["exit_code"] == 0
    (row,) = hub.comments.values()
    assert row["body"].startswith("# Fusion check: hung / deadlock") and "rank 3 waits in allreduce" in row["body"]


def test_a_dry_run_sends_nothing_and_shows_what_would_be_sent(run, hub, capsys):
    url = f"{hub.url}/o/r/issues/3"
    assert exit_code(["post", "last", url, "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)["requests"]
    assert hub.seen == [] and TOKEN not in str(planned)
    assert exit_code(["post", "last", url]) == 0
    sent = [(seen.method, hub.url + seen.path, seen.body.decode()) for seen in hub.seen if seen.method != "GET"]
    assert sent == [(row["method"], row["url"], row["body"]) for row in planned if row["method"] != "GET"]
    assert [row["url"].partition("?")[0] for row in planned][:2] == [hub.url + seen.path for seen in hub.seen][:2]
    assert planned[-1]["headers"]["Authorization"] == "Bearer ***GH_ENTERPRISE_TOKEN***"


def test_a_dry_run_needs_no_token(run, capsys):
    assert exit_code(["post", "last", "https://github.com/o/r/issues/3", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert (
        "POST https://api.github.com/repos/o/r/issues/3/comments\n" in out
        and "nothing was sent" in err
        and "set GH_TOKEN or GITHUB_TOKEN" in err
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["https://github.com/o/r/issues/3"], "no token for GitHub at github.com; set GH_TOKEN or GITHUB_TOKEN"),
        (["https://example.com/"], "no ticket of a known tracker"),
        ([], "no ticket: name its address"),
        (["env:NO_SUCH_VARIABLE"], "NO_SUCH_VARIABLE is not set"),
        (["https://github.com/o/r/issues/3", "--template", "slack"], "a template is for webhooks"),
        (["https://github.com/o/r/issues/3", "--attach", "pdf"], "'pdf' is not one of"),
        (["--post-command", "no-such-program {md}"], "cannot start `no-such-program`"),
        (["--post-command", "cat {mdd}"], "no value for {mdd}"),
    ],
)
def test_a_mistake_is_a_usage_error(run, capsys, args, said):
    assert exit_code(["post", "last", *args]) == 2
    assert said in capsys.readouterr().err
    assert exit_code(["post", "last", *args, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["diagnostics"][0]["code"] == "usage"


def test_a_token_does_not_travel_without_tls(run, monkeypatch, capsys):
    monkeypatch.setenv("REDMINE_API_KEY", "0123456789")
    assert exit_code(["post", "last", "http://redmine.example/issues/3"]) == 2
    assert "the token would travel to redmine.example without TLS" in capsys.readouterr().err


def test_a_refusal_is_exit_code_1_and_nobody_there_6(run, hub, capsys):
    hub.script["POST"] = [(403, {}, {"message": "Resource not accessible"})]
    assert exit_code(["post", "last", f"{hub.url}/o/r/issues/3", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["summary"].endswith("HTTP 403: Resource not accessible") and "hint: the token may not do this" in err


def test_nobody_there_is_exit_code_6(run, hub, capsys, monkeypatch):
    monkeypatch.setattr("runbook.tickets.client.TRIES", 1)
    hub.close()
    assert exit_code(["post", "last", f"{hub.url}/o/r/issues/3"]) == 6
    assert "hint: is the address right" in capsys.readouterr().err


def test_a_file_that_was_refused_is_exit_code_1_and_the_comment_stands(run, start, monkeypatch, capsys):  # noqa: F811
    stub = start(RedmineStub)
    stub.refused_types = {".md", ".zip"}
    monkeypatch.setenv("REDMINE_API_KEY", stub.key)
    assert exit_code(["post", "last", f"{stub.url}/redmine/issues/12", "--attach", "md"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("created: ") and "not attached: " in err and "is not allowed" in err
    assert sum(bool(row["notes"]) for row in stub.journals) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["md", "html", "json", "events", "zip"])
def test_no_secret_leaves_by_any_door(own_state, start, monkeypatch, kind):  # noqa: F811
    """Values of the environment that the run's own mask never knew: the run comes from another machine."""
    for name, value in MUST_MASK.items():
        monkeypatch.setenv(name, value)
    everything = " ".join(MUST_MASK.values())
    folder = write(own_state, hung(extra=f" ({everything})", log="\n".join(f"{name}={value}" for name, value in MUST_MASK.items())))
    (folder / "evidence" / "up" / "stacks.txt").write_bytes(b"\xff" + everything.encode())
    stub = start(GitLabStub)
    monkeypatch.setenv("GITLAB_TOKEN", stub.token)
    monkeypatch.setenv("GITLAB_HOST", stub.host)
    assert exit_code(["post", "last", f"{stub.url}/team/sub/engine/-/issues/7", "--attach", kind]) == 0
    bodies = [seen.body for seen in stub.seen]
    for seen in stub.seen:
        if "multipart" in seen.headers.get("content-type", ""):
            name, _, data = form(seen)["file"]
            if name.endswith(".zip"):
                with zipfile.ZipFile(io.BytesIO(data)) as archive:
                    assert "evidence/up/stacks.txt" in archive.namelist() and "transcript.md" in archive.namelist()
                    bodies += [archive.read(member) for member in archive.namelist()]
    assert sum(b"***HF_TOKEN***" in body or b"HF\\_TOKEN" in body for body in bodies) >= 2
    for body in bodies:
        for value in MUST_MASK.values():
            leaked = [text for text in forms(value) if text.encode() in body]
            assert not leaked
            assert value.replace("_", "\\_").replace("*", "\\*").encode() not in body


def test_the_link_of_the_ci_job_is_in_the_comment(run, hub, monkeypatch):
    for name, value in {
        "GITHUB_ACTIONS": "true",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_RUN_ID": "7",
    }.items():
        monkeypatch.setenv(name, value)
    exit_code(["post", "last", f"{hub.url}/o/r/issues/3", "--attach", "md"])
    body = hub.comments[100]["body"]
    assert "Whole run: https://github.com/o/r/actions/runs/7" in body and "(GitHub's API takes no attachments)" in body


def test_a_program_gets_files_and_facts(run, tmp_path, capsys):
    script = (
        "import sys,json,pathlib; print(pathlib.Path(sys.argv[1]).read_text()[:14], json.load(open(sys.argv[2]))['verdict'], sys.argv[3:])"
    )
    path = tmp_path / "post.py"
    path.write_text(script)
    line = f"{sys.executable} {path} {{md}} {{json}} {{verdict}} {{exit_code}} {{url}}"
    assert exit_code(["post", "last", "https://x.example/1", "--post-command", line]) == 0
    assert capsys.readouterr().out == "# Fusion check hung ['hung', '3', 'https://x.example/1']\n"
    path.write_text("raise SystemExit('no right to write')")
    assert exit_code(["post", "last", "--post-command", line]) == 1
    assert "no right to write" in capsys.readouterr().err


def test_a_journal_from_another_machine_can_be_posted(own_state, hub, tmp_path, capsys):
    """A file that somebody sent: torn at its end, without its evidence."""
    sent = tmp_path / "theirs.jsonl"
    sent.write_bytes((write(own_state, hung()) / "events.jsonl").read_bytes() + b'{"event": "step_')
    assert exit_code(["post", str(sent), f"{hub.url}/o/r/issues/3"]) == 0
    assert hub.comments[100]["body"].startswith("# Fusion check: hung") and RUN in capsys.readouterr().out + hub.comments[100]["body"]


@pytest.mark.slow
def test_the_help_loads_no_http_library():
    code = "import sys; from runbook.cli.main import exit_code; exit_code(['post', '--help']); sys.exit('httpx' in sys.modules or 'tenacity' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_the_address_can_stay_in_the_environment(run, hub, monkeypatch, capsys):
    monkeypatch.setenv("TICKET", f"{hub.url}/o/r/issues/3")
    assert exit_code(["post", "last", "env:TICKET"]) == 0
    assert len(hub.comments) == 1


def leaking(own_state, **more):
    """A run whose journal was written where nobody masked by shape."""
    return write(own_state, hung(log=f"first\nlogin {made('hf_', 34)}", **more))


def test_what_still_looks_like_a_secret_is_not_sent(own_state, hub, capsys):
    leaking(own_state)
    for args in ([], ["--dry-run"]):
        assert exit_code(["post", "last", f"{hub.url}/o/r/issues/3", *args]) == 8
        err = capsys.readouterr().err
        assert "nothing was sent" in err and "hf-token ×1: event 2 (step_ended of `up`), result.text, line 3" in err
        assert f"runbook redact {RUN}" in err and "--allow KIND" in err and made("hf_", 34) not in err
    assert hub.seen == []


def test_the_redacted_copy_is_sent_and_so_is_an_allowed_kind(own_state, hub, capsys, tmp_path):
    folder = leaking(own_state)
    assert exit_code(["redact", RUN, "--out", str(tmp_path / "copy")]) == 0
    assert exit_code(["post", str(tmp_path / "copy"), f"{hub.url}/o/r/issues/3"]) == 0
    assert "***hf-token***" in hub.comments[100]["body"].replace("\\", "")
    assert exit_code(["post", str(folder), f"{hub.url}/o/r/issues/3", "--allow", "hf-token"]) == 0
    assert made("hf_", 34) in hub.comments[100]["body"].replace("\\", "")
    assert exit_code(["post", str(folder), f"{hub.url}/o/r/issues/3", "--allow", "nonsense"]) == 2


def test_a_program_gets_no_secret_either(own_state, capsys):
    folder = write(own_state, hung())
    (folder / "evidence" / "up" / "stacks.txt").write_text(f"\n\ntoken: {made('', 40)}")
    assert exit_code(["post", "last", "--post-command", "cat {zip}", "--json"]) == 8
    error = json.loads(capsys.readouterr().out)["error"]
    assert "token ×1: evidence/up/stacks.txt:3" in error["summary"] and error["exit_code"] == 8
    assert exit_code(["post", "last", "--post-command", "cat {md}"]) == 0


@pytest.mark.parametrize("kind", ["md", "html", "junit", "json", "trace", "zip"])
def test_no_secret_of_the_corpus_is_in_any_format_of_a_run(own_state, tmp_path, kind):
    """As the engine writes it: masked by shape before it is on disk."""
    lines = corpus("must_mask")
    journal = Journal(tmp_path / "run", SystemClock(), Mask({}))
    for event in hung(extra=lines[0].text, log="\n".join(line.text for line in lines)):
        journal.append(msgspec.structs.replace(event, n=-1))
    journal.save("up/stacks.txt", "\n".join(line.text for line in lines).encode())
    journal.close()
    assert exit_code(["report", str(tmp_path / "run"), "--format", kind, "-o", str(tmp_path / "out")]) == 0
    data = [(tmp_path / "out").read_bytes()]
    if kind == "zip":
        with zipfile.ZipFile(tmp_path / "out") as archive:
            data = [archive.read(member) for member in archive.namelist()]
    plain = [html.unescape(each.decode("utf-8", "replace")).replace("\\", "") for each in data]
    assert not [secret for line in lines for secret in line.secrets for text in plain if secret in text]
