"""A host of its own on this machine: network namespace, processes, host name and /tmp apart, a real OpenSSH sshd, and a link to break.

Needs root, iproute2, iptables and util-linux. All names carry a random part, so that several can stand side by side.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.support.sshd import SSHD, make_key

ROOT = Path(__file__).parents[2]
NEEDED = ("ip", "iptables", "unshare", "tc")
START_S = 15.0
_CONFIG = """\
Port 22
ListenAddress {address}
HostKey {keys}/host_key
PidFile none
AuthorizedKeysFile {keys}/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
PrintMotd no
LogLevel VERBOSE
SetEnv HOME={home} XDG_STATE_HOME={state} RUNBOOK_LEASES={leases}
Subsystem sftp internal-sftp
{extra}
"""


def missing() -> str:
    """Why no such host can be made here; empty when it can."""
    if os.geteuid() != 0:
        return "it needs root"
    absent = [tool for tool in NEEDED if shutil.which(tool) is None] + ([] if os.path.exists(SSHD) else ["sshd"])
    if absent:
        return f"it needs {', '.join(absent)}"
    probe = f"rbp{secrets.token_hex(3)}"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode != 0:
        return "network namespaces are not allowed here"
    subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return ""


class NetHost:
    """A running host. `alias` is its name in `client_config`; `state` its state folder, `home` the account's home."""

    alias = "box"

    def __init__(self, folder: Path, *, extra: str = "", setup: str = "", client: dict[str, str] | None = None) -> None:
        """`setup` is shell text that runs in the host's own mounts before sshd starts; `client` are lines of the alias."""
        self.folder, self.extra, self.setup, self.client = folder, extra, setup, client or {}
        self.tag = secrets.token_hex(3)
        third, fourth = random.SystemRandom().randrange(1, 255), 4 * random.SystemRandom().randrange(0, 63)
        self.gateway, self.address = f"10.213.{third}.{fourth + 1}", f"10.213.{third}.{fourth + 2}"
        self.netns, self.cable = f"rb{self.tag}", f"rbv{self.tag}"
        self.home, self.state, self.keys, self.leases = (folder / name for name in ("home", "state", "keys", "leases"))
        self.known_hosts, self.client_config = folder / "known_hosts", folder / "ssh_config"
        self._init: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> NetHost:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    # life --------------------------------------------------------------------------------------------------------

    def start(self) -> NetHost:
        """Build the host and its cable, start sshd, wait for its banner."""
        self.leases.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (self.home, self.state, self.keys, Path("/run/sshd")):
            path.mkdir(parents=True, exist_ok=True)
        make_key(self.keys / "host_key")
        make_key(self.keys / "user_key")
        (self.keys / "authorized_keys").write_text((self.keys / "user_key.pub").read_text())
        self._ip("netns", "add", self.netns)
        self._ip("link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", self.netns)
        self._ip("addr", "add", f"{self.gateway}/30", "dev", self.cable)
        self._ip("link", "set", self.cable, "up")
        self._ip("-n", self.netns, "addr", "add", f"{self.address}/30", "dev", "eth0")
        self._ip("-n", self.netns, "link", "set", "lo", "up")
        self._ip("-n", self.netns, "link", "set", "eth0", "up")
        text = _CONFIG.format(address=self.address, keys=self.keys, home=self.home, state=self.state, leases=self.leases, extra=self.extra)
        (self.folder / "sshd_config").write_text(text)
        self._boot()
        self.write_client_config()
        return self

    def _boot(self) -> None:
        # its own /tmp hides what lies below ours: the folder is bound back into it, and so are the interpreter and its libraries
        keep = f"/run/rb{self.tag}"
        shown = [self.folder, *(path for path in (ROOT, Path(sys.prefix)) if path.is_relative_to("/tmp"))]
        bound = "\n".join(f"mkdir -p {keep}/{number} && mount --bind {path} {keep}/{number}" for number, path in enumerate(shown))
        back = "\n".join(f"mkdir -p {path} && mount --bind {keep}/{number} {path}" for number, path in enumerate(shown))
        inside = f"""
hostname box-{self.tag}
{bound}
mount -t tmpfs -o size=64m tmpfs /tmp
{back}
cd {self.folder}
{self.setup}
while :; do {SSHD} -D -f {self.folder}/sshd_config -E {self.folder}/sshd.log & echo $! > {self.folder}/sshd.pid; wait $!; sleep 0.2; done
"""
        argv = [
            "ip",
            "netns",
            "exec",
            self.netns,
            "unshare",
            "--uts",
            "--pid",
            "--mount",
            "--ipc",
            "--fork",
            "--mount-proc",
            "--kill-child",
        ]
        with open(self.folder / "boot.log", "ab") as log:
            self._init = subprocess.Popen(
                [*argv, "bash", "-c", inside], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_S
        while not self.greets():
            if time.monotonic() > deadline or self._init.poll() is not None:
                raise RuntimeError(f"the host did not come up: {(self.folder / 'boot.log').read_text()[-500:]}")
            time.sleep(0.02)

    def greets(self, seconds: float = 0.5) -> bool:
        """Whether its sshd says its banner."""
        try:
            with socket.create_connection((self.address, 22), seconds) as probe:
                probe.settimeout(seconds)
                return probe.recv(4) == b"SSH-"
        except OSError:
            return False

    def stop(self) -> None:
        """Take everything of it away."""
        if self._init is not None:
            self.thaw()
            os.killpg(self._init.pid, signal.SIGKILL)
            self._init.wait(10)
            self._init = None
        for pid in self._ip("netns", "pids", self.netns, check=False).split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._ip("netns", "del", self.netns, check=False)
        self._ip("link", "del", self.cable, check=False)
        for path in (*Path(f"/run/rb{self.tag}").glob("*"), Path(f"/run/rb{self.tag}")):
            path.rmdir()  # empty: what was bound there was bound in the host's own mounts

    def write_client_config(self, **options: str) -> Path:
        """An ssh_config with the alias; `options` replace or add lines."""
        key = (self.keys / "host_key.pub").read_text().split()
        self.known_hosts.write_text(f"{self.address} {key[0]} {key[1]}\n")
        lines = {
            "HostName": self.address,
            "User": "root",
            "IdentityFile": str(self.keys / "user_key"),
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(self.known_hosts),
            "GlobalKnownHostsFile": "/dev/null",
            **self.client,
            **options,
        }
        self.client_config.write_text(f"Host {self.alias}\n" + "".join(f"  {key} {value}\n" for key, value in lines.items()))
        return self.client_config

    # processes ---------------------------------------------------------------------------------------------------

    def pids(self) -> list[int]:
        """Its processes, by our numbers, without the ones that keep the host up."""
        own = self._ip("netns", "pids", self.netns, check=False).split()
        keeping = self._keeping()
        return [int(pid) for pid in own if int(pid) not in keeping]

    def _keeping(self) -> set[int]:
        """`ip netns exec`, unshare, its shell with the pause between two sshd, and the listening sshd."""
        assert self._init is not None
        shell = self._inner()
        below = [pid for pid in children(shell) if command(pid).startswith((f"sshd: {SSHD} ", f"{SSHD} -D", "sleep 0.2"))]
        return {self._init.pid, shell, *below}

    def titles(self) -> list[str]:
        """What runs on it besides sshd's own processes."""
        lines = [command(pid) for pid in self.pids()]
        return [line for line in lines if line and not line.startswith(("sshd", f"{SSHD} "))]

    def freeze(self) -> None:
        """Stop every process of it, as a host that hangs."""
        for pid in self._ip("netns", "pids", self.netns).split():
            _signal(int(pid), signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        for pid in self._ip("netns", "pids", self.netns, check=False).split():
            _signal(int(pid), signal.SIGCONT)

    def sessions(self) -> list[int]:
        """sshd's processes of open connections, by our numbers."""
        return [pid for pid in self.pids() if command(pid).startswith("sshd: ")]

    def kill_sessions(self) -> None:
        """End every connection at the host's side, the hard way."""
        for pid in self.sessions():
            _signal(pid, signal.SIGKILL)

    def restart_sshd(self) -> None:
        """End the listener and all connections; another listener comes up."""
        listener = int((self.folder / "sshd.pid").read_text())  # by the host's own numbers
        subprocess.run(["nsenter", f"--pid=/proc/{self._inner()}/ns/pid", "kill", "-9", str(listener)], check=False, capture_output=True)
        self.kill_sessions()

    def seen_inside(self, path: Path) -> Path:
        """The path as the host's own mounts have it, from here."""
        return Path(f"/proc/{self._inner()}/root{path}")

    def _inner(self) -> int:
        assert self._init is not None
        return children(self._init.pid)[0] if children(self._init.pid) else self._init.pid

    # the link ----------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Pull the cable."""
        self._ip("link", "set", self.cable, "down")

    def drop(self, share: float = 1.0) -> None:
        """Lose packets in silence, all or this share of them."""
        chance = [] if share >= 1 else ["-m", "statistic", "--mode", "random", "--probability", f"{share:.3f}"]
        self._inside("iptables", "-I", "INPUT", *chance, "-j", "DROP")

    def reject(self) -> None:
        """Answer every packet of ssh by a reset."""
        self._inside("iptables", "-I", "INPUT", "-p", "tcp", "--dport", "22", "-j", "REJECT", "--reject-with", "tcp-reset")

    def rate(self, kbit: int) -> None:
        """A slow line, towards the host and from it."""
        shape = ("root", "tbf", "rate", f"{kbit}kbit", "burst", "8kb", "latency", "400ms")
        subprocess.run(["tc", "qdisc", "replace", "dev", self.cable, *shape], check=True, capture_output=True)
        self._inside("tc", "qdisc", "replace", "dev", "eth0", *shape)

    def heal(self) -> None:
        """As it was."""
        self._ip("link", "set", self.cable, "up")
        self._inside("iptables", "-F")
        subprocess.run(["tc", "qdisc", "del", "dev", self.cable, "root"], check=False, capture_output=True)
        self._inside("tc", "qdisc", "del", "dev", "eth0", "root", check=False)
        self.thaw()

    def _inside(self, *argv: str, check: bool = True) -> None:
        subprocess.run(["ip", "netns", "exec", self.netns, *argv], check=check, capture_output=True, stdin=subprocess.DEVNULL)

    @staticmethod
    def _ip(*argv: str, check: bool = True) -> str:
        return subprocess.run(["ip", *argv], check=check, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


def children(pid: int) -> list[int]:
    """Child processes."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def command(pid: int) -> str:
    """The command line, or nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
