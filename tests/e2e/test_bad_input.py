"""Whatever somebody types or forgets: a clear answer with its place and the next step, no traceback, nothing changed anywhere.

The first half never leaves this process: a mistake that the text shows is found before anything is contacted. The second half meets
the mistake on a host, through the real command.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runbook.cli.main import exit_code
from tests.e2e.cli import Outcome, runbook
from tests.steps.serving import plain_server
from tests.support.fixtures import other_user
from tests.support.sshd import Sshd, make_key

__all__ = ["other_user"]

HEAD = "runbook: 1\nhosts: {gpu: local}\n"
FIRST = "steps:\n  - run: {argv: [touch, started]}\n"
"""Each playbook would begin with this: the file tells whether anything ran."""
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(8))

TEXTS: dict[str, tuple[str | bytes, str, str]] = {
    # what is wrong: (the file, code, what to do next)
    "unknown step": (HEAD + FIRST + "  - kil: {pid: 1}\n", "unknown-step", "did you mean `kill`?"),
    "two step types": (HEAD + FIRST + "  - run: 'true'\n    kill: {pid: 1}\n", "two-steps", "`- kill:`"),
    "misspelt key": (HEAD + FIRST + "  - kill: {pidd: 1}\n", "unknown-key", "did you mean `pid`?"),
    "bare number": (HEAD + FIRST + "  - run: 'true'\n    timeout: 300\n", "unit", "`300s`"),
    "tab": (HEAD + FIRST + "\t- run: 'true'\n", "tab-indentation", "spaces"),
    "duplicate key": (HEAD + "name: a\nname: b\n" + FIRST, "duplicate-key", ""),
    "yes": (HEAD + FIRST + "  - kill: {pid: 1, tree: yes}\n", "type", "`true`"),
    "leading zero": (HEAD + FIRST + "  - kill: {pid: 012}\n", "leading-zero", "write 12 or '012'"),
    "exponent": (HEAD + FIRST + "  - kill: {pid: 1e3}\n", "type", "write `1000`"),
    "unquoted expression": (HEAD + FIRST + "  - kill: {pid: ${{ run.id }}}\n", "unquoted-expression", "quote"),
    "undefined variable": (HEAD + "vars: {port: 1}\n" + FIRST + "  - run: echo ${{ vars.prot }}\n", "undefined-var", "`vars.port`"),
    "secret without a value": (HEAD + "secrets: [{name: RB_NOT_SET, required: true}]\n" + FIRST, "missing-secret", "RB_NOT_SET=…"),
    "use of an unset secret": (
        HEAD + "secrets: [RB_NOT_SET]\n" + FIRST + "  - run: {shell: 'true', env: {T: '${{ secrets.RB_NOT_SET }}'}}\n",
        "missing-secret",
        "RB_NOT_SET=…",
    ),
    "target twice": ("runbook: 1\nhosts: {gpu: [local, local]}\n" + FIRST, "duplicate-target", "hosts.yaml"),
    "10 MB": (HEAD + FIRST + "#" + "x" * 10_000_000, "file-too-large", ""),
    "alias bomb": (BOMB, "too-many-nodes", ""),
    "binary": (bytes(range(256)) * 4, "not-text", ""),
    "empty": ("", "empty-file", ""),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def nothing_ran(folder: Path) -> None:
    """No step, no run folder, nothing in a host's state folder."""
    assert not (folder / "started").exists()
    assert list(Path(os.environ["XDG_STATE_HOME"]).rglob("*")) == []


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[list[dict[str, Any]], str]:
    """Diagnostics and what people read of a command line that must be refused."""
    assert exit_code([*argv, "--json"]) == 2
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert answer["verdict"] == "invalid" and answer["diagnostics"]
    assert "Traceback" not in err and "this is a bug" not in err
    return answer["diagnostics"], err


@pytest.mark.parametrize("case", TEXTS)
def test_a_wrong_text_is_refused_with_its_place_and_the_next_step_before_anything_runs(case, here, capsys):
    text, code, hint = TEXTS[case]
    (here / "book.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    found, err = refused(["run", "book.yaml"], capsys)
    first = next(one for one in found if one["code"] == code)
    assert first["file"] == "book.yaml" and first["line"] >= 1 and first["col"] >= 1
    assert f"book.yaml:{first['line']}:{first['col']}: error[{code}]: " in err
    assert first["hint"] and hint in first["hint"], first
    nothing_ran(here)


OPTIONS: dict[str, tuple[list[str], str]] = {
    "a role without a target": (["-H", "gpu"], "-H gpu=big-box"),
    "an empty target": (["-H", "gpu="], "-H gpu=big-box"),
    "an unknown role": (["-H", "gup=local"], "did you mean `gpu`?"),
    "a target that is an option": (["-H", "gpu=-oProxyCommand=touch started"], "user@host:port"),
    "a target with a blank": (["-H", "gpu=big box"], "user@host:port"),
    "no such port": (["-H", "gpu=big-box:70000"], "there is no port 70000"),
    "an undeclared variable": (["-e", "prot=1"], "did you mean `port`?"),
    "a word for a number": (["-e", "port=x"], "as in `3`"),
    "yes for true": (["-e", "dry=yes"], "write `true` or `false`"),
    "half a list": (["-e", "list=[1"], "as in `[a, b]`"),
    "half a mapping": (["-e", "map={a: "], "as in `{a: 1}`"),
    "a variable without a value": (["-e", "port"], "-e name=value"),
    "a vars file that is not there": (["-e", "@none.yaml"], "cannot read `none.yaml`"),
    "a vars file that is a folder": (["-e", "@folder"], "cannot read `folder`: Is a directory"),
    "a vars file that is a list": (["-e", "@list.yaml"], "a vars file is a mapping"),
    "a vars file with a tab": (["-e", "@tab.yaml"], "tab.yaml:2:1"),
    "a short secret": (["-e", "hf_token=abc"], "use a longer value"),
    "a folder that holds a run": (["--out", "old"], "old holds a run already: name another folder"),
    "a folder below a file": (["--out", "book.yaml/x"], "name another folder with --out"),
    "a folder that is a file": (["--out", "book.yaml"], "is a file"),
    "an option that does not exist": (["--chek"], "--check"),
}


@pytest.fixture
def book(here: Path) -> Path:
    """A right playbook, and files to be wrong with."""
    (here / "book.yaml").write_text(HEAD + "vars: {port: 1, dry: false, list: [], map: {a: 1}, hf_token: ''}\n" + FIRST)
    (here / "folder").mkdir()
    (here / "list.yaml").write_text("- 1\n")
    (here / "tab.yaml").write_text("a:\n\tb: 1\n")
    (here / "old").mkdir()
    (here / "old" / "events.jsonl").write_text("")
    return here


@pytest.mark.parametrize("case", OPTIONS)
def test_a_wrong_option_is_refused_with_the_next_step_before_anything_runs(case, book, capsys):
    options, said = OPTIONS[case]
    found, err = refused(["run", "book.yaml", *options], capsys)
    assert said in err
    assert said in " ".join(f"{one['file']}:{one['line']}:{one['col']} {one['summary']} {one['hint']}" for one in found)
    nothing_ran(book)


def test_a_state_folder_that_cannot_be_written_is_said_with_the_way_out(book, capsys, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(book / "book.yaml"))
    assert "set XDG_STATE_HOME" in refused(["run", "book.yaml"], capsys)[1]
    assert not (book / "started").exists()


@pytest.mark.parametrize(
    ("name", "said"), [("folder", "Is a directory"), ("loop", "symbolic links"), ("none.yaml", "No such file"), ("pipe", "no regular file")]
)
def test_what_is_no_readable_file_is_named_with_the_reason(name, said, book, capsys):
    (book / "loop").symlink_to("loop")
    os.mkfifo(book / "pipe")
    (found,), _ = refused(["run", f"./{name}"], capsys)
    assert found["code"] == "unreadable" and f"cannot read `./{name}`: " in found["summary"] and said in found["summary"] and found["hint"]
    nothing_ran(book)


def test_a_playbook_without_the_right_to_read_it_is_named_with_the_reason(book, capsys):
    refused(["run", "none.yaml"], capsys)  # loads what is loaded late, as long as the source tree may be read
    (book / "book.yaml").chmod(0)
    account = os.geteuid()
    if account == 0:
        book.chmod(0o711)
        os.seteuid(65534)  # root reads everything
    try:
        (found,), _ = refused(["run", "book.yaml"], capsys)
    finally:
        os.seteuid(account)
    assert found["code"] == "unreadable" and "Permission denied" in found["summary"] and found["hint"]
    nothing_ran(book)


INVENTORIES: dict[str, tuple[str, str, str]] = {
    # what is wrong: (hosts.yaml, place, what is said)
    "misspelt key": ("hosts:\n  box: {hots: 127.0.0.1}\n", "2:9", "unknown key `hots`"),
    "misspelt top": ("host:\n  box: {}\n", "1:1", "did you mean `hosts`?"),
    "a port that is no number": ("hosts:\n  box: {port: ssh}\n", "2:15", "`port`"),
    "a tab": ("hosts:\n\tbox: {}\n", "2:1", "a tab"),
}


@pytest.mark.parametrize("case", INVENTORIES)
def test_a_mistake_in_the_inventory_has_its_place_and_nothing_runs(case, book, capsys):
    text, place, said = INVENTORIES[case]
    (book / "hosts.yaml").write_text(text)
    found, err = refused(["run", "book.yaml"], capsys)
    assert f"hosts.yaml:{place}: error[bad-inventory]: " in err and said in err
    assert found[0]["hint"] and f"{found[0]['line']}:{found[0]['col']}" == place
    nothing_ran(book)


# On a host ---------------------------------------------------------------------------------------------------------

MODEL = "def forward(batch):\n    hidden = batch\n    hidden = batch\n    return hidden\n"


class Box:
    """A host behind a real sshd: a source file to patch, and what a run would leave there."""

    def __init__(self, sshd: Sshd, folder: Path) -> None:
        self.sshd = sshd
        self.folder = folder
        self.model = sshd.home / "engine" / "model.py"
        self.model.parent.mkdir()
        (sshd.home / ".local" / "state").mkdir(parents=True)
        self.model.write_text(MODEL)
        self.state = folder / "state"

    def run(self, *steps: dict[str, Any], host: Any = "box", **more: Any) -> Outcome:
        """Run these steps on `box`."""
        book = {"runbook": 1, "name": "Bad", "hosts": {"gpu": host}, "steps": list(steps)}
        (self.folder / "book.yaml").write_text(json.dumps(book))
        env = {"RUNBOOK_SSH_CONFIG": str(self.sshd.client_config), "HOME": str(self.folder)}
        return runbook("run", "book.yaml", "--json", state=self.state, cwd=self.folder, env=env, **more)

    def fingerprint(self) -> dict[str, tuple[str, int, int]]:
        """Every file of the host's home with hash, mode and time, every folder; so also that there is none of ours."""
        return {str(path.relative_to(self.sshd.home)): _print_of(path) for path in self.sshd.home.rglob("*")}

    def processes(self) -> list[str]:
        """What was started on the host and still lives."""
        mark = b"HOME=" + str(self.sshd.home).encode() + b"\0"
        return [pid for pid in filter(str.isdigit, os.listdir("/proc")) if mark in _environ(pid)]


def _print_of(path: Path) -> tuple[str, int, int]:
    stat = path.stat()
    if path.is_dir():
        return ("", stat.st_mode, 0)
    return (hashlib.sha256(path.read_bytes()).hexdigest(), stat.st_mode, stat.st_mtime_ns)


def _environ(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""  # it has ended


@pytest.fixture
def box(sshd: Sshd, tmp_path: Path) -> Iterator[Box]:
    """Afterwards the host is as it was: no file changed or added, no process."""
    found = Box(sshd, tmp_path)
    before = found.fingerprint()
    yield found
    assert found.fingerprint() == before
    assert found.processes() == []


def clear(outcome: Outcome, code: int, verdict: str, *said: str) -> dict[str, Any]:
    """The answer of a run that met a mistake: verdict, exit code, host and step in people's text, all of `said` in the reason."""
    assert outcome.code == code, outcome.err
    assert "Traceback" not in outcome.err and "a bug in runbook" not in outcome.err
    answer = outcome.json
    assert (answer["verdict"], answer["exit_code"]) == (verdict, code)
    assert re.search(r"s01_\w+ \[[\w.-]+\]", outcome.err), "step and host"
    for text in said:
        assert text in answer["reason"], answer["reason"]
    assert answer["left_behind"] == [] and answer["next"]
    return answer


LOOK = {"run": {"argv": ["true"]}}


@pytest.mark.e2e
def test_a_host_that_is_nowhere_named(box):
    clear(box.run(LOOK, host="no-such-box"), 6, "unreachable", "`no-such-box` is not in hosts.yaml and no ssh alias", "user@address")


@pytest.mark.e2e
def test_a_host_that_is_nearly_named_is_suggested(box):
    (box.folder / "hosts.yaml").write_text("hosts: {big-box: {host: 127.0.0.1}}\n")
    clear(box.run(LOOK, host="bigbox"), 6, "unreachable", "did you mean `big-box`?")


@pytest.mark.e2e
@pytest.mark.parametrize("target", ["box", "local"])
def test_a_host_without_python(box, target):
    clear(box.run(LOOK, host={"target": target, "python": "/no/such/python"}), 6, "unreachable", "/no/such/python", "set `python:`")


@pytest.mark.e2e
def test_a_host_whose_key_changed(box):
    other = make_key(box.folder / "other_key")
    box.sshd.known_hosts.write_text(box.sshd.known_hosts_line(other))
    clear(box.run(LOOK), 6, "unreachable", "host key", f"{box.sshd.known_hosts}:1", "ssh-keygen -R")


@pytest.mark.e2e
def test_a_port_that_is_in_use(box):
    with plain_server() as port:
        launch = {"launch": {"command": ["python3", "-m", "http.server", str(port)], "port": port}}
        answer = clear(box.run(launch), 7, "wrong_server", f"port {port} is already answered by pid {os.getpid()}", "nothing was started")
    assert any("another port" in line for line in answer["next"]) and answer["diagnosis"]["rule"] == "port_taken_before_launch"


def patch(box: Box, **keys: Any) -> dict[str, Any]:
    """A patch step of the model file."""
    return {"patch": {"file": str(box.model), **keys}}


def probe(statement: str) -> list[dict[str, Any]]:
    """One probe after a statement."""
    return [{"at": "forward", "after": statement, "show": ["hidden"]}]


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("probes", "said"),
    [
        (probe("hidden = fuse(batch)"), ["nothing was written", "hidden = fuse(batch)", "hidden = batch", "model.py:"]),
        (probe("hidden = batch"), ["nothing was written", "model.py:", "2", "3"]),
        ([{"at": "Model.forward", "show": ["hidden"], "where": "entry"}], ["nothing was written", "Model.forward", "forward"]),
    ],
    ids=["missing", "not unique", "no such function"],
)
def test_an_anchor_that_names_no_place(box, probes, said):
    clear(box.run(patch(box, probes=probes)), 1, "failed", str(box.model), *said)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("name", "said"),
    [("engine", "not a regular file; name the file itself"), ("engine/none.py", "No such file or directory; check the path")],
    ids=["a folder", "no such file"],
)
def test_a_target_file_that_is_none(box, name, said):
    path = str(box.sshd.home / name)
    clear(box.run({"patch": {"file": path, "replace": [{"find": "a", "with": "b"}]}}), 1, "failed", path, said)


EDIT = [{"find": "return hidden", "with": "return None"}]


@pytest.mark.e2e
def test_a_target_file_that_is_read_only(box):
    box.model.chmod(0o444)
    try:
        outcome = box.run(patch(box, replace=EDIT))
        assert box.model.read_text() == MODEL and box.model.stat().st_mode & 0o777 == 0o444
    finally:
        box.model.chmod(0o644)
    clear(outcome, 1, "failed", f"cannot patch {box.model}: the file is read-only (mode 444)", "chmod u+w")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every account may use: those of pytest are private."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


ROOT = os.geteuid() == 0
SYSTEM_PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin") or sys.executable


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("owner", "home", "said"),
    [
        ("", "XDG_STATE_HOME={}/state", ["cannot patch", "model.py", "read-only"]),
        ("theirs", "XDG_STATE_HOME={}/state", ["cannot patch", "model.py", "its group" if ROOT else "read-only"]),
        ("", "HOME=/nonexistent XDG_STATE_HOME=", ["/nonexistent", "set XDG_STATE_HOME"]),
    ],
    ids=["the file", "its group", "no state folder"],
)
def test_a_target_file_that_another_account_may_not_write(box, other_user, open_folder, owner, home, said):
    """Where the tests may become no other account, theirs is the other one, and the file has no owner who may write."""
    model = open_folder / "engine" / "model.py"
    model.parent.mkdir()
    model.write_text(MODEL)
    model.chmod(0o644 if ROOT else 0o444)
    if owner and ROOT:
        for path in (model, model.parent):
            shutil.chown(path, other_user, 0)
    become = f"sudo -n -u {other_user} env" if ROOT else "env"
    there = {"target": "local", "python": SYSTEM_PYTHON, "via": f"{become} {home.format(open_folder)}"}
    clear(box.run({"patch": {"file": str(model), "replace": EDIT}}, host=there), 1, "failed", *said)
    assert model.read_text() == MODEL
    assert [path for path in open_folder.rglob("*") if path.is_file()] == [model]
