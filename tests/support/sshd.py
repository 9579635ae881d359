"""A real OpenSSH sshd on a free loopback port, with keys, configuration and home folder of its own.

The account is the one that runs the tests. `HOME` of its sessions is a folder of the test, so that rc files of the real account
do not matter and a test can write its own.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin") or "sshd"
_CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
PrintMotd no
MaxStartups 100
LogLevel VERBOSE
SetEnv HOME={home} RUNBOOK_LEASES={folder}/leases
Subsystem sftp internal-sftp
{extra}
"""


def until(condition, seconds: float, what: str = "condition") -> None:  # type: ignore[no-untyped-def]
    """Wait until `condition()` is true; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.01)


def free_port() -> int:
    """A loopback port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A new key pair; `path` is the private half."""
    if not path.exists():
        subprocess.run(
            ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", str(path)], check=True, stdin=subprocess.DEVNULL
        )
    return path


@dataclass
class Sshd:
    """A running server. `client_config` is an ssh_config in which the alias `box` is this server."""

    folder: Path
    extra: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    user: str = field(default_factory=getpass.getuser)
    process: subprocess.Popen[bytes] | None = None

    @property
    def home(self) -> Path:
        """HOME of its sessions."""
        return self.folder / "home"

    @property
    def key(self) -> Path:
        """The private key that may log in."""
        return self.folder / "user_key"

    @property
    def known_hosts(self) -> Path:
        """A known_hosts file with this server's key."""
        return self.folder / "known_hosts"

    @property
    def client_config(self) -> Path:
        """An ssh_config with the alias `box`."""
        return self.folder / "ssh_config"

    def start(self) -> Sshd:
        """Make keys and files, start, and wait until it says its banner."""
        self.home.mkdir(parents=True, exist_ok=True)
        (self.folder / "leases").mkdir(mode=0o700, exist_ok=True)  # it stands for a host of its own
        make_key(self.folder / "host_key")
        make_key(self.key)
        (self.folder / "authorized_keys").write_text((self.folder / "user_key.pub").read_text())
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        for _ in range(5):  # another process may take the port between the look and the bind
            self.port = free_port()
            if self._serve():
                break
        else:
            raise RuntimeError(f"sshd did not start: {self.log()}")
        self.known_hosts.write_text(self.known_hosts_line())
        self.write_client_config()
        return self

    def _serve(self) -> bool:
        (self.folder / "sshd_config").write_text(_CONFIG.format(port=self.port, folder=self.folder, home=self.home, extra=self.extra))
        with open(self.folder / "sshd.log", "ab") as log:
            self.process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with socket.create_connection((self.host, self.port), 1) as probe:
                    if probe.recv(4) == b"SSH-":
                        return True
            except OSError:
                time.sleep(0.01)
        self.stop()
        return False

    def known_hosts_line(self, key: Path | None = None) -> str:
        """The line of known_hosts for this server, or for another host key at its address."""
        public = Path(f"{key or self.folder / 'host_key'}.pub").read_text().split()
        return f"[{self.host}]:{self.port} {public[0]} {public[1]}\n"

    def write_client_config(self, alias: str = "box", port: int | None = None, **options: str) -> Path:
        """Write `client_config`; `options` are further lines of the alias, or replace the standard ones."""
        lines = {
            "HostName": self.host,
            "Port": str(port or self.port),
            "User": self.user,
            "IdentityFile": str(self.key),
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(self.known_hosts),
            "GlobalKnownHostsFile": "/dev/null",
            **options,
        }
        self.client_config.write_text(f"Host {alias}\n" + "".join(f"  {key} {value}\n" for key, value in lines.items()))
        return self.client_config

    def sessions(self) -> list[int]:
        """Pids of the server's children, one per connection."""
        assert self.process is not None
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def log(self) -> str:
        """What the server wrote."""
        path = self.folder / "sshd.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self) -> None:
        """End the listener and its connections."""
        if self.process is None or self.process.poll() is not None:
            return
        sessions = self.sessions()
        self.process.terminate()
        self.process.wait(10)
        for pid in sessions:
            try:
                os.kill(pid, 15)
            except ProcessLookupError:
                pass
