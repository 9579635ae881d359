"""Somebody's forgotten server on the lab: holds a port and GPU memory, and is nobody's child."""

from __future__ import annotations

import http.client
import shlex
import socket
import subprocess
from pathlib import Path

from runbook.lab import processes
from runbook.lab.control import Lab, LabError, ssh_argv

READY_S = 60.0
LOG = "leftover.log"


def start(lab: Lab, port: int) -> None:
    """Start it over SSH, as somebody once did with nohup, and wait until it serves. Already there: nothing to do."""
    if _answers(port):
        return _recognise(lab, port)
    command = ["python", "-m", "lab_engine.launch_server", "--port", str(port), "--speculative-algorithm", "EAGLE3", "--fault", "none"]
    line = f"nohup setsid {shlex.join(command)} > {LOG} 2>&1 < /dev/null & echo $!"
    try:
        said = subprocess.run(ssh_argv(lab, line), capture_output=True, text=True, timeout=30)
    except FileNotFoundError:
        raise LabError("there is no `ssh` on this machine", "install the OpenSSH client") from None
    except subprocess.TimeoutExpired:
        raise LabError("the lab did not answer over SSH within 30 s", "runbook lab down, runbook lab up") from None
    server = processes.find(int(said.stdout)) if said.stdout.strip().isdigit() else None
    processes.wait(lambda: _is_ready(port) or server is None or not processes.alive(server), READY_S)
    if not _is_ready(port):
        lines = (Path(lab.home) / LOG).read_text(errors="replace").split("\n") if (Path(lab.home) / LOG).exists() else [said.stderr]
        last = next((text for text in reversed(lines) if text.strip()), "it said nothing")
        raise LabError(f"the leftover server did not come up on port {port}: {last}", f"its log: {Path(lab.home) / LOG}")
    return None


def _recognise(lab: Lab, port: int) -> None:
    titles = [process.title.split() for process in processes.below(lab.daemon)]
    if not any("lab_engine.launch_server" in words and str(port) in words for words in titles):
        raise LabError(
            f"port {port} is taken by a process that is not the lab's",
            "choose another: `make demo DEMO_PORT=8123`, or `lab up --port 8123`",
        )


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_ready(port: int) -> bool:
    """By the path that only looks at a flag, so that no token is made."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
