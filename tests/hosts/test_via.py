"""How prefixes are called, which of them let a server outlive the connection, and which logouts do not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runbook.hosts.bundle import helper_argv
from runbook.hosts.local import connect_local
from runbook.hosts.via import ends_with_link
from runbook.onhost.logout import reason
from runbook.steps.launch import Launch
from tests.support.context import LocalContext

SCOPE = "0::/user.slice/user-1000.slice/session-7.scope\n"


@pytest.mark.parametrize(
    ("via", "word"),
    [
        ("", ""),
        ("sudo -n -u serve", ""),
        ("docker exec -i box", ""),
        ("podman exec -i run", ""),
        ("kubectl exec -i pod --", ""),
        ("srun --jobid=1 --overlap -w n7", "srun"),
        ("sudo -n /opt/slurm/bin/srun --overlap", "srun"),
        ("docker run -i --rm image", "docker run"),
    ],
)
def test_a_prefix_says_whether_anything_outlives_it(via: str, word: str) -> None:
    found = ends_with_link(via.split())
    assert word in found and bool(found) == bool(word)


@pytest.mark.parametrize(
    ("via", "called"),
    [
        ("srun --jobid=1 --overlap", "srun --unbuffered --jobid=1 --overlap"),
        ("sudo -n /opt/slurm/bin/srun --overlap", "sudo -n /opt/slurm/bin/srun --unbuffered --overlap"),
        ("srun -u --overlap", "srun -u --overlap"),
        ("srun --overlap --unbuffered", "srun --overlap --unbuffered"),
        ("podman exec -i box", "podman exec -i box"),
    ],
)
def test_srun_is_asked_to_keep_nothing_back(via: str, called: str) -> None:
    assert helper_argv(via, "python3")[: len(called.split()) + 1] == [*called.split(), "python3"]


@pytest.mark.slow
def test_a_launch_behind_srun_is_refused_before_anything_starts(tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nshift  # --unbuffered\nexec "$@"\n')
    srun.chmod(0o755)
    state = tmp_path / "state"
    host = connect_local("node", via=["env", f"XDG_STATE_HOME={state}", str(srun)], python=sys.executable)
    try:
        ctx = LocalContext(host, tmp_path)
        result = ctx.at("server").do(Launch(command=["sleep", "60"]))
        assert result.verdict == "refused" and "`srun` ends its step" in result.reason and "attach" in result.reason
        assert ctx.owed == {} and not state.exists()
    finally:
        host.close()


@pytest.mark.parametrize(
    ("cgroup", "config", "lingers", "word"),
    [
        (SCOPE, "[Login]\nKillUserProcesses=yes\n", False, "KillUserProcesses"),
        (SCOPE, "[Login]\n#KillUserProcesses=yes\n", False, "KillUserProcesses"),
        (SCOPE, "[Login]\n#KillUserProcesses=yes\nKillUserProcesses=no\n", False, ""),
        (SCOPE, "[Login]\n#KillUserProcesses=no\n", False, ""),
        (SCOPE, "KillUserProcesses=yes\n", True, ""),
        (SCOPE, "KillUserProcesses=yes\nKillOnlyUsers=other\n", False, ""),
        (SCOPE, "KillUserProcesses=yes\nKillExcludeUsers=root me\n", False, ""),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope\n", "", False, "service manager"),
        ("0::/system.slice/ssh.service\n", "KillUserProcesses=yes\n", False, ""),
    ],
)
def test_a_logout_that_kills_is_known_from_cgroup_and_configuration(cgroup: str, config: str, lingers: bool, word: str) -> None:
    found = reason(cgroup, config, "me", lingers)
    assert word in found and bool(found) == bool(word)
    assert not found or "loginctl enable-linger me" in found
