"""Each playbook of the library on the lab: it passes, and under the fault that it is for it says so, with the verdict that its header names."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

import pytest

from tests.e2e.cli import ROOT, Outcome
from tests.e2e.conftest import Lab
from tests.e2e.test_zero_acceptance import made
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
PLAYBOOKS = ROOT / "playbooks"
LABS = 3
HEADER = ("For whom:", "Inputs:", "Changes:")
NEEDS_A_SERVER = """\
runbook: 1
name: {name} of a server
hosts: {{gpu: lab}}
vars: {{port: 8000, flags: []}}
steps:
  - id: server
    launch:
      command: ${{{{ ['python', '-m', 'lab_engine.launch_server', '--port', json(vars.port)] + vars.flags }}}}
      profile: sglang
{before}  - id: it
    include: {{playbook: {name}, with: {{server: server}}}}
always:
  - kill: {{step: server}}
"""
HEALTHY = "  - wait_healthy: {server: server, timeout: 3m}\n"
STOPPED = HEALTHY + "  - run: kill -STOP ${{ steps.server.pid }}\n"
SERVER = "python -m lab_engine.launch_server --port {port}"
BEFORE = {"server": SERVER, "deadlock": f"{SERVER} --fault deadlock", "port": "python -m http.server {port} --bind 127.0.0.1"}
"""What is there before the playbook begins, not started by it."""


class Case(NamedTuple):
    """A playbook, what it is given, its exit code and a part of its reason. `before`: what is there; `steps`: between launch and include."""

    name: str
    code: int
    says: str = ""
    given: str = ""
    before: str = ""
    steps: str | None = None
    draft: str = ""


PASSING = (
    Case("lib/stop_servers", 0, before="server"),
    Case("lib/free_gpus", 0),
    Case("lib/launch_sglang", 0),
    Case("lib/launch_vllm", 0),
    Case("lib/wait_ready", 0, steps=""),
    Case("lib/smoke_request", 0, steps=HEALTHY),
    Case("diagnose_hang", 0, before="server"),
    Case("nccl_hang", 0),
    Case("checkpoint_keys", 0),
    Case("ab_compare", 0, given="times=1 slower=20"),
    Case("load_time_baseline", 0),
    Case("torchrun_hang", 0),
)
FAULTY = (
    Case("lib/stop_servers", 1, "expect: none", before="port"),
    Case("lib/free_gpus", 8, "gpu_memory", given="patience=5s", before="server"),
    Case("lib/launch_sglang", 5, "RuntimeError", given="'flags=[--crash-at, load]'"),
    Case("lib/launch_vllm", 7, "already answered", before="port"),
    Case("lib/wait_ready", 5, "RuntimeError", given="'flags=[--crash-at, prefill]'", steps=""),
    Case("lib/smoke_request", 3, "stop", steps=STOPPED),
    Case("diagnose_hang", 3, "deadlock", before="deadlock"),
    Case("nccl_hang", 3, "stopped: ", given="'flags=[--fault, rank_stopped]'"),
    Case("checkpoint_keys", 1, "midlayer", draft="key_prefix"),
    Case("ab_compare", 1, "accept_length", given="times=1 slower=20 'flags_b=[--aux-layers, zeros]'"),
    Case("load_time_baseline", 1, "ready_after", given="usual=1s 'flags=[--load-delay, \"3\"]'"),
    Case("torchrun_hang", 3, "stop", given="'program={program}'"),
)
LATE = "import os, signal, torch, torch.distributed as d; d.init_process_group('gloo'); r = d.get_rank(); r or os.kill(os.getpid(), signal.SIGSTOP); d.all_reduce(torch.ones(8))"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def ended(request: pytest.FixtureRequest) -> Iterator[Callable[[Case], Outcome]]:
    """How each chosen case ended: some side by side, each on a lab of its own, since a run has all of a host's GPUs to itself."""
    here = [item for item in request.session.items if isinstance(item, pytest.Function) and item.module is request.module]
    chosen = {item.callspec.params["case"] for item in here if hasattr(item, "callspec") and "case" in item.callspec.params}
    with contextlib.ExitStack() as stack:
        labs: Queue[Lab] = Queue()
        for _ in range(LABS):
            labs.put(stack.enter_context(a_lab()))

        def one(case: Case) -> Outcome | AssertionError:
            lab = labs.get()
            try:
                return play(lab, case)
            except AssertionError as problem:
                return problem  # of this case alone
            finally:
                labs.put(lab)

        cases = sorted((case for case in (*FAULTY, *PASSING) if case in chosen), key=lambda case: case.code != 3)  # hangs take longest
        with ThreadPoolExecutor(LABS) as pool:
            found = dict(zip(cases, pool.map(one, cases), strict=True))

        def of(case: Case) -> Outcome:
            outcome = found[case]
            if isinstance(outcome, AssertionError):
                raise outcome
            return outcome

        yield of


@contextlib.contextmanager
def a_lab() -> Iterator[Lab]:
    with tempfile.TemporaryDirectory(prefix="lab-") as folder:
        lab = Lab(Path(folder))
        up = lab.runbook("lab", "up")
        assert up.code == 0, up.err
        try:
            yield lab
        finally:
            lab.runbook("lab", "down")


def play(lab: Lab, case: Case) -> Outcome:
    """Run one case on a port of its own. The object is read here: its transcript goes with the lab."""
    port = free_port()
    with there_before(lab, case, port):
        words = [f"-e{word}" for word in shlex.split(case.given.replace("{program}", LATE.replace("'", '"')))]
        words += [f"-epath={made(lab.home, case.draft)}"] if case.draft else []
        words += [] if case.name in ("lib/free_gpus", "checkpoint_keys", "torchrun_hang") else [f"-eport={port}"]
        outcome = lab.runbook("run", playbook(lab, case), *words, "--json", "--no-suspend", seconds=420)
        assert outcome.json
        return outcome


def playbook(lab: Lab, case: Case) -> Path:
    """The file itself; for one that takes a server, another that includes it."""
    if case.steps is None:
        return PLAYBOOKS / f"{case.name}.yaml"
    path = lab.state / f"{free_port()}.yaml"
    path.write_text(NEEDS_A_SERVER.format(name=case.name.removeprefix("lib/"), before=case.steps))
    return path


@contextlib.contextmanager
def there_before(lab: Lab, case: Case, port: int) -> Iterator[None]:
    """Somebody's process on the lab, started over SSH as a person does; gone at the end, with its ranks."""
    if not case.before:
        yield
        return
    ssh = json.loads(lab.runbook("lab", "status", "--json").out)["ssh"]
    line = f"setsid {BEFORE[case.before].format(port=port)} > before.log 2>&1 < /dev/null &"
    subprocess.run([*ssh, line], capture_output=True, check=True)
    try:
        if case.before != "deadlock":
            until(lambda: listens(port), 60)
        yield
    finally:
        until(lambda: not killed(lab), 30)


def killed(lab: Lab) -> list[int]:
    """End what still runs on a lab; answers what that was."""
    pids = [row["pid"] for row in json.loads(lab.runbook("lab", "status", "--json").out)["processes"]]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return pids


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.mark.parametrize("case", PASSING, ids=lambda case: case.name)
def test_it_passes_on_the_lab(case: Case, ended: Callable[[Case], Outcome]) -> None:
    outcome = ended(case)
    assert outcome.code == 0, f"{outcome.json['reason']}\n{outcome.err}"
    assert outcome.json["left_behind"] == []


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.name)
def test_under_its_fault_it_says_so(case: Case, ended: Callable[[Case], Outcome]) -> None:
    outcome = ended(case)
    assert outcome.code == case.code, f"{outcome.json['reason']}\n{outcome.err}"
    assert case.says in f"{outcome.json['kind']}: {outcome.json['reason']}"
    assert outcome.json["left_behind"] == []


def test_every_playbook_says_for_whom_what_it_takes_and_what_it_changes() -> None:
    for path in PLAYBOOKS.rglob("*.yaml"):
        head = path.read_text(encoding="utf-8").partition("\nrunbook: 1\n")[0]
        if path.parent.name != "vars" and path.name != "eagle3_fusion.yaml":
            assert [part for part in HEADER if part not in head] == [], path
