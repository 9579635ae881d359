"""The same small jobs as commands of runbook and of its peers, against one real sshd."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.sshd import Sshd

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
VENV = ROOT / ".cache" / "bench" / "venv"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_FABRIC = """\
import sys, time
from fabric import Connection
host, port, user, key, count = sys.argv[1:]
with Connection(host, user=user, port=int(port), connect_kwargs={"key_filename": key}) as c:
    c.run("true", hide=True, in_stream=False)
    start = time.perf_counter()
    for _ in range(int(count)):
        c.run("true", hide=True, in_stream=False)
    print((time.perf_counter() - start) / int(count))
"""


def install_peers() -> None:
    """Put the pinned peers into a virtual environment of their own, once per set of pins."""
    stamp = VENV / ".stamp"
    if stamp.exists() and stamp.read_text() == REQUIREMENTS.read_text():
        return
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    subprocess.run([str(VENV / "bin" / "pip"), "install", "--quiet", "-r", str(REQUIREMENTS)], check=True)
    stamp.write_text(REQUIREMENTS.read_text())


@dataclass
class Bench:
    """A folder with the files of each job, and the server (or a relay before it) that they talk to."""

    folder: Path
    server: Sshd
    port: int

    def __post_init__(self) -> None:
        """Write what does not depend on a job."""
        self._numbers = itertools.count()
        self.server.write_client_config(port=self.port)
        self.server.known_hosts.write_text(self.server.known_hosts_line().replace(str(self.server.port), str(self.port)))
        host, user, key, known = self.server.host, self.server.user, self.server.key, self.server.known_hosts
        (self.folder / "inventory.ini").write_text(
            f"box ansible_host={host} ansible_port={self.port} ansible_user={user} ansible_ssh_private_key_file={key}"
            f" ansible_ssh_common_args='-o UserKnownHostsFile={known}' ansible_python_interpreter=/usr/bin/python3\n"
        )
        data = {"ssh_port": self.port, "ssh_user": user, "ssh_key": str(key), "ssh_known_hosts_file": str(known)}
        (self.folder / "inventory.py").write_text(f"hosts = [({host!r}, {data!r})]\n")

    @property
    def env(self) -> dict[str, str]:
        """One environment for all, with nothing of the user's: a fresh ControlMaster folder too, so that each run starts cold."""
        control = self.folder / f"c{next(self._numbers)}"
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LC_ALL": "C.UTF-8",
            "XDG_STATE_HOME": str(self.folder / "state"),
            "RUNBOOK_SSH_CONFIG": str(self.server.client_config),
            "ANSIBLE_HOME": str(self.folder / "ansible"),
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(control),
            "ANSIBLE_SSH_ARGS": "-C -o ControlMaster=auto -o ControlPersist=3s",
        }

    def timed(self, argv: list[str | Path]) -> float:
        """Seconds of a whole process. Raises when it fails."""
        env = self.env
        start = time.perf_counter()
        done = subprocess.run(argv, env=env, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - start
        if done.returncode != 0:
            raise RuntimeError(f"{argv[0]} exited {done.returncode}: {(done.stderr or done.stdout)[-800:]}")
        return seconds

    def playbook(self, steps: int) -> Path:
        """`true` so many times, for runbook."""
        path = self.folder / f"runbook{steps}.yaml"
        path.write_text("runbook: 1\nhosts: {box: box}\nsteps:\n" + "  - run: {argv: ['true']}\n" * steps)
        return path

    def ansible_playbook(self, tasks: int) -> Path:
        """The same for Ansible."""
        path = self.folder / f"ansible{tasks}.yaml"
        path.write_text("- hosts: all\n  gather_facts: false\n  tasks:\n" + "    - command: 'true'\n" * tasks)
        return path

    def deploy(self, operations: int) -> Path:
        """The same for pyinfra."""
        path = self.folder / f"pyinfra{operations}.py"
        path.write_text(
            "from pyinfra.operations import server\n" + "".join(f"server.shell(name='{n}', commands=['true'])\n" for n in range(operations))
        )
        return path

    def runbook(self, steps: int) -> float:
        """A whole run of runbook."""
        return self.timed([BIN / "runbook", "run", self.playbook(steps)])

    def ansible(self, tasks: int) -> float:
        """A whole run of ansible-playbook."""
        return self.timed([VENV / "bin" / "ansible-playbook", "-i", self.folder / "inventory.ini", self.ansible_playbook(tasks)])

    def pyinfra(self, operations: int) -> float:
        """A whole run of pyinfra."""
        return self.timed([VENV / "bin" / "pyinfra", "-y", self.folder / "inventory.py", self.deploy(operations)])

    def fabric_step(self, count: int) -> float:
        """Seconds per command of stock Fabric on an open connection."""
        argv = [sys.executable, "-c", _FABRIC, self.server.host, str(self.port), self.server.user, str(self.server.key), str(count)]
        return float(subprocess.run(argv, env=self.env, capture_output=True, text=True, check=True).stdout)

    def validate(self) -> float:
        """runbook's check of a playbook of 20 steps."""
        return self.timed([BIN / "runbook", "validate", self.playbook(20)])

    def syntax_check(self) -> float:
        """Ansible's check of one of 20 tasks."""
        argv = [VENV / "bin" / "ansible-playbook", "--syntax-check", "-i", self.folder / "inventory.ini", self.ansible_playbook(20)]
        return self.timed(argv)

    def help(self) -> float:
        """`runbook --help`."""
        return self.timed([BIN / "runbook", "--help"])

    def bare_click(self) -> float:
        """A click program with as many commands and nothing else."""
        path = self.folder / "bare.py"
        if not path.exists():
            shown = subprocess.run([BIN / "runbook", "--help"], capture_output=True, text=True, check=True).stdout
            names = re.findall(r"^  (\w+) +\S", shown.partition("Commands:")[2].partition("\n\n")[0], re.MULTILINE)
            commands = "".join(f'@main.command()\ndef {name}():\n    """Does {name}."""\n' for name in names)
            path.write_text(f'import click\n@click.group()\ndef main():\n    """A program."""\n{commands}main()\n')
        return self.timed([sys.executable, path, "--help"])
