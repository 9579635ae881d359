"""The founding story on a GPU, as far as no GPU is needed: which one is taken, what is said without one, and its playbooks with their variables."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from runbook.cli.profiles import profiles
from runbook.onhost.gpu_read import read_gpus
from runbook.playbook.build import load_playbook
from runbook.steps import TABLE
from tests.e2e.cli import ROOT, STORY, runbook
from tests.real.gpu import cards
from tests.real.gpu.playing import REPLAY, VARS, captured, variables

BUSY = "0, GPU-a, NVIDIA H200, 73000, 143771, 99\n"
IDLE = "1, GPU-b, NVIDIA H200, 4, 143771, 0\n"


@pytest.mark.parametrize(
    ("rows", "wanted", "index", "says"),
    [
        (BUSY + IDLE, "", 1, "NVIDIA H200"),
        (BUSY + IDLE, "1", 1, "NVIDIA H200"),
        (BUSY + IDLE, "0", None, "none is free: GPU 0 has 71.3GiB in use"),
        (BUSY + IDLE, "7", None, "there is no GPU 7"),
        (BUSY, "", None, "none is free: GPU 0 has 71.3GiB in use"),
        ("", "", None, "nvidia-smi answered nothing"),
    ],
)
def test_a_gpu_is_taken_when_nobody_uses_it(rows, wanted, index, says):
    assert cards.free(read_gpus(0, rows, ""), wanted) == cards.Choice(index, says)


def said(folder: Path, script: str = "") -> subprocess.CompletedProcess[str]:
    """What `make test-gpu` does where this script is the driver's tool; where there is none without it."""
    if script:
        tool = folder / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
    env = {**os.environ, "PATH": str(folder), "REAL_DIR": str(folder / "real"), "GPU": ""}
    return subprocess.run([sys.executable, "-m", "tests.real.gpu"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("", "no nvidia-smi in PATH"),
        ("echo 'NVIDIA-SMI has failed'; exit 9", "nvidia-smi: exited 9: NVIDIA-SMI has failed"),
        (f"printf '%s' '{BUSY}'", "none is free: GPU 0 has 71.3GiB in use"),
    ],
)
def test_without_a_gpu_nothing_is_set_up_and_the_last_line_says_so(tmp_path, script, why):
    done = said(tmp_path, script)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"not run: no GPU ({why})"), done.stderr
    assert not (tmp_path / "real").exists()


@pytest.mark.slow
def test_its_tests_skip_without_a_gpu_and_name_the_reason(tmp_path):
    env = {**os.environ, "PATH": str(tmp_path)}
    argv = [sys.executable, "-m", "pytest", "tests/real/gpu", "-m", "gpu", "-p", "no:cacheprovider"]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not tested, 9: no GPU (no nvidia-smi in PATH)" in done.stdout and " passed" not in done.stdout


def overrides(path: Path) -> dict:
    """The variables of a file, those of the environment filled in."""
    text = path.read_text(encoding="utf-8")
    for asked, value in {"env('REAL_DIR')": "/real", "env('GPU_PYTHON')": "/opt/python", "env('REAL_DRAFT', 'draft')": "draft"}.items():
        text = text.replace("${{ " + asked + " }}", value)
    return dict(yaml.safe_load(text))


@pytest.mark.parametrize("playbook", [STORY, REPLAY], ids=["story", "replay"])
@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "eager"])
def test_validation_says_beforehand_that_graphs_may_hide_the_probe(tmp_path, playbook, graphs):
    known, given = profiles(), overrides(variables(tmp_path, graphs))
    book, found = load_playbook(
        playbook.read_bytes(), playbook.name, table=TABLE, profiles=known.names(), profile=known.known, overrides=given
    )
    assert book is not None and [one.code for one in found] == (["graph-replay"] if graphs else []), found


@pytest.mark.slow
@pytest.mark.parametrize("playbook", [STORY, REPLAY], ids=["story", "replay"])
def test_it_can_be_planned_for_one_gpu_of_the_lab(tmp_path, playbook):
    (tmp_path / "hosts.yaml").write_text("hosts:\n  card: {host: lab, gpus: [0]}\n")
    done = runbook("plan", playbook, "-H", "gpu=card", "-e", f"@{VARS}", state=tmp_path, cwd=tmp_path)
    assert done.code == 0 and "probe LlamaModel.forward" in done.out, done.err


def test_a_capture_is_read_from_the_servers_log(tmp_path):
    """The lines are those that SGLang 0.5.23 has in its source; the other log is of a real server on a CPU."""
    log = tmp_path / "evidence" / "server" / "server.log"
    log.parent.mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "data" / "real" / "sglang_passed.log", log)
    assert not captured(tmp_path)
    with log.open("a") as file:
        file.write("[2031-04-02 08:13:40] Capture draft decode CUDA graph begin. backend=full, avail mem=120.11 GB\n")
    assert captured(tmp_path)
