"""Behind `via: nsenter`: transformers in process, mount and IPC namespaces of its own, with a probe in its model."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from runbook.lab import processes
from tests.e2e.cli import runbook
from tests.real import engines
from tests.real.conftest import need
from tests.real.place import real_dir
from tests.real.test_transformers import STEPS
from tests.support.waiting import until

MODULE = "transformers.models.llama.modeling_llama"
PROBE = {"at": "LlamaModel.forward", "where": "entry", "show": {"ids": "input_ids"}}
SEEN = [
    {"id": "seen", "expect_probe": {"probe": "ids", "since": "chat", "until": "chat"}},
    {"id": "state", "diagnose": {"server": "server", "timeout": "60s"}},
]


def source() -> Path:
    """The module's file."""
    return next((real_dir() / "venv" / "lib").glob("python*")) / "site-packages" / (MODULE.replace(".", "/") + ".py")


@pytest.fixture
def inside() -> Iterator[int]:
    """The first process of new namespaces, by its pid out here."""
    command = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc", "sleep", "3600"]
    with subprocess.Popen(command) as outer:
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        try:
            yield int(str(until(lambda: children.read_text().strip(), 10)))
        finally:
            outer.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_a_server_in_namespaces_is_launched_probed_restored_and_ended(inside, port, tmp_path):
    need("transformers")
    patch = {"id": "ids", "patch": {"for": "server", "module": MODULE, "probes": [PROBE]}}
    path = engines.playbook(tmp_path / "p.yaml", engines.transformers(port), [*STEPS, *SEEN], [patch], [{"restore": "ids"}, *engines.END])
    whole = yaml.safe_load(path.read_text())
    whole["hosts"] = {"gpu": {"target": "local", "via": f"nsenter -t {inside} -m -p -i --root --wd"}}
    path.write_text(yaml.safe_dump(whole, sort_keys=False))
    before = hashlib.sha256(source().read_bytes()).hexdigest()
    outcome = runbook("run", path, "--json", "--no-suspend", "--out", tmp_path / "run", state=tmp_path / "state", seconds=900)
    assert outcome.code == 0, (outcome.out, outcome.err)
    assert (outcome.json["verdict"], outcome.json["left_behind"]) == ("passed", []), outcome.err
    assert outcome.json["steps"] and hashlib.sha256(source().read_bytes()).hexdigest() == before
    until(lambda: not _others(inside), 20)


def _others(first: int) -> list[str]:
    """What runs beside the first process of its namespace."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    found = [processes.find(pid) for pid in pids if pid != first and _namespace(pid) == _namespace(first)]
    return [one.title for one in found if one is not None]  # its first process reaps nobody


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""
