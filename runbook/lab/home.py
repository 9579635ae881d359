"""The lab's home folder: what a command on the lab finds there, and the environment it gets.

lab_engine/   the engine's source, copied: a patch lands here, never in the installed package
fault         the fault that its servers have from now on, by name; no file for none
models/       the shipped weights
gpus/         what processes hold of the stand-in GPUs
bin/          nvidia-smi, and `python` where the interpreter's own folder has none of that name
.state/       state folder of programs on the lab
.leases/      who has the lab's GPUs
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from runbook.lab.sources import ENGINE, WEIGHTS

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def build(home: Path) -> None:
    """A fresh home in an empty place."""
    shutil.copytree(ENGINE / "lab_engine", home / "lab_engine", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(__file__).with_name("faults.py"), home / "lab_engine" / "faults.py")
    for model in sorted(path for path in WEIGHTS.iterdir() if path.is_dir()):
        shutil.copytree(model, home / "models" / model.name)
    for folder in ("gpus", "bin", ".state"):
        (home / folder).mkdir()
    shutil.copy(Path(__file__).with_name("smi.py"), home / "bin" / "smi.py")
    (home / ".leases").mkdir(mode=0o700)
    _script(home / "bin" / "nvidia-smi", [sys.executable, "-IS", str(home / "bin" / "smi.py")])
    if not (Path(sys.executable).parent / "python").exists():
        _script(home / "bin" / "python", [sys.executable])


def environment(home: Path, user: str, scope: str) -> dict[str, str]:
    """As a login would set it. Only processes below `scope` (pid:start ticks of the daemon) are the lab's."""
    return {
        "HOME": str(home),
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "PATH": os.pathsep.join([str(home / "bin"), str(Path(sys.executable).parent), SYSTEM_PATH]),
        "XDG_STATE_HOME": str(home / ".state"),
        "RUNBOOK_LEASES": str(home / ".leases"),
        "RUNBOOK_SCOPE": scope,
    }


def _script(path: Path, argv: list[str]) -> None:
    path.write_text(f'#!/bin/sh\nexec {shlex.join(argv)} "$@"\n')
    path.chmod(0o755)
