"""The doctor: what it says of a healthy host, of a broken one, and of one that is not reached; each finding with its fix."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from runbook.cli.doctor import Stages, examine
from runbook.cli.main import exit_code
from runbook.hosts.connect import CONFIG_VARIABLE
from runbook.hosts.health import Seen, findings
from runbook.model.clock import SystemClock
from runbook.model.health import Examined, LiveLaunch, RunLeft, StateFolder
from runbook.model.remote import Lease
from tests.onhost.keeper_kit import Site, until

STATE = StateFolder(path="/s", problem="", free=10**12, total=10**12, free_inodes=10**6)
GOOD = Examined(root=True, ptrace="", others="", kernel_log="", py_spy="/usr/bin/py-spy", gpu_tool="/usr/bin/nvidia-smi", gpu_devices=8, state=STATE)  # fmt: skip
LEASE = Lease(run="r1", holder="me@laptop", gpus=[0, 1], since=1.0, renewed=1.0, until=2.0)


def found(examined: Examined = GOOD, offset_s: float = 0.0, gpu_problem: str = "", **changes: object) -> list[tuple[str, bool]]:
    rows = findings(Seen(replace(examined, **changes), "box", offset_s, 0.01, gpu_problem))
    assert all(row.text and row.fix for row in rows)
    return [(row.code, row.breaks) for row in rows]


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({}, []),
        ({"state": replace(STATE, problem="read-only")}, [("state_folder", True)]),
        ({"state": replace(STATE, free=1 << 20)}, [("disk_full", True)]),
        ({"state": replace(STATE, free_inodes=0)}, [("disk_full", True)]),
        ({"runs": (RunLeft(run="r", path="/s/r", keeper=False, patched=("/x.py",)),)}, [("leftover_patch", True)]),
        ({"runs": (RunLeft(run="r", path="/s/r", keeper=False, live=(LiveLaunch(id="s", pid=7, title="t"),)),)}, [("orphan", True)]),
        ({"runs": (RunLeft(run="r", path="/s/r", keeper=True, patched=("/x.py",), live=(LiveLaunch(id="s", pid=7, title="t"),)),)}, []),
        ({"runs": (RunLeft(run="r", path="/s/r", keeper=False, problem="no JSON"),)}, [("unreadable_run", False)]),
        ({"leases": (LEASE,)}, [("leased", False)]),
        ({"leases": (replace(LEASE, stale="gone"),)}, [("stale_lease", False)]),
        ({"gpu_problem": "no answer in 20 s"}, [("gpu_tool", True)]),
        ({"gpu_tool": ""}, [("gpu_tool", True)]),
        ({"gpu_tool": "", "gpu_devices": 0}, [("no_gpu", False)]),
        ({"ptrace": "kernel.yama.ptrace_scope is 1"}, [("no_stacks", False)]),
        ({"py_spy": ""}, [("no_py_spy", False)]),
        ({"kernel_log": "no", "others": "no"}, [("no_kernel_log", False), ("no_others", False)]),
        ({"offset_s": -30.0}, [("clock", False)]),
    ],
)
def test_each_fault_has_its_finding_and_its_fix(changes, expected):
    assert found(**changes) == expected


def test_what_breaks_a_run_comes_first():
    assert found(py_spy="", gpu_problem="dead")[0] == ("gpu_tool", True)


def test_stages_end_where_the_next_begins_and_a_second_try_begins_anew():
    stages = Stages(SystemClock())
    for name in ("resolve", "tcp", "banner", "tcp", "banner", "key exchange"):
        stages.begin(name)
    told = stages.ended("refused", "auth")
    assert [(row.stage, row.problem) for row in told] == [("resolve", ""), ("tcp", ""), ("banner", ""), ("auth", "refused")]


@pytest.mark.slow
def test_over_ssh_every_stage_is_timed_and_what_cannot_be_honoured_is_said(sshd, monkeypatch):
    sshd.write_client_config(ForwardAgent="yes")
    monkeypatch.setenv(CONFIG_VARIABLE, str(sshd.client_config))
    health = examine("box", SystemClock())
    stages = [row.stage for row in health.stages]
    assert stages == ["resolve", "tcp", "banner", "key exchange", "host key", "auth", "channel", "helper"]
    assert all(0 <= row.seconds < 30 and not row.problem for row in health.stages)
    assert health.ssh["Port"] == str(sshd.port) and health.ssh["IdentityFile"] == str(sshd.key)
    assert any("forwardagent" in note for note in health.not_honoured)
    assert health.state in ("healthy", "findings") and health.examined is not None and health.python and health.account


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, stage", [({"Port": "1"}, "tcp"), ({"IdentityFile": "/none"}, "auth"), ({"HostName": "no-such-host.invalid"}, "resolve")]
)
def test_where_it_does_not_get_in_is_named_by_stage(sshd, monkeypatch, capsys, options, stage):
    sshd.write_client_config(**options)
    monkeypatch.setenv(CONFIG_VARIABLE, str(sshd.client_config))
    assert exit_code(["doctor", "box", "--json"]) == 6
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["exit_code"], told["stages"][-1]["stage"]) == ("unreachable", 6, stage)
    assert told["stages"][-1]["problem"] and told["findings"][0]["fix"]


@pytest.mark.slow
def test_on_this_machine_a_leftover_of_a_killed_run_is_found_and_nothing_is_left_by_looking(tmp_path, own_state, capsys):
    before = sorted(own_state.rglob("*"))
    assert exit_code(["doctor", "local"]) in (0, 1)
    assert "sees           Python stacks" in capsys.readouterr().out and sorted(own_state.rglob("*")) == before
    site = Site(own_state / "runbook-host")
    part = tmp_path / "part.py"
    part.write_text("a = 1\n")
    started = site.python("server", "import time; time.sleep(60)")
    site.op("patch", blob=b"a = 2\n", id="p", path=str(part), expect_sha256=hashlib.sha256(b"a = 1\n").hexdigest(), undo_after_s=60)
    try:
        keeper = site.keeper()
        os.kill(keeper["pid"], signal.SIGKILL)
        until(lambda: site.keeper() is None)
        assert exit_code(["doctor", "local", "--json"]) == 1
        told = json.loads(capsys.readouterr().out)
        codes = {row["code"]: row for row in told["findings"] if row["breaks"]}
        assert str(part) in codes["leftover_patch"]["text"] and "restore r1 --host local" in codes["leftover_patch"]["fix"]
        assert f"pid {started['pid']}" in codes["orphan"]["text"]
    finally:
        os.kill(started["pid"], signal.SIGKILL)


def test_a_name_that_cannot_be_a_host_is_a_usage_error(capsys):
    assert exit_code(["doctor", "-o", "x"]) == 2
    assert exit_code(["doctor", "a b"]) == 2


@pytest.mark.slow
def test_the_guide_shows_what_is_printed(sshd, monkeypatch, capsys):
    """The same lines in the same order; times, paths and the machine's own notes differ."""
    monkeypatch.setenv(CONFIG_VARIABLE, str(sshd.write_client_config("gpu-box")))
    code = exit_code(["doctor", "gpu-box"])
    printed = capsys.readouterr().out
    page = (Path(__file__).parents[2] / "docs" / "guides" / "doctor.md").read_text()
    shown = re.split(r"<!-- .*\bhealthy\)? -->", page)[1].partition("```text\n")[2].partition("```")[0]

    def names(text: str) -> list[str]:
        apart = ("$", "note", "BREAKS", "       fix")
        return [line[:14].strip() for line in text.splitlines() if line and not line.startswith(apart)]

    assert names(printed)[:-1] == names(shown)[:-1]
    assert shown.rstrip().endswith("HEALTHY: a run will get through (exit 0)") and code in (0, 1)
