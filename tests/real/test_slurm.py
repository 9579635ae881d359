"""Inside a job of a real Slurm: a server in a step of its own, patched and looked at through `srun`, and a job that ends meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from runbook.lab import processes
from tests.e2e.cli import Outcome, runbook, start
from tests.real.conftest import need
from tests.real.slurm import FREEZER, Cluster, cluster
from tests.real.test_via import SERVER
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a cluster without an account of its own needs root")
PROBE = {"at": "Hello.do_GET", "where": "entry", "show": {"path": "self.path"}}


class Job(NamedTuple):
    """A running job, how its node is entered, and where the test writes."""

    slurm: Cluster
    number: str
    folder: Path

    @property
    def via(self) -> str:
        return f"srun --jobid={self.number} --overlap --quiet"

    @property
    def source(self) -> Path:
        return self.folder / "hello.py"

    def playbook(self, steps: list[dict[str, Any]], always: list[dict[str, Any]]) -> Path:
        """On the node by `srun`, and on this machine, from where `srun` is called."""
        hosts = {"login": "local", "node": {"target": "node", "via": self.via, "python": "python3"}}
        path = self.folder / "p.yaml"
        whole = {"runbook": 1, "name": "in a job", "hosts": hosts, "steps": steps, "always": always}
        path.write_text(yaml.safe_dump(whole, sort_keys=False))
        return path

    def runbook(self, *args: str | Path) -> Outcome:
        return runbook(*args, state=self.folder / "state", cwd=self.folder, env=self.env, seconds=180)

    def start(self, *args: str | Path) -> subprocess.Popen[str]:
        return start(*args, state=self.folder / "state", cwd=self.folder, env=self.env)

    @property
    def env(self) -> dict[str, str]:
        return {**self.slurm.env, "PYTHONPATH": str(Path(__file__).parents[2])}


@pytest.fixture(scope="module", params=["cgroup", "linuxproc"])
def alone(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster that finds a job's processes by cgroup, as most do, and one that goes by the tree of processes."""
    need("slurm")
    if request.param == "cgroup" and not os.access(FREEZER, os.W_OK):
        pytest.skip("there is no freezer of cgroups v1 that may be written: tracking by cgroup was not tried")
    with cluster(request.param) as slurm:
        yield slurm


@pytest.fixture
def job(alone, tmp_path) -> Iterator[Job]:
    (tmp_path / "hello.py").write_text(SERVER)
    (tmp_path / "hosts.yaml").write_text("hosts: {node: {host: local}}\n")
    number = alone.job()
    yield Job(alone, number, tmp_path)
    alone.ask("scancel", number)
    until(lambda: not alone.ask("squeue", "--noheader", "--jobs", number), 60, every=0.1)
    for pid in _of(tmp_path):  # not tracked by cgroup, the keeper of a run without an end outlives its step
        os.kill(pid, signal.SIGKILL)


def _of(folder: Path) -> list[int]:
    """Processes that got this folder for their state."""
    told = f"XDG_STATE_HOME={folder}/".encode()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and told in _environ(int(name))]


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def taps(job: Job) -> dict[str, Any]:
    return {"id": "taps", "host": "node", "patch": {"file": str(job.source), "probes": [PROBE]}}


def held(job: Job, port: int) -> list[dict[str, Any]]:
    """The server in a step that this machine's keeper holds, and the same seen from inside."""
    command = [*job.via.split(), "python3", str(job.source), port]
    return [
        {"id": "held", "host": "login", "launch": {"command": command, "port": port}},
        {"id": "server", "host": "node", "attach": {"port": port}, "retry": {"for": "30s", "every": "1s"}},
        {"id": "up", "host": "node", "wait_healthy": {"server": "server", "path": "/"}},
    ]


def mentions(text: Path) -> list[str]:
    """Command lines with this path."""
    done = subprocess.run(["ps", "-e", "-o", "stat=,args="], check=True, stdout=subprocess.PIPE, text=True)
    return [line for line in done.stdout.splitlines() if str(text) in line and not line.startswith("Z")]


def pythons(job: Job) -> list[str]:
    """Interpreters that Slurm tracks in the job."""
    titles = [processes.Process(pid, 0).title for pid in job.slurm.processes(job.number)]
    return [title for title in titles if "python" in title]


def test_a_server_in_a_step_is_patched_asked_restored_and_ended(job, port):
    steps = [
        taps(job),
        *held(job, port),
        {"id": "ask", "host": "node", "request": {"server": "server", "get": "/asked"}},
        {"id": "seen", "host": "node", "expect_probe": {"probe": "taps", "since": "ask", "until": "ask"}},
        {"id": "lines", "host": "node", "grep": {"file": str(job.source), "pattern": "do_GET"}},
        {"id": "state", "host": "node", "diagnose": {"server": "server", "url": f"http://127.0.0.1:{port}/", "timeout": "60s"}},
        {"host": "login", "assert": ["steps.ask.text == 'hello'", "any(h.path == '/asked' for h in steps.seen.hits)"]},
    ]
    path = job.playbook(steps, [{"host": "node", "restore": "taps"}, {"host": "login", "kill": {"step": "held"}}])
    outcome = job.runbook("run", path, "--json", "--no-suspend")
    assert outcome.code == 0, (outcome.out, outcome.err)
    assert (outcome.json["verdict"], outcome.json["left_behind"]) == ("passed", []), outcome.err
    assert job.source.read_text() == SERVER, "the probe is out again"
    until(lambda: not mentions(job.source) and not pythons(job), 30, every=0.2)
    assert "ends_with_link" in {one["code"] for one in outcome.json["findings"]}, "a patch that nobody undoes is told"


def test_a_process_of_the_job_is_diagnosed_from_outside(job, port):
    with subprocess.Popen([*job.via.split(), "python3", str(job.source), str(port)], env={**os.environ, **job.env}) as step:
        try:
            until(lambda: _listens(port), 30)
            (job.folder / "hosts.yaml").write_text(
                yaml.safe_dump({"hosts": {"node": {"host": "local", "via": job.via, "python": "python3"}}})
            )
            outcome = job.runbook("diagnose", "node", "--port", str(port), "--url", f"http://127.0.0.1:{port}/", "--json")
        finally:
            step.terminate()
    outcome.schema = None
    assert (outcome.code, outcome.json["verdict"]) == (0, "passed"), (outcome.out, outcome.err)
    until(lambda: not mentions(job.source) and not pythons(job), 30, every=0.2)


def _listens(port: int) -> bool:
    return f":{port:04X} " in Path("/proc/net/tcp").read_text()


def test_a_job_that_ends_in_the_middle_fails_the_step_and_whether_the_patch_is_left_is_true(job):
    path = job.playbook([taps(job), {"id": "long", "host": "node", "run": "sleep 600"}], [{"host": "node", "restore": "taps"}])
    child = job.start("run", path, "--json", "--no-suspend")
    until(lambda: child.poll() is not None or mentions(Path("sleep 600")), 60)
    job.slurm.ask("scancel", job.number)
    out, err = child.communicate(timeout=170)
    outcome = Outcome(child.returncode, out, err)
    answer = outcome.json
    told = {
        "failed": ("SIGTERM", "exit 143"),
        "unreachable": ("node",),
    }  # what Slurm ends first: the command, or the step that the helper is in
    assert any(words in answer["reason"] for words in told[answer["verdict"]]), (out, err)
    assert outcome.step_rows(answer["steps"][-1]["id"])[-1]["seconds"] < 30, "a job that is over is not waited for"
    # Slurm takes a moment over ending the helper's step: the restore may have come first.
    restored = job.source.read_text() == SERVER
    told_left = any(str(job.source) in one for one in answer["left_behind"])
    assert told_left != restored, (out, err)
    assert (answer["cleanup"]["status"] == "failed") == bool(answer["left_behind"]), (out, err)
    until(lambda: not mentions(Path("sleep 600")), 30)


def test_a_lost_controller_leaves_a_patch_that_restore_takes_back(job):
    path = job.playbook([taps(job), {"id": "long", "host": "node", "run": "sleep 601"}], [{"host": "node", "restore": "taps"}])
    child = job.start("run", path, "--out", job.folder / "run", "--no-suspend")
    until(lambda: child.poll() is not None or mentions(Path("sleep 601")), 60)
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate(timeout=30)
    assert job.source.read_text() != SERVER
    outcome = job.runbook("restore", job.folder / "run")
    assert (outcome.code, job.source.read_text()) == (0, SERVER), (outcome.out, outcome.err)


def test_a_launch_behind_srun_is_refused_before_anything_is_touched(job, port):
    launch = {"id": "server", "host": "node", "launch": {"command": ["python3", str(job.source), port], "port": port}}
    outcome = job.runbook("run", job.playbook([taps(job), launch], [{"host": "node", "restore": "taps"}]), "--no-suspend")
    assert outcome.code == 8, (outcome.out, outcome.err)
    assert "`srun`" in outcome.err and "`server`" in outcome.err and job.via in outcome.err, "what to launch instead is written out"
    assert job.source.read_text() == SERVER and not (job.folder / "state" / "runbook-host").exists()


def test_the_nodes_of_a_job_and_how_to_enter_them_are_told(job):
    outcome = job.runbook("hosts", f"slurm:{job.number}", "--json")
    outcome.schema = None
    (row,) = outcome.json["hosts"]
    assert row["host"] == job.slurm.ask("squeue", "--noheader", "--jobs", job.number, "--format=%N"), outcome.err
    assert row["job_step"] == f"srun --jobid={job.number} --overlap --quiet --nodelist={row['host']}"
    assert job.slurm.ask(*row["job_step"].split(), "sh", "-c", "echo $SLURMD_NODENAME") == row["host"]


def test_a_job_that_is_over_is_named_as_what_is_in_the_way(job):
    job.slurm.ask("scancel", job.number)
    until(lambda: not job.slurm.ask("squeue", "--noheader", "--jobs", job.number), 60, every=0.1)
    outcome = job.runbook("run", job.playbook([{"host": "node", "run": "uname"}], []), "--json")
    assert outcome.json["verdict"] == "unreachable"
    assert "expired" in outcome.json["reason"] or "Invalid job id" in outcome.json["reason"], outcome.json["reason"]
    assert "squeue --me" in outcome.json["reason"] and "Python" not in outcome.json["reason"], outcome.json["reason"]
