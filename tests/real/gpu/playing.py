"""One run on the GPU, with CUDA graphs or without, and what its log says of them."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import yaml

from runbook.cli.profiles import profiles
from runbook.diagnose.lines import Matcher
from runbook.model.event import StepEnded
from tests.e2e.cli import Outcome
from tests.real.gpu.conftest import Card
from tests.real.place import ROOT, gpu_python, real_dir

VARS = ROOT / "playbooks" / "vars" / "sglang_gpu_tiny.yaml"
REPLAY = Path(__file__).with_name("replay.yaml")
EAGER = "  - --disable-cuda-graph\n"
RUN_S = 3600
"""The first start compiles kernels, and how long that takes on a GPU is not known yet."""


def variables(folder: Path, graphs: bool) -> Path:
    """The file of variables as it is, or with the flag that switches CUDA graphs off at the end of its command."""
    path = folder / ("graphs.yaml" if graphs else "eager.yaml")
    path.write_text(VARS.read_text(encoding="utf-8") + ("" if graphs else EAGER), encoding="utf-8")
    assert list(yaml.safe_load(path.read_text()))[-1] == "command"
    return path


def play(card: Card, port: int, name: str, playbook: Path, graphs: bool, draft: str = "draft") -> Outcome:
    """One run, kept as $REAL_DIR/stories/gpu_NAME. Whatever its end, the package's file is as before and nothing stays."""
    before = fingerprint()
    folder = real_dir() / "stories" / f"gpu_{name}"
    shutil.rmtree(folder, ignore_errors=True)
    env = {"REAL_DIR": str(real_dir()), "REAL_DRAFT": draft, "GPU_PYTHON": str(gpu_python())}
    flags = ["-H", "gpu=card", "-e", f"@{variables(card.folder, graphs)}", "-e", f"port={port}", "--json", "--out", folder]
    outcome = card.lab.runbook("run", playbook, *flags, cwd=card.folder, env=env, seconds=RUN_S)
    assert fingerprint() == before, "the package's file is not as it was"
    assert outcome.json["left_behind"] == [], outcome.err
    assert card.lab.processes() == []
    assert captured(folder) is graphs, "the log says of CUDA graphs what this run is not about"
    return outcome


def ended(outcome: Outcome, step: str) -> StepEnded:
    """How a step ended."""
    return next(event for event in outcome.events if isinstance(event, StepEnded) and event.step == step)


def captured(folder: Path) -> bool:
    """Whether the server's log tells of a capture."""
    rules = Matcher(profiles().read("sglang"))
    text = (folder / "evidence" / "server" / "server.log").read_text(encoding="utf-8", errors="replace")
    return any("graph_capture" in rules.read(line).begins for line in text.splitlines() if line)


def fingerprint() -> tuple[str, int, int]:
    """Hash, mode and modification time of the file that the probe goes into."""
    code = "import importlib.util; print(importlib.util.find_spec('sglang').origin)"
    done = subprocess.run([str(gpu_python()), "-c", code], check=True, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    module = Path(done.stdout.strip().splitlines()[-1]).parent / "srt" / "models" / "llama_eagle3.py"
    return hashlib.sha256(module.read_bytes()).hexdigest(), module.stat().st_mode, module.stat().st_mtime_ns
