"""Which GPU of this machine the tests may use, or why there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any, NamedTuple

from runbook.model.units import Size
from runbook.onhost.gpu_read import gpu_question, read_gpus

FREE = 1 << 30
"""Bytes in use, below which a GPU is nobody's: the bound of the shipped playbook."""
TOOL_S = 60


class Choice(NamedTuple):
    """A GPU's index and name, or the reason why there is none."""

    index: int | None
    says: str


def choose() -> Choice:
    """The first free GPU, or the one that $GPU names."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Choice(None, "no nvidia-smi in PATH")
    try:
        done = subprocess.run(gpu_question(tool), capture_output=True, text=True, timeout=TOOL_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return Choice(None, str(problem))
    return free(read_gpus(done.returncode, done.stdout, done.stderr), os.environ.get("GPU", ""))


def free(answer: dict[str, Any], wanted: str = "") -> Choice:
    """The same of an answer that was read; one in use is left alone, also when it is wanted."""
    if "blind" in answer:
        return Choice(None, answer["blind"])
    named = [gpu for gpu in answer["gpus"] if wanted in ("", str(gpu["index"]))]
    if not named:
        return Choice(None, f"there is no GPU {wanted}")
    for gpu in named:
        if gpu["used"] < FREE:
            return Choice(gpu["index"], gpu["name"])
    return Choice(None, "none is free: " + ", ".join(f"GPU {gpu['index']} has {Size(gpu['used'])} in use" for gpu in named))
