"""attach: servers that run already, found by port, pid, pattern and run; never ended by us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runbook.hosts.base import Host
from runbook.lang.expressions import Unknown
from runbook.model.sample import Seen
from runbook.steps.attach import Attach
from runbook.steps.caches import caches
from runbook.steps.diagnose import Diagnose
from runbook.steps.grep import Grep
from runbook.steps.kill import Kill
from runbook.steps.request import Request
from runbook.steps.wait_healthy import WaitHealthy
from tests.diagnose.stories import GENERIC, SGLANG, load_profile
from tests.steps.serving import SMALL_SERVER, Serving, free_port, serving
from tests.support.context import LocalContext
from tests.support.processes import is_gone
from tests.support.waiting import until

__all__ = ["serving"]


class Up:
    """A small server that somebody else started, and a run's context."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.log = folder / "theirs.log"
        self.port = free_port()
        self.ctx = LocalContext(host, folder / "run", profiles={"sglang": SGLANG, "generic": GENERIC}, box_s=20.0)
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, *argv: str, **options: Any) -> int:
        """Start a program with its output in the log."""
        with self.log.open("ab") as out:
            given = {"stdout": out, "stderr": out, "start_new_session": True, **options}
            self._processes.append(subprocess.Popen([sys.executable, *argv], **given))
        return self._processes[-1].pid

    def serve(self, *options: str) -> int:
        """Start the small server and wait until it listens."""
        pid = self.start(str(SMALL_SERVER), "--port", str(self.port), "--load", "0.1", *options)
        until(lambda: "Uvicorn running" in self.log.read_text())
        return pid

    def close(self) -> None:
        """End what was started."""
        for process in self._processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


@pytest.fixture
def up(local_host: Host, tmp_path: Path) -> Iterator[Up]:
    """Servers of this test."""
    found = Up(local_host, tmp_path)
    yield found
    found.close()


@pytest.mark.slow
def test_a_server_on_a_port_gets_the_results_of_a_launch_and_later_steps_use_it(up: Up) -> None:
    pid = up.serve()
    result = up.ctx.at("server").do(Attach(port=up.port))
    assert result.verdict == "passed", result.reason
    fields = result.fields
    assert (fields["pid"], fields["log"], fields["port"]) == (pid, str(up.log), up.port)
    assert fields["argv"][1] == str(SMALL_SERVER) and fields["interpreter"] and fields["up_for"] > 0
    assert up.ctx.at("up").do(WaitHealthy(server="server")).verdict == "passed"
    assert up.ctx.at("chat").do(Request(server="server", get="/echo?x=1")).fields["http_status"] == 200
    assert up.ctx.at("seen").do(Grep(log="server", pattern="Load weight end")).fields["count"] == 1
    assert not up.ctx.owed, "nothing of it is ours to undo"


RANK = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print('port', s.getsockname()[1], flush=True); time.sleep(60)"


def test_the_port_of_its_command_counts_even_while_only_a_rank_listens(up: Up) -> None:
    """As vLLM: the store of its ranks listens for minutes before the API does, and a check there gets no answer."""
    pid = up.start("-c", RANK, "--port", str(up.port))
    until(lambda: "port " in up.log.read_text())
    result = Attach(pid=pid).run(up.ctx)
    assert result.fields["port"] == up.port, result


@pytest.mark.parametrize("way", ["pid", "match"])
def test_it_is_found_by_pid_and_by_pattern(up: Up, way: str) -> None:
    pid = up.start("-c", "import time; time.sleep(60)", "needle-of-this-test")
    step = Attach(pid=pid) if way == "pid" else Attach(match="needle-of-this-test")
    result = up.ctx.at("server").do(step)
    assert result.verdict == "passed" and result.fields["pid"] == pid
    assert isinstance(result.fields["port"], Unknown)


def test_of_two_that_match_none_is_taken(up: Up) -> None:
    pids = [up.start("-c", "import time; time.sleep(60)", "needle-of-this-test") for _ in range(2)]
    result = up.ctx.at("server").do(Attach(match="needle-of-this-test"))
    assert result.verdict == "failed" and all(str(pid) in result.reason for pid in pids)
    assert up.ctx.launched("server") is None


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (Attach(pid=4_194_303), "there is no process 4194303"),
        (Attach(match="nobody-is-called-so-x7"), "no server fits"),
        (Attach(of_run="no-such-run"), "left nothing on this host"),
    ],
)
def test_what_is_not_there_fails_with_its_reason(up: Up, step: Attach, said: str) -> None:
    result = up.ctx.at("server").do(step)
    assert result.verdict == "failed" and said in result.reason


def test_a_port_that_nobody_has_is_named(up: Up) -> None:
    result = up.ctx.at("server").do(Attach(port=up.port))
    assert result.verdict == "failed" and f"port {up.port}" in result.reason


def test_a_log_that_was_named_must_be_there(up: Up, tmp_path: Path) -> None:
    pid = up.start("-c", "import time; time.sleep(60)")
    result = up.ctx.at("server").do(Attach(pid=pid, log=str(tmp_path / "nope.log")))
    assert result.verdict == "failed" and "nope.log" in result.reason


def test_of_its_environment_only_what_says_where_compilers_work_is_read(up: Up, tmp_path: Path) -> None:
    env = {**os.environ, "HOME": str(tmp_path), "TORCH_EXTENSIONS_DIR": str(tmp_path / "ext"), "API_TOKEN": "s3cret-s3cret"}
    pid = up.start("-c", "import time; time.sleep(60)", env=env)
    up.ctx.at("server").do(Attach(pid=pid))
    launched = up.ctx.launched("server")
    assert launched is not None and launched.env["HOME"] == str(tmp_path) and "API_TOKEN" not in launched.env
    found = caches(launched.env, "/nowhere", "nobody")
    assert str(tmp_path / "ext") in found and f"{tmp_path}/.triton/cache" in found and not any("nowhere" in path for path in found)


def test_an_output_that_goes_nowhere_is_said_and_searching_it_is_undecided(up: Up) -> None:
    pid = up.start("-c", "import time; time.sleep(60)", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    result = up.ctx.at("server").do(Attach(pid=pid))
    assert result.verdict == "passed"
    assert isinstance(result.fields["log"], Unknown) and "thrown away" in result.fields["log"].reason
    searched = up.ctx.at("seen").do(Grep(log="server", pattern="x"))
    assert searched.verdict == "undecided" and "thrown away" in searched.reason


def test_it_is_never_ended_by_the_step_that_would_end_a_launch(up: Up) -> None:
    pid = up.start("-c", "import time; time.sleep(60)")
    up.ctx.at("server").do(Attach(pid=pid))
    result = up.ctx.at("stop").do(Kill(step="server"))
    assert result.verdict == "refused" and str(pid) in result.reason
    assert not is_gone(pid)


@pytest.mark.slow
def test_a_server_that_another_run_keeps_is_found_with_its_record(serving: Serving, local_host: Host, tmp_path: Path) -> None:
    """Its keeper is its parent, so its exit stays known."""
    serving.launch("--load", "0.1")
    other = LocalContext(local_host, tmp_path / "other", run="other", profiles={"sglang": SGLANG, "generic": GENERIC})
    result = other.at("theirs").do(Attach(of_run=serving.ctx.run.id))
    assert result.verdict == "passed" and result.fields["pid"] == serving.pid
    launched, mine = other.launched("theirs"), serving.ctx.launched("server")
    assert launched is not None and mine is not None
    assert launched.run == serving.ctx.run.id and launched.state.log == mine.state.log
    os.kill(serving.pid, signal.SIGKILL)
    ended = other.at("state").do(Diagnose(server="theirs"))
    assert ended.verdict == "crashed" and "SIGKILL" in ended.reason


@pytest.mark.slow
def test_what_the_log_said_before_counts_for_the_phase(up: Up) -> None:
    """It loads since a while: the mark of its phase was written before anybody looked."""
    up.start(str(SMALL_SERVER), "--port", str(up.port), "--load", "60")
    until(lambda: up.log.exists() and "Load weight begin" in up.log.read_text())
    up.ctx.at("server").do(Attach(port=up.port, profile="sglang"))
    up.ctx.box_s = 4.0
    result = up.ctx.at("state").do(Diagnose(server="server"))
    assert (result.verdict, result.kind) == ("slow", "on_track")
    assert result.diagnosis is not None and result.diagnosis.phase == "weights"


def test_exactly_one_way_to_name_it() -> None:
    assert Attach().problems() and Attach(match="x", pid=2).problems() and Attach(port=1, match="x", pid=2).problems()
    assert not Attach(port=1).problems() and not Attach(port=1, pid=2).problems()


def test_a_port_beside_another_way_to_find_it_is_where_it_answers(up: Up) -> None:
    """A command may name none, and then the profile's default is another server's."""
    pid = up.start("-c", "import time; time.sleep(60)")
    result = up.ctx.at("server").do(Attach(pid=pid, port=up.port, profile="vllm"))
    assert (result.fields["pid"], result.fields["port"]) == (pid, up.port)


@pytest.mark.slow
def test_an_old_log_of_any_size_is_no_progress(up: Up) -> None:
    """200 MB in one line, and marks of its start long before: what is old is not taken for new."""
    up.log.write_text("[2031-04-02 08:11:02 TP0] Load weight begin. avail mem=1 GB\n")
    with up.log.open("ab") as out:
        for _ in range(200):
            out.write(b"x" * 2**20)
        out.write(b"\n")
    up.start("-c", "import time; time.sleep(60)", "needle-of-this-test")
    up.ctx.at("server").do(Attach(match="needle-of-this-test", profile="sglang"))
    up.ctx.box_s = 6.0
    result = up.ctx.at("state").do(Diagnose(server="server"))
    assert result.verdict == "undecided", result.reason
    read = [sample.log.value for sample in up.ctx.samples if isinstance(sample.log, Seen)]
    assert len(read) > 2 and all(one.end == one.size for one in read)


def test_the_profile_is_guessed_from_the_command_and_the_narrower_of_two_is_taken(up: Up) -> None:
    up.ctx.profiles["lab"] = load_profile("lab")
    pid = up.start("-c", "import time; time.sleep(60)", "-m", "lab_engine.launch_server", "needle-of-this-test")
    result = up.ctx.at("server").do(Attach(pid=pid))
    assert result.fields["profile"] == "lab", "it extends sglang's, which fits as well"
    assert result.fields["port"] == load_profile("lab").default_port
