"""A Slurm cluster of one node on loopback, from the system's packages: all that it writes lies in one folder, and nothing is a service."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.waiting import until

FREEZER = Path("/sys/fs/cgroup/freezer")
"""With it, in its first version, the node can track a job by cgroup without a systemd."""
SYSTEM = "/usr/sbin:/sbin"
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "scontrol", "squeue", "sinfo")
NODE = f"alone{os.getpid()}"
"""The cgroup of its jobs has its name."""
CONFIG = """ClusterName=alone
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/{track}
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=5
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={daemon} CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes={node} Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""
BATCH = "#!/bin/sh\nsleep 3600\n"


class Cluster(NamedTuple):
    """What its commands need in their environment, and its folder."""

    env: Mapping[str, str]
    folder: Path

    def ask(self, *argv: str) -> str:
        """What a command of Slurm's prints. Raises CalledProcessError."""
        done = subprocess.run(
            argv, env={**os.environ, **self.env}, check=True, stdout=subprocess.PIPE, text=True, timeout=60, cwd=self.folder
        )
        return done.stdout.strip()

    def job(self) -> str:
        """The number of a new job that runs and does nothing."""
        (self.folder / "job.sh").write_text(BATCH)
        number = self.ask("sbatch", "--parsable", "--output=job-%j.out", "job.sh")
        until(lambda: self.ask("squeue", "--noheader", "--jobs", number, "--format=%T") == "RUNNING", 20)
        return number

    def processes(self, job: str) -> list[int]:
        """The processes of a job, as the node's daemon tracks them."""
        done = subprocess.run(
            ["scontrol", "listpids", job, NODE], env={**os.environ, **self.env}, stdout=subprocess.PIPE, text=True, timeout=60
        )
        rows = [line.split() for line in done.stdout.splitlines()[1:]]
        return [int(row[0]) for row in rows if row and row[0].isdigit()]


def missing() -> list[str]:
    """The programs that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]


def version() -> str:
    """As `slurm-wlm 22.05.8`."""
    done = subprocess.run([str(shutil.which("slurmctld", path=_path())), "-V"], check=True, stdout=subprocess.PIPE, text=True, timeout=60)
    return done.stdout.strip()


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:{SYSTEM}"


@contextmanager
def cluster(track: str = "linuxproc") -> Iterator[Cluster]:
    """It runs until the block ends. `track` is how the node finds a job's processes: linuxproc, pgid or cgroup."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as place, ExitStack() as daemons:  # a socket's path is short
        folder = Path(place)
        env = {"SLURM_CONF": str(_configured(folder, track))}
        key = folder / "munge" / "key"
        files = {
            "key-file": key,
            "socket": folder / "munge" / "socket",
            "pid-file": folder / "munge" / "pid",
            "log-file": folder / "munge" / "log",
        }
        options = [f"--{name}={path}" for name, path in {**files, "seed-file": folder / "munge" / "seed"}.items()]
        daemons.callback(_clear_cgroups)
        daemons.enter_context(_daemon(["munged", "--foreground", "--force", *options], folder / "munge.out", env))
        until(lambda: (folder / "munge" / "socket").exists(), 10)
        daemons.enter_context(_daemon(["slurmctld", "-D"], folder / "slurmctld.out", env))
        daemons.enter_context(_daemon(["slurmd", "-D", "-N", NODE], folder / "slurmd.out", env))
        alone = Cluster(env, folder)
        until(lambda: _state(alone) == "idle", 30, every=0.1)
        try:
            yield alone
        finally:
            alone.ask("scancel", "--user=root")
            until(lambda: not alone.ask("squeue", "--noheader"), 60, every=0.1)


def _clear_cgroups() -> None:
    """The node's daemon leaves the empty ones of its jobs."""
    for folder, _, _ in os.walk(FREEZER / f"slurm_{NODE}", topdown=False):
        os.rmdir(folder)


def _state(alone: Cluster) -> str:
    try:
        return alone.ask("sinfo", "--noheader", "--format=%T")
    except subprocess.CalledProcessError:
        return ""


def _configured(folder: Path, track: str) -> Path:
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir()
    (folder / "munge").chmod(0o755)
    folder.chmod(0o755)
    key = folder / "munge" / "key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    host = socket.gethostname().split(".")[0]
    values = {"host": host, "folder": folder, "track": track, "node": NODE, "cpus": os.cpu_count(), **_ports("controller", "daemon")}
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    config = folder / "slurm.conf"
    config.write_text(CONFIG.format(**values))
    return config


def _ports(*names: str) -> dict[str, int]:
    """Free ones, all different."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in names]
        return {name: one.getsockname()[1] for name, one in zip(names, sockets, strict=True)}


@contextmanager
def _daemon(argv: list[str], said: Path, env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    environ = {**os.environ, **env, "PATH": _path()}
    with said.open("wb") as out, subprocess.Popen(argv, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out) as child:
        try:
            yield child
        finally:
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
