"""A helper over a channel: how it starts, how it fails to, how the end of a link reaches every caller."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from runbook.hosts import session as session_module
from runbook.hosts.base import CallTimeout, Cancelled, CancelToken, LinkLost, NoPython, RemoteError, Transport
from runbook.hosts.bundle import helper_argv, payload, quote_any_shell, remote_command
from runbook.hosts.fake import FakeCall, FakeTransport, fake_host
from runbook.hosts.local import ProcessChannel, connect_local
from runbook.hosts.session import NOISE_KEPT, Session
from tests.support.processes import children, is_gone
from tests.support.waiting import until

HELPER = shlex.join(helper_argv(python=sys.executable))


def session(shell: str, timeout_s: float = 10) -> Session:
    return Session(ProcessChannel(["sh", "-c", shell]), timeout_s=timeout_s, what="box")


class TestStart:
    def test_what_start_files_print_is_kept_apart(self) -> None:
        one = session(f"echo 'Welcome to box'; printf 'no newline'; exec {HELPER}")
        assert one.noise == b"Welcome to box\nno newline" and one.call("marks", {"paths": []}, timeout_s=5).data == {}
        one.close()

    def test_much_noise_is_bounded_and_does_no_harm(self) -> None:
        one = session(f"head -c 300000 /dev/zero; exec {HELPER}")
        assert one.noise == b"\0" * NOISE_KEPT and one.call("marks", {"paths": []}, timeout_s=5).data == {}
        one.close()

    @pytest.mark.parametrize(
        ("shell", "said"),
        [
            ("echo 'sh: python3: not found' >&2; exit 127", "python3: not found (exit 127)"),
            ("echo 'sudo: a password is required' >&2; exit 1", "a password is required"),
            ("exec cat > /dev/null", "no answer from the helper on box in 0.3 s"),
            ("echo 'motd'; exec cat > /dev/null", "it printed b'motd"),
            ("kill -9 $$", "killed by signal 9"),
        ],
        ids=["no python", "prefix refuses", "silent", "noise only", "killed"],
    )
    def test_a_helper_that_does_not_start_says_why_and_what_to_set(self, shell: str, said: str) -> None:
        with pytest.raises(NoPython) as raised:
            session(shell, timeout_s=0.3 if "cat" in shell else 10)
        assert said in raised.value.summary and "python:" in raised.value.hint and raised.value.stage == "helper"

    def test_a_python_that_is_too_old_says_so(self, tmp_path: Path) -> None:
        """An interpreter that claims to be 3.6: the version is looked at before any of our code is compiled."""
        code = helper_argv()[-1].replace("import sys,zlib;", "import sys,zlib;sys.version_info=(3,6,15,'final',0);")
        with pytest.raises(NoPython, match=r"python 3\.6 is too old: 3\.8 or later"):
            session(shlex.join([sys.executable, "-ISc", code]))

    def test_a_missing_interpreter_is_told_for_local_too(self) -> None:
        with pytest.raises(NoPython, match="/no/such/python"):
            connect_local(python="/no/such/python")

    def test_modules_in_the_working_directory_are_not_imported(self, tmp_path: Path) -> None:
        """A folder with a json.py must not become part of the helper."""
        (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
        one = session(f"cd {tmp_path} && exec {HELPER}")
        assert one.facts.cwd == str(tmp_path)
        one.close()

    def test_the_payload_holds_no_text_that_a_shell_or_person_could_read(self) -> None:
        assert b"import" not in payload("dispatch", {"nonce": "0" * 32}) and len(payload("dispatch", {})) < 200_000


class TestEnd:
    def test_a_lost_link_releases_every_waiting_call(self) -> None:
        host = connect_local()
        errors: list[BaseException] = []

        def wait() -> None:
            try:
                host.run(["sleep", "60"])
            except LinkLost as error:
                errors.append(error)

        threads = [threading.Thread(target=wait) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(children(host.facts.pid)) == 4, 5)
        orphans = children(host.facts.pid)
        os.kill(host.facts.pid, signal.SIGKILL)
        for thread in threads:
            thread.join(5)
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
        assert len(errors) == 4 and "killed by signal 9" in str(errors[0])
        with pytest.raises(LinkLost):
            host.processes()
        host.close()

    @pytest.mark.parametrize("how", ["close", "stdin ends", "terminated"])
    def test_nothing_that_the_helper_ran_outlives_it(self, how: str) -> None:
        channel = ProcessChannel(helper_argv(python=sys.executable))
        one = Session(channel, what="box")
        stubborn = "trap '' TERM; " if how == "close" else ""  # one of the three climbs the whole ladder
        script = stubborn + "sleep 60 & sleep 60 & wait"
        exchange = one.begin("run", {"shell": script, "limit_s": 60, "ladder": ["TERM 30s", "KILL 5s"]})
        until(lambda: len(children(one.facts.pid)) == 1, 5)
        (leader,) = children(one.facts.pid)
        until(lambda: len(children(leader)) == 2, 5)
        everyone = [leader, *children(leader), one.facts.pid]
        {"close": one.close, "stdin ends": channel._to.close, "terminated": lambda: os.kill(one.facts.pid, signal.SIGTERM)}[how]()
        until(lambda: all(is_gone(pid) for pid in everyone), 6)
        exchange.finish()
        one.close()

    def test_closing_twice_is_fine(self) -> None:
        host = connect_local()
        host.close()
        host.close()


class TestQuoting:
    WORDS = ("plain", "", "two words", "it's", "a\\b", "!hist", '$HOME `id` "x"', "*?[a]{b}", "ü", "a'\\!'b", "-x=1", "#", "~user")

    @pytest.mark.parametrize("shell", [shell for shell in ("sh", "bash", "dash", "zsh", "fish", "tcsh", "ksh") if shutil.which(shell)])
    def test_a_word_survives_every_login_shell_that_is_here(self, shell: str, tmp_path: Path) -> None:
        show = [sys.executable, "-c", "import sys; print(sys.argv[1:])", *self.WORDS]
        line = " ".join(quote_any_shell(word) for word in show)
        done = subprocess.run(
            [shell, "-c", "exec " + line], capture_output=True, text=True, env={**os.environ, "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
        )
        assert done.stdout == f"{list(self.WORDS)}\n", done.stderr

    def test_the_line_for_a_login_shell_is_exec_prefix_interpreter_stub(self) -> None:
        line = remote_command("sudo -n -u 'some user'", "~/venv/bin/python")
        assert line.startswith("exec sudo -n -u 'some user' ~/venv/bin/python -ISc 'import sys") and "\n" not in line
        assert remote_command().startswith("exec python3 -ISc ")

    def test_a_line_break_cannot_be_sent(self) -> None:
        with pytest.raises(ValueError, match="line break"):
            remote_command(["docker", "exec", "a\nb"])


def fake_run(call: FakeCall) -> tuple[dict[str, object], bytes]:
    """As a host would run `seconds` of sleep after printing a line."""
    call.emit({"stream": "stdout"}, b"first\n")
    call.cancelled.wait(call.args["seconds"])
    return {"exit": 0}, b"first\n"


def on_host(seconds: float) -> dict[str, object]:
    return {"argv": ["sh", "-c", f"echo first; exec sleep {seconds}"], "live": True, "ladder": ["KILL 1s"], "seconds": seconds}


class TestTransports:
    """The fake keeps the promises of the real one."""

    @pytest.fixture(params=[lambda: connect_local().transport, lambda: FakeTransport({"run": fake_run})], ids=["real", "fake"])
    def transport(self, request: pytest.FixtureRequest) -> Transport:
        made: Transport = request.param()
        request.addfinalizer(made.close)
        return made

    def test_events_come_before_the_reply(self, transport: Transport) -> None:
        seen: list[bytes] = []
        reply = transport.call("run", on_host(0), timeout_s=5, on_event=lambda data, blob: seen.append(blob))
        assert seen == [b"first\n"] and reply.data["exit"] == 0 and reply.blob == b"first\n"

    def test_time_box_and_cancel_hold(self, transport: Transport) -> None:
        with pytest.raises(CallTimeout):
            transport.call("run", on_host(30), timeout_s=0.2)
        token = CancelToken()
        with pytest.raises(Cancelled):
            transport.call("run", on_host(30), timeout_s=20, cancel=token, on_event=lambda data, blob: token.set())
        with pytest.raises(Cancelled):
            transport.call("run", on_host(0), timeout_s=5, cancel=token)

    def test_errors_have_codes_and_a_closed_link_is_lost(self, transport: Transport) -> None:
        with pytest.raises(RemoteError) as raised:
            transport.call("nothing", {}, timeout_s=5)
        assert raised.value.code == "bad_request"
        transport.close()
        with pytest.raises(LinkLost):
            transport.call("run", on_host(0), timeout_s=5)

    def test_a_slow_reader_of_live_output_costs_bounded_memory(self) -> None:
        """The command is not held up, the reader gets less than all, and is told how much less."""
        transport = connect_local().transport
        gate = threading.Event()
        seen: list[tuple[int, int]] = []

        def slow(data: dict[str, object], blob: bytes) -> None:
            gate.wait(0.5)
            gate.set()
            seen.append((len(blob), int(str(data["withheld"]))))

        args = {"shell": "head -c 20000000 /dev/zero; sleep 0.8; echo end", "live": True, "keep": 10, "limit_s": 20}
        reply = transport.call("run", args, timeout_s=20, on_event=slow)
        transport.close()
        passed, withheld = sum(size for size, _ in seen), sum(less for _, less in seen)
        assert reply.data["stdout_dropped"] == 20_000_004 - 50 and passed + withheld == 20_000_004 and withheld > 10_000_000


def test_a_fake_host_answers_typed_calls_from_its_table() -> None:
    host = fake_host(ops={"marks": {"/x": {"inode": 1, "size": 2}}, "hash": RemoteError("not_found", "gone")})
    assert host.marks(["/x"])["/x"].size == 2 and host.http.request("GET", "http://x/", timeout_s=1).outcome == "refused"
    with pytest.raises(RemoteError, match="gone"):
        host.hash("/x")


@pytest.mark.slow
class TestSilence:
    """A link that is dead and that nobody has closed: the helper goes by itself, but not while somebody is there or something runs."""

    @pytest.fixture
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Session]:
        def start(alive_s: float) -> Session:
            monkeypatch.setattr(session_module, "ALIVE_S", alive_s)
            monkeypatch.setattr(session_module, "payload", lambda entry, args: payload(entry, {**args, "silence_s": 0.9}))
            return session(f"exec {HELPER}")

        return start

    def test_it_leaves_when_it_hears_nothing(self, impatient: Callable[[float], Session]) -> None:
        one = impatient(60.0)
        until(lambda: one.lost is not None, 10)
        assert is_gone(one.facts.pid)

    def test_it_stays_while_the_controller_says_that_it_is_there(self, impatient: Callable[[float], Session]) -> None:
        one = impatient(0.2)
        assert not threading.Event().wait(2.0) and one.lost is None
        assert one.call("marks", {"paths": []}, timeout_s=5).data == {}
        one.close()

    def test_it_stays_while_something_runs(self, impatient: Callable[[float], Session]) -> None:
        one = impatient(60.0)
        args = {"argv": ["sleep", "2"], "env": {}, "limit_s": 30, "ladder": ["KILL 1s"], "keep": 100}
        assert one.call("run", args, timeout_s=30).data["exit"] == 0
