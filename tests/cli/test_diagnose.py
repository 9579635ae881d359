"""`runbook diagnose` on real processes that nobody launched for it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runbook.cli.diagnose import of_run
from runbook.cli.main import exit_code
from runbook.model.event import RunEnded
from runbook.model.verdict import EXIT_CODES
from tests.steps.serving import SMALL_SERVER, free_port
from tests.support.processes import state_of
from tests.support.schemas import validator
from tests.support.waiting import until

KEYS = {
    "verdict",
    "kind",
    "confidence",
    "rule",
    "phase",
    "progress",
    "eta_s",
    "quiet_s",
    "culprit",
    "evidence",
    "findings",
    "blind",
    "next",
}
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts programs with their output in `log`; ends them with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(*argv: str, log: str = "server.log", **options: Any) -> subprocess.Popen[bytes]:
        with open(tmp_path / log, "ab") as out:
            running.append(subprocess.Popen([sys.executable, *argv], stdout=out, stderr=out, start_new_session=True, **options))
        return running[-1]

    yield begin
    for process in running:
        for pid in (process.pid,):
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.wait()


@pytest.fixture
def diagnose(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """One command line: its exit code and its object."""

    def run(*argv: str, target: str = "local") -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = exit_code(["diagnose", target, "--json", *argv])
        answer = json.loads(capsys.readouterr().out)
        validator("diagnose").validate(answer)
        return code, answer

    return run


SLEEPS = ("-c", "import time\nwhile True: time.sleep(60)")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--port", "1", "--pid", "2"), "give one of them"),
        (("--match", "("), "no regular expression"),
        (("--for", "60"), "--for"),
        (("--stall-after", "soon"), "--stall-after"),
        (("--profile", "nope", "--pid", "1"), "no profile `nope`"),
    ],
)
def test_a_mistake_in_the_command_line_is_told_before_anything_is_contacted(diagnose, argv, said):
    code, answer = diagnose(*argv, target="nowhere.invalid")
    assert code == 2 and answer["verdict"] == "invalid"
    assert said in answer["diagnostics"][0]["summary"]


def test_a_look_that_never_came_about_has_the_verdict_and_reason_of_its_run():
    ended = RunEnded(verdict="refused", exit_code=8, reason="the server belongs to somebody else")
    answer = of_run([], ended)
    assert (answer.verdict, answer.rule, answer.reason) == ("refused", "not_looked", ended.reason)


def test_a_host_that_is_not_reached_says_nothing_about_the_server(diagnose):
    code, answer = diagnose("--port", "1", target="nowhere.invalid")
    assert code == EXIT_CODES["unreachable"] and answer["verdict"] == "unreachable"
    assert set(answer) >= KEYS


@pytest.mark.slow
def test_a_pid_that_is_gone_is_an_error_with_what_runs_instead(diagnose, start):
    gone = start("-c", "pass")
    gone.wait()
    code, answer = diagnose("--pid", str(gone.pid))
    assert code == 2 and f"no process {gone.pid}" in answer["diagnostics"][0]["summary"]
    assert isinstance(answer["candidates"], list)


def test_a_log_that_does_not_exist_is_an_error_not_a_silent_server(diagnose, start, tmp_path):
    server = start(*SLEEPS)
    code, answer = diagnose("--pid", str(server.pid), "--log", str(tmp_path / "nope.log"))
    assert code == 2 and "nope.log" in answer["diagnostics"][0]["summary"]


@pytest.mark.slow
def test_a_serving_server_is_passed_and_what_was_seen_can_be_judged_again(diagnose, start, capsys):
    port = free_port()
    start(str(SMALL_SERVER), "--port", str(port), "--load", "0.1")
    code, answer = diagnose("--port", str(port), "--for", "20s")
    assert code == 0 and answer["verdict"] == "passed" and "200" in answer["reason"]
    assert set(answer) >= KEYS and answer["phase"] == "ready"
    folder = Path(answer["transcript"]).parent
    assert (folder / "events.jsonl").is_file() and (folder / "transcript.html").is_file()
    assert exit_code(["judge", answer["run"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["same"] is True


@pytest.mark.slow
def test_a_server_that_loads_and_does_not_listen_yet_is_found_by_the_port_of_its_command(diagnose, start):
    port = free_port()
    server = start(str(SMALL_SERVER), "--port", str(port), "--load", "60")
    code, answer = diagnose("--port", str(port), "--for", "6s")
    assert (code, answer["verdict"], answer["kind"]) == (4, "slow", "on_track")
    assert answer["eta_s"] and answer["progress"]
    assert server.poll() is None, "looking changes nothing"


@pytest.mark.slow
def test_a_stopped_server_is_hung_long_before_the_time_is_over_and_stays_as_it_is(diagnose, start):
    server = start(*SLEEPS)
    os.kill(server.pid, signal.SIGSTOP)
    until(lambda: state_of(server.pid) == "T")
    code, answer = diagnose("--pid", str(server.pid), "--for", "60s")
    assert (code, answer["verdict"], answer["kind"]) == (3, "hung", "stopped")
    assert answer["culprit"]["pid"] == server.pid
    assert state_of(server.pid) == "T"


@pytest.mark.slow
def test_a_server_that_dies_meanwhile_is_crashed_with_its_last_words(diagnose, start):
    server = start("-c", "import time\ntime.sleep(3)\nraise ValueError('hidden size')")
    code, answer = diagnose("--pid", str(server.pid), "--for", "30s")
    assert (code, answer["verdict"]) == (5, "crashed")
    assert "hidden size" in answer["reason"]


@pytest.mark.slow
def test_a_zombie_has_a_verdict_within_its_time(diagnose, start, tmp_path):
    """Its parent does not collect it: it is there, and it will never answer."""
    parent = start("-c", "import os,time\nchild=os.fork()\nif not child: os._exit(7)\nprint(child, flush=True)\ntime.sleep(60)", log="pid")
    child = int(until(lambda: (tmp_path / "pid").read_text()))
    until(lambda: state_of(child) == "Z")
    code, answer = diagnose("--pid", str(child), "--for", "20s")
    assert (code, answer["verdict"]) == (EXIT_CODES["crashed"], "crashed")
    assert "exit code 7" in answer["reason"]
    assert parent.poll() is None


@pytest.mark.slow
def test_a_log_of_any_bytes_is_read_without_harm(diagnose, start):
    noise = "import os,sys,time\nwhile True:\n sys.stdout.buffer.write(os.urandom(5000)+bytes(5000)); sys.stdout.flush(); time.sleep(.2)"
    server = start("-c", noise)
    code, answer = diagnose("--pid", str(server.pid), "--for", "5s")
    assert code in (EXIT_CODES["slow"], EXIT_CODES["undecided"]) and set(answer) >= KEYS


@pytest.mark.slow
def test_a_log_behind_a_pipe_is_found_at_who_reads_it(tmp_path, diagnose):
    log = tmp_path / "teed.log"
    counting = tmp_path / "counting.py"
    counting.write_text("import time\nfor n in range(999):\n    print(f'shard {n}/999', flush=True)\n    time.sleep(0.2)\n")
    line = f"{sys.executable} {counting} | tee {log} > /dev/null"
    shell = subprocess.Popen(["bash", "-c", line], start_new_session=True)
    try:
        until(lambda: log.exists() and log.read_text().count("\n") > 2)
        code, answer = diagnose("--match", str(counting), "--for", "6s")
        assert code == EXIT_CODES["slow"], answer["reason"]
        assert not any("log" in text for text in answer["blind"])
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


@pytest.mark.slow
def test_of_several_servers_none_is_guessed(diagnose, start):
    first, second = (start(*SLEEPS, "runbook-test-needle") for _ in range(2))
    code, answer = diagnose("--match", "runbook-test-needle")
    assert code == 2 and {row["pid"] for row in answer["candidates"]} == {first.pid, second.pid}
    assert {"pid", "title", "ports", "age_s", "profile"} <= set(answer["candidates"][0])


@pytest.mark.slow
def test_a_log_that_is_rotated_meanwhile_is_followed(diagnose, start, tmp_path):
    rotating = (
        "import os,time\nfor n in range(999):\n"
        " if n == 15: os.rename('server.log','server.log.1'); f=os.open('server.log',os.O_CREAT|os.O_WRONLY); os.dup2(f,1)\n"
        " os.write(1,b'shard %d/999\\n' % n); time.sleep(.2)"
    )
    server = start("-c", rotating, cwd=tmp_path)
    code, answer = diagnose("--pid", str(server.pid), "--for", "8s")
    assert (tmp_path / "server.log.1").exists()
    assert code == EXIT_CODES["slow"], answer["reason"]
    assert answer["progress"]["bar"].endswith("/999") and int(answer["progress"]["bar"].split()[-1].split("/")[0]) > 20


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv") or not os.access("/usr/bin/python3", os.X_OK),
    reason="needs root to become somebody else",
)
def test_another_user_gets_a_verdict_that_names_what_was_not_to_be_seen(diagnose, start, tmp_path, monkeypatch):
    """Without rights nothing is guessed: a server of root, looked at as nobody."""
    (tmp_path / "hosts.yaml").write_text(
        "hosts:\n  other: {host: local, via: setpriv --reuid 65534 --regid 65534 --clear-groups, python: /usr/bin/python3}\n"
    )
    monkeypatch.chdir(tmp_path)
    server = start("-c", "import time\nfor n in range(999): print(n, flush=True); time.sleep(.2)")
    code, answer = diagnose("--pid", str(server.pid), "--for", "5s", target="other")
    assert answer["verdict"] in ("undecided", "slow") and code == EXIT_CODES[answer["verdict"]]
    assert any("not ours" in text or "not permitted" in text or "rights" in text for text in answer["blind"]), answer["blind"]


@pytest.mark.slow
def test_over_ssh_it_is_the_same(diagnose, start, sshd, monkeypatch):
    monkeypatch.setenv("RUNBOOK_SSH_CONFIG", str(sshd.client_config))
    port = free_port()
    start(str(SMALL_SERVER), "--port", str(port), "--load", "60")
    code, answer = diagnose("--port", str(port), "--for", "5s", target="box")
    assert (code, answer["verdict"], answer["kind"]) == (4, "slow", "on_track"), answer["reason"]


@pytest.mark.slow
def test_a_deadlock_is_hung_with_its_place(diagnose, start, tmp_path, capsys):
    """Two locks taken in opposite order, beside nothing else that works."""
    (tmp_path / "locks.py").write_text(
        "import threading, time\na, b = threading.Lock(), threading.Lock()\n"
        "def take(one, other):\n    with one:\n        time.sleep(1)\n        with other:\n            pass\n"
        "print('two threads', flush=True)\n"
        "threads = [threading.Thread(target=take, args=pair) for pair in ((a, b), (b, a))]\n"
        "for thread in threads: thread.start()\nfor thread in threads: thread.join()\n"
    )
    server = start(str(tmp_path / "locks.py"))
    code, answer = diagnose("--pid", str(server.pid), "--for", "90s", "--stall-after", "12s")
    assert (code, answer["verdict"], answer["kind"]) == (3, "hung", "deadlock"), answer["reason"]
    assert {row["points_to"] for row in answer["evidence"]} >= {"hung"} and len(answer["evidence"]) >= 2
    assert exit_code(["judge", answer["run"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["same"] is True


@pytest.mark.slow
def test_its_live_twin_waits_on_a_lock_whose_holder_works(diagnose, start, tmp_path):
    """The same main thread in the same place for as long, and a thread that reads a file all the while."""
    (tmp_path / "big").write_bytes(bytes(1 << 20))
    (tmp_path / "twin.py").write_text(
        "import threading, time\nlock = threading.Lock()\n"
        f"def read():\n    with lock:\n        while True:\n            open({str(tmp_path / 'big')!r}, 'rb').read(); time.sleep(0.2)\n"
        "threading.Thread(target=read, daemon=True).start()\ntime.sleep(0.5)\nprint('waiting', flush=True)\nlock.acquire()\n"
    )
    server = start(str(tmp_path / "twin.py"))
    code, answer = diagnose("--pid", str(server.pid), "--for", "30s", "--stall-after", "12s")
    assert (code, answer["verdict"]) == (4, "slow"), answer["reason"]


@pytest.mark.slow
def test_a_playbook_attaches_the_server_asks_it_and_leaves_it_up(start, tmp_path, capsys):
    """The load is paid once: a second run uses what is up, owes nothing for it, and a wait on it that ends slow suspends nothing."""
    port = free_port()
    server = start(str(SMALL_SERVER), "--port", str(port), "--load", "0.1")
    until(lambda: "Uvicorn running" in (tmp_path / "server.log").read_text())
    book = tmp_path / "book.yaml"
    book.write_text(
        f"runbook: 1\nname: attached\nhosts: {{box: local}}\nsteps:\n  - id: server\n    attach: {{port: {port}}}\n"
        "  - diagnose: {server: server, timeout: 20s}\n  - wait_healthy: {server: server, timeout: 20s}\n"
        "  - id: echo\n    request: {server: server, get: /echo}\n  - assert: steps.server.pid > 0 and steps.echo.bytes > 0\n"
    )
    code = exit_code(["run", str(book), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert (code, answer["verdict"]) == (0, "passed"), answer["reason"]
    assert answer["left_behind"] == [] and server.poll() is None
    book.write_text(book.read_text().replace("timeout: 20s}\n  - id: echo", "timeout: 3s, expect: {status: 418}}\n  - id: echo"))
    exit_code(["run", str(book), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["state"] == "ended" and server.poll() is None


@pytest.mark.slow
def test_an_address_that_is_not_there_is_said_first_and_a_url_is_asked_as_it_was_given(diagnose, start, tmp_path):
    port = free_port()
    server = start("-m", "http.server", str(port), "--bind", "127.0.0.1", cwd=tmp_path)
    until(lambda: (tmp_path / "server.log").exists(), 10)
    code, answer = diagnose("--pid", str(server.pid), "--for", "30s")
    assert (code, answer["verdict"]) == (EXIT_CODES["wrong_check"], "wrong_check")
    assert "/health does not exist there (404)" in answer["next"][0]
    code, answer = diagnose("--pid", str(server.pid), "--url", f"http://127.0.0.1:{port}/", "--for", "20s")
    assert code == 0 and f"http://127.0.0.1:{port}/ answered 200" in answer["reason"]
