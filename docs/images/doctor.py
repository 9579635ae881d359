"""Writes what `runbook doctor` really says into docs/guides/doctor.md: of a healthy host, a broken one, one that is not reached, the lab.

    .venv/bin/python docs/images/doctor.py

The host is a real sshd on loopback; the broken one holds what a run left whose keeper was killed. Paths and names of this machine are
replaced by usual ones; everything else stands as it was printed.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))
from tests.support.sshd import Sshd  # noqa: E402  the tests' own sshd, from this checkout

PAGE = ROOT / "docs" / "guides" / "doctor.md"
BOOK = {
    "runbook": 1,
    "hosts": {"box": "gpu-box"},
    "steps": [
        {"id": "server", "launch": {"command": ["sleep", "300"]}},
        {"id": "look", "patch": {"file": "{file}", "replace": [{"find": "a = 1", "with": "a = 2"}]}},
        {"id": "hold", "run": {"shell": "sleep 300", "timeout": "10m"}},
    ],
}


class Shown:
    """A folder with a sshd, and commands as a user types them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "d").mkdir()
        self.sshd = Sshd(folder / "d").start()
        self.env = {**os.environ, "RUNBOOK_SSH_CONFIG": str(self.sshd.client_config), "XDG_STATE_HOME": str(folder / "state")}
        self.configure()

    def configure(self, **options: str) -> None:
        """The client's configuration of `gpu-box`."""
        self.sshd.write_client_config("gpu-box", **options)

    def command(self, *argv: str) -> list[str]:
        """`runbook …` in this environment."""
        return [sys.executable, "-m", "runbook.cli.main", *argv]

    def doctor(self, target: str) -> str:
        """What is printed, with usual names."""
        done = subprocess.run(self.command("doctor", target), cwd=ROOT, env=self.env, capture_output=True, text=True, check=False)
        return f"$ runbook doctor {target}\n{self._usual(done.stdout)}"

    def _usual(self, text: str) -> str:
        home = str(Path.home())
        names = {
            f"{self.folder}/d/user_key": "~/.ssh/id_ed25519",
            f"{self.folder}/d/known_hosts": "~/.ssh/known_hosts",
            str(self.folder / "d" / "home"): "~",
            f"{self.folder}/state/runbook/lab/home": "LAB",
            str(self.folder / "part.py"): "/opt/engine/part.py",
            str(self.folder): "~",
            f"{sys.executable}3": "/usr/bin/python3",
            sys.executable: "/usr/bin/python3",
            home: "~",
        }
        for found, usual in names.items():
            text = text.replace(found, usual)
        text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "gpu7", text)
        text = re.sub(rf"\b{re.escape(getpass.getuser())}\b", "me", text).replace("uid 0", "uid 1000")
        return re.sub(r" +$", "", text.replace("127.0.0.1", "10.0.0.7"), flags=re.MULTILINE).rstrip("\n")

    def leave_things_behind(self) -> list[int]:
        """A run whose controller and keeper are killed; answers what still lives."""
        part = self.folder / "part.py"
        part.write_text("a = 1\n")
        book = self.folder / "book.yaml"
        book.write_text(json.dumps(BOOK).replace("{file}", str(part)))
        child = subprocess.Popen(
            self.command("run", str(book)), cwd=ROOT, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while "a = 2" not in part.read_text() or not any('"step":"hold"' in path.read_text() for path in self.folder.rglob("events.jsonl")):
            assert child.poll() is None
            time.sleep(0.1)
        child.kill()
        child.wait()
        keeper = next(self.folder.rglob("keeper.json"))
        os.kill(json.loads(keeper.read_text())["pid"], signal.SIGKILL)
        return [json.loads(next(self.folder.rglob("launches/server.json")).read_text())["pid"]]


def put(page: str, name: str, said: str) -> str:
    """The page with this output in its place."""
    found, count = re.subn(
        rf"(<!-- block: [^\n]*\({name}\) -->\n```text\n).*?(\n```)", lambda place: f"{place[1]}{said}{place[2]}", page, flags=re.DOTALL
    )
    assert count == 1, name
    return found


def main() -> int:
    """Make all of them, clean up."""
    folder = Path(tempfile.mkdtemp(prefix="doctor-"))
    shown, page = Shown(folder), PAGE.read_text(encoding="utf-8")
    left: list[int] = []
    try:
        page = put(page, "healthy", shown.doctor("gpu-box"))
        left = shown.leave_things_behind()
        shown.configure(ForwardAgent="yes")
        page = put(page, "broken", shown.doctor("gpu-box"))
        shown.configure(HostName="127.0.0.1", Port="1")
        page = put(page, "unreachable", shown.doctor("gpu-box"))
        subprocess.run(shown.command("lab", "up"), cwd=ROOT, env=shown.env, check=True, capture_output=True)
        page = put(page, "lab", shown.doctor("lab"))
        PAGE.write_text(page, encoding="utf-8")
    finally:
        subprocess.run(shown.command("lab", "down"), cwd=ROOT, env=shown.env, check=False, capture_output=True)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        shown.sshd.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
