"""What every host promises, whatever lies between it and us."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runbook.hosts.base import CallTimeout, Cancelled, CancelToken, Host, Mark, ProcessId, RemoteError
from tests.support.processes import is_gone, start_of, state_of
from tests.support.waiting import until


def command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes()
        except OSError:
            pass  # it ended while we looked


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def stubborn() -> subprocess.Popen[bytes]:
    """A process that takes no notice of TERM, ready when this returns."""
    code = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return process


class TestRun:
    def test_exit_code_and_both_outputs_come_back_apart(self, connected_host: Host) -> None:
        done = connected_host.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
        assert (done.exit, done.signal, done.stdout, done.stderr) == (3, None, b"out\n", b"err\n")
        assert not done.timed_out and not done.stdout_held and done.left_running == ()

    def test_a_signal_is_told_apart_from_an_exit_code(self, connected_host: Host) -> None:
        done = connected_host.run(["sh", "-c", "kill -SEGV $$"])
        assert (done.exit, done.signal) == (None, "SIGSEGV")

    def test_arguments_are_not_read_by_a_shell(self, connected_host: Host) -> None:
        assert connected_host.run(["printf", "%s", "a  $HOME `id` 'x'"]).stdout == b"a  $HOME `id` 'x'"

    def test_a_script_stops_at_its_first_failure_and_says_its_own_line(self, connected_host: Host) -> None:
        done = connected_host.run(shell="echo one\nfalse | true\necho two")
        assert (done.exit, done.stdout) == (1, b"one\n")
        failing = connected_host.run(shell="true\nno-such-command-here\n")
        assert failing.exit == 127 and b"line 2" in failing.stderr

    def test_a_command_in_a_script_does_not_read_the_script(self, connected_host: Host) -> None:
        assert connected_host.run(shell="cat\necho after").stdout == b"after\n"
        assert connected_host.run(shell="cat", stdin=b"typed").stdout == b"typed"

    def test_neither_script_nor_helper_has_words_of_ours_on_a_command_line(self, connected_host: Host) -> None:
        """Else `pkill -f sglang` in one step would end the helper that runs it."""
        found: list[bytes] = []

        def look(stream: str, data: bytes) -> None:
            found.extend(line for line in command_lines() if b"telling_word" in line)
            found.append(b"looked")

        connected_host.run(shell="# telling_word\necho telling_word; read end", stdin=b"telling_word\n", on_output=look)
        assert found == [b"looked"]
        helper = Path(f"/proc/{connected_host.facts.pid}/cmdline").read_bytes()
        assert b"runbook" not in helper.replace(sys.executable.encode(), b"") and b"rbhost" not in helper

    def test_environment_marker_and_working_directory_arrive(self, connected_host: Host, tmp_path: Path) -> None:
        done = connected_host.run(shell='printf "%s|%s|%s" "$A" "$RUNBOOK_RUN" "$PWD"', env={"A": "x y;'"}, cwd=str(tmp_path), marker="r1")
        assert done.stdout.decode() == f"x y;'|r1|{tmp_path}"

    def test_python_adds_nothing_to_the_environment(self, connected_host: Host) -> None:
        """Python sets LC_CTYPE in a C locale; a server that we start must not get it."""
        helper = Path(f"/proc/{connected_host.facts.pid}/environ").read_bytes().split(b"\0")
        got = connected_host.run(["env", "-0"]).stdout.split(b"\0")
        assert sorted(filter(None, got)) == sorted(filter(None, helper))

    def test_a_missing_command_is_not_found_and_says_where_it_was_looked_for(self, connected_host: Host) -> None:
        with pytest.raises(RemoteError, match="no command `no-such-command`") as raised:
            connected_host.run(["no-such-command"])
        assert raised.value.code == "not_found" and "PATH=" in raised.value.hint

    def test_a_missing_working_directory_is_named(self, connected_host: Host) -> None:
        with pytest.raises(RemoteError, match="working directory `/no/such/folder`") as raised:
            connected_host.run(["true"], cwd="/no/such/folder")
        assert raised.value.code == "not_found"

    def test_long_output_keeps_head_and_tail_and_counts_what_it_dropped(self, connected_host: Host) -> None:
        whole = b"".join(b"%d\n" % number for number in range(1, 200_001))
        done = connected_host.run(["seq", "200000"], keep_bytes=1000)
        assert done.stdout == whole[:1000] + whole[-4000:]
        assert done.stdout_dropped == len(whole) - 5000

    def test_output_is_passed_on_while_the_command_runs(self, connected_host: Host, tmp_path: Path) -> None:
        gate = tmp_path / "gate"
        seen: list[tuple[str, bytes]] = []

        def on_output(stream: str, data: bytes) -> None:
            seen.append((stream, data))
            gate.touch()  # the command ends only if this came while it ran

        done = connected_host.run(shell=f"echo first; until test -e {gate}; do sleep 0.01; done", on_output=on_output, timeout_s=10)
        assert done.exit == 0 and seen[0] == ("stdout", b"first\n")

    def test_when_its_time_is_over_the_whole_group_is_gone(self, connected_host: Host, tmp_path: Path) -> None:
        pids = tmp_path / "pids"
        script = f"sleep 60 & echo $! > {pids}; (sleep 61 & echo $! >> {pids}; wait) & wait"
        done = connected_host.run(shell=script, timeout_s=0.3)
        assert done.timed_out and done.signal == "SIGTERM" and done.left_running == () and done.seconds < 5
        grandchildren = [int(line) for line in pids.read_text().split()]
        assert len(grandchildren) == 2 and all(is_gone(pid) for pid in grandchildren)

    def test_who_ignores_term_gets_the_next_rung(self, connected_host: Host) -> None:
        done = connected_host.run(shell="trap '' TERM; sleep 60 & wait", timeout_s=0.2, ladder=("TERM 200ms", "KILL 5s"))
        assert done.timed_out and done.signal == "SIGKILL" and is_gone(done.pid)

    def test_who_outlives_the_ladder_is_named(self, connected_host: Host) -> None:
        done = connected_host.run(shell="trap '' TERM; echo $$; sleep 60 & wait", timeout_s=0.2, ladder=("TERM 0.2s",))
        try:
            assert done.timed_out and done.exit is None and done.signal is None
            assert done.pid in done.left_running and not is_gone(done.pid)
        finally:
            os.killpg(done.pid, signal.SIGKILL)

    def test_a_background_child_that_keeps_the_output_is_told_not_waited_for(self, connected_host: Host) -> None:
        began = time.monotonic()
        done = connected_host.run(shell="sleep 30 & echo started $!")
        held = int(done.stdout.split()[1])
        os.kill(held, signal.SIGKILL)
        assert done.stdout_held and done.left_running == (held,) and time.monotonic() - began < 5

    def test_cancel_ends_the_command(self, connected_host: Host, tmp_path: Path) -> None:
        pid_file, token = tmp_path / "pid", CancelToken()
        connected_host.cancel = token
        try:
            killer = threading.Thread(target=lambda: (until(lambda: pid_file.exists() and pid_file.read_text(), 5), token.set()))
            killer.start()
            with pytest.raises(Cancelled):
                connected_host.run(shell=f"echo $$ > {pid_file}; sleep 60")
            killer.join()
        finally:
            connected_host.cancel = None
        until(lambda: is_gone(int(pid_file.read_text())), 5)


class TestProcesses:
    def test_a_row_says_who_it_is_and_never_guesses(self, connected_host: Host, child: subprocess.Popen[bytes]) -> None:
        rows = {row.pid: row for row in connected_host.processes()}
        row = rows[child.pid]
        assert (row.id, row.argv, row.comm, row.uid) == (start_of(child.pid), ("sleep", "60"), "sleep", os.geteuid())
        assert row.ppid == os.getpid() and row.sid == child.pid and row.protected is None and row.cwd == os.getcwd()
        assert 0 <= row.age_s < 60 and row.rss > 0

    def test_our_own_ancestry_and_init_are_protected(self, connected_host: Host) -> None:
        rows = {row.pid: row.protected for row in connected_host.processes()}
        assert rows[connected_host.facts.pid] == "ancestry" and rows[1] == "pid1"

    def test_a_run_marker_is_read_from_the_environment(self, connected_host: Host) -> None:
        with subprocess.Popen(["sleep", "60"], env={"RUNBOOK_RUN": "r42"}) as process:
            try:
                rows = {row.pid: row for row in connected_host.processes(run="r42")}
                assert rows[process.pid].run == "r42"
            finally:
                process.kill()

    def test_a_rewritten_title_is_the_title(self, connected_host: Host) -> None:
        code = "import setproctitle,sys; setproctitle.setproctitle('lab::scheduler_TP0'); print(flush=True); sys.stdin.read()"
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin and process.stdout
        process.stdout.readline()
        row = next(row for row in connected_host.processes() if row.pid == process.pid)
        process.stdin.close()
        process.wait()
        assert row.title == "lab::scheduler_TP0" and row.argv == ("lab::scheduler_TP0",)


class TestKill:
    def test_term_is_enough_for_most(self, connected_host: Host, child: subprocess.Popen[bytes]) -> None:
        target = start_of(child.pid)
        report = connected_host.kill([target], ["TERM 5s", "KILL 5s"])
        assert report.gone == (target,) and report.left == () and [sent["signal"] for sent in report.signals] == ["TERM"]
        assert is_gone(child.pid)

    def test_kill_follows_when_term_is_ignored(self, connected_host: Host) -> None:
        process = stubborn()
        report = connected_host.kill([start_of(process.pid)], ["TERM 0.2s", "KILL 5s"])
        assert [sent["signal"] for sent in report.signals] == ["TERM", "KILL"] and len(report.gone) == 1
        assert process.wait(5) == -signal.SIGKILL

    def test_who_is_left_is_listed_with_the_reason(self, connected_host: Host) -> None:
        process = stubborn()
        report = connected_host.kill([start_of(process.pid)], ["TERM 0.1s"])
        process.kill()
        process.wait()
        assert report.gone == () and report.left[0]["pid"] == process.pid and report.left[0]["why"] == "alive"

    def test_a_pid_that_now_belongs_to_another_is_never_signalled(self, connected_host: Host, child: subprocess.Popen[bytes]) -> None:
        earlier = ProcessId(child.pid, start_of(child.pid).start - 1)
        report = connected_host.kill([earlier], ["KILL 5s"])
        assert report.gone == (earlier,) and report.signals == () and not is_gone(child.pid)

    def test_a_stopped_process_is_continued_so_that_term_can_work(self, connected_host: Host, child: subprocess.Popen[bytes]) -> None:
        os.kill(child.pid, signal.SIGSTOP)
        until(lambda: state_of(child.pid) == "T", 5)
        report = connected_host.kill([start_of(child.pid)], ["TERM 5s"])
        assert len(report.gone) == 1 and child.wait(5) == -signal.SIGTERM

    def test_a_zombie_counts_as_gone_with_a_note(self, connected_host: Host, child: subprocess.Popen[bytes]) -> None:
        target = start_of(child.pid)
        child.kill()
        until(lambda: state_of(child.pid) == "Z", 5)
        report = connected_host.kill([target], ["TERM 5s"])
        assert report.gone == (target,) and report.signals == () and f"pid {child.pid} is a zombie" in report.notes[0]

    def test_the_helper_itself_is_refused_before_any_signal(self, connected_host: Host, child: subprocess.Popen[bytes]) -> None:
        with pytest.raises(RemoteError) as raised:
            connected_host.kill([start_of(child.pid), start_of(connected_host.facts.pid)], ["TERM 5s"])
        assert raised.value.code == "protected" and not is_gone(child.pid)

    def test_a_rung_that_cannot_be_read_is_a_bad_request(self, connected_host: Host) -> None:
        with pytest.raises(RemoteError, match="`TERM` is not a rung") as raised:
            connected_host.kill([], ["TERM"])
        assert raised.value.code == "bad_request"


class TestListeners:
    def test_the_owner_of_a_port_is_found_and_ours_only_in_its_tree(self, connected_host: Host, child: subprocess.Popen[bytes]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            plain = connected_host.listeners(port)
            ours = connected_host.listeners(port, tree=start_of(os.getpid()))
            foreign = connected_host.listeners(port, tree=start_of(child.pid))
        assert [(one.pid, one.address, one.ours) for one in plain] == [(os.getpid(), f"127.0.0.1:{port}", False)]
        assert ours[0].ours and not foreign[0].ours and ours[0].start == start_of(os.getpid()).start

    def test_an_ipv6_listener_is_seen(self, connected_host: Host) -> None:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
            port = server.getsockname()[1]
            assert [one.address for one in connected_host.listeners(port)] == [f"[::1]:{port}"]

    def test_no_listener_is_an_empty_answer(self, connected_host: Host) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))  # bound but not listening
            assert connected_host.listeners(unused.getsockname()[1]) == ()


class TestFiles:
    def test_a_slice_can_count_from_the_end(self, connected_host: Host, tmp_path: Path) -> None:
        path = tmp_path / "log"
        path.write_bytes(b"0123456789")
        tail, middle = connected_host.read(str(path), -3), connected_host.read(str(path), 2, 4)
        assert (tail.data, tail.offset, tail.size, tail.inode) == (b"789", 7, 10, path.stat().st_ino)
        assert middle.data == b"2345" and connected_host.read(str(path), -99).data == b"0123456789"

    def test_writing_keeps_mode_and_the_link(self, connected_host: Host, tmp_path: Path) -> None:
        target, link = tmp_path / "target", tmp_path / "link"
        target.write_bytes(b"old")
        target.chmod(0o751)
        link.symlink_to(target)
        connected_host.write(str(link), b"\x00new\xff")
        assert link.is_symlink() and target.read_bytes() == b"\x00new\xff" and target.stat().st_mode & 0o7777 == 0o751
        assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "target"]

    def test_a_new_file_gets_the_mode_that_was_asked_for(self, connected_host: Host, tmp_path: Path) -> None:
        connected_host.write(str(tmp_path / "script"), b"#!/bin/sh\n", mode=0o700)
        assert (tmp_path / "script").stat().st_mode & 0o7777 == 0o700

    def test_writing_where_there_is_no_folder_says_so(self, connected_host: Host, tmp_path: Path) -> None:
        with pytest.raises(RemoteError) as raised:
            connected_host.write(str(tmp_path / "no" / "file"), b"x")
        assert raised.value.code == "not_found" and str(tmp_path / "no" / "file") in raised.value.summary

    def test_a_pipe_is_refused_instead_of_waited_for(self, connected_host: Host, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(RemoteError, match="not a regular file") as raised:
            connected_host.read(str(tmp_path / "pipe"))
        assert raised.value.code == "unsupported"

    def test_hash_names_and_marks(self, connected_host: Host, tmp_path: Path) -> None:
        for name in ("b.log", "a.log", "c.txt"):
            (tmp_path / name).write_bytes(b"abc")
        (tmp_path / "d.log").mkdir()
        facts = connected_host.hash(str(tmp_path / "c.txt"))
        assert facts["sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" and facts["size"] == 3
        assert connected_host.glob(f"{tmp_path}/*.log") == (f"{tmp_path}/a.log", f"{tmp_path}/b.log")
        here, gone = str(tmp_path / "a.log"), str(tmp_path / "none")
        assert connected_host.marks([here, gone]) == {here: Mark((tmp_path / "a.log").stat().st_ino, 3), gone: Mark(0, 0)}

    def test_only_what_lies_in_the_state_folder_can_be_removed(self, connected_host: Host, tmp_path: Path) -> None:
        (tmp_path / "precious").write_bytes(b"x")
        with pytest.raises(RemoteError) as raised:
            connected_host.remove(str(tmp_path / "precious"))
        assert raised.value.code == "protected" and (tmp_path / "precious").exists()
        ours = f"{connected_host.facts.state_dir}/test-{os.getpid()}"
        connected_host.write(f"{ours}/file", b"x")
        assert Path(ours, "file").stat().st_mode & 0o7777 == 0o644 and Path(ours).stat().st_mode & 0o7777 == 0o700
        for sneaky in (connected_host.facts.state_dir, f"{ours}/../.."):
            with pytest.raises(RemoteError, match="is not below"):
                connected_host.remove(sneaky)
        connected_host.remove(ours)
        connected_host.remove(ours)
        assert not Path(ours).exists()


class TestScan:
    def test_matches_carry_offsets_groups_and_neighbours(self, connected_host: Host, tmp_path: Path) -> None:
        path = tmp_path / "server.log"
        path.write_bytes(b"one\nload 10%\rload 20%\r\nDecode batch, accept len: 4.9\nend\n")
        with path.open("ab"):
            report = connected_host.scan(str(path), r"accept len: (?P<accept>[\d.]+)", context=1, control="load")
            assert os.getpid() in report.writers
        (match,) = report.matches
        assert match.groups == {"accept": "4.9"} and match.before == ("load 20%",) and match.after == ("end",)
        assert path.read_bytes()[match.offset :].startswith(b"Decode batch")
        assert (report.count, report.complete, report.control_found, report.bytes) == (1, True, True, path.stat().st_size)

    def test_a_window_ends_where_its_marks_stand(self, connected_host: Host, tmp_path: Path) -> None:
        path = tmp_path / "server.log"
        path.write_bytes(b"hit 1\nhit 2\n")
        begin = connected_host.marks([str(path)])[str(path)]
        path.write_bytes(path.read_bytes() + b"hit 3\n")
        end = connected_host.marks([str(path)])[str(path)]
        with path.open("ab") as log:
            log.write(b"hit 4\n")
        report = connected_host.scan(str(path), r"hit (\d)", begin=begin, end=end)
        assert [match.line for match in report.matches] == ["hit 3"] and (report.begin, report.end) == (12, 18)
        assert connected_host.scan(str(path), "hit", most=2).count == 4

    def test_a_log_that_is_not_there_is_an_error_not_zero_matches(self, connected_host: Host, tmp_path: Path) -> None:
        with pytest.raises(RemoteError) as raised:
            connected_host.scan(str(tmp_path / "none.log"), "x")
        assert raised.value.code == "not_found"

    def test_a_bad_pattern_is_a_bad_request(self, connected_host: Host, tmp_path: Path) -> None:
        (tmp_path / "log").touch()
        with pytest.raises(RemoteError, match="not a regular expression") as raised:
            connected_host.scan(str(tmp_path / "log"), "(")
        assert raised.value.code == "bad_request"


class TestCalls:
    def test_an_unknown_operation_is_a_bad_request(self, connected_host: Host) -> None:
        with pytest.raises(RemoteError) as raised:
            connected_host.call("no_such_operation")
        assert raised.value.code == "bad_request"

    def test_calls_run_side_by_side(self, connected_host: Host) -> None:
        results: list[float] = []
        threads = [threading.Thread(target=lambda: results.append(connected_host.run(["sleep", "0.4"]).seconds)) for _ in range(8)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 8 and time.monotonic() - began < 2.5

    def test_a_call_past_its_time_stops_the_operation(self, connected_host: Host, tmp_path: Path) -> None:
        pid_file = tmp_path / "pid"
        with pytest.raises(CallTimeout):
            connected_host.call("run", argv=[], shell=f"echo $$ > {pid_file}; sleep 60", timeout_s=0.5)
        until(lambda: is_gone(int(pid_file.read_text())), 5)

    def test_a_cancelled_token_stops_a_call_before_it_begins(self, connected_host: Host) -> None:
        connected_host.cancel = CancelToken()
        connected_host.cancel.set()
        try:
            with pytest.raises(Cancelled):
                connected_host.processes()
        finally:
            connected_host.cancel = None

    def test_facts_say_who_and_where(self, connected_host: Host) -> None:
        facts = connected_host.facts
        assert facts.uid == os.geteuid() and facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert abs(facts.clock_offset_s) <= facts.clock_error_s + 0.001 and not facts.scoped
