"""Behind `via:`: transformers in process, mount and IPC namespaces of its own, and a small server in a container."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from runbook.lab import processes
from tests.e2e.cli import runbook
from tests.real import engines
from tests.real.conftest import need
from tests.real.place import real_dir
from tests.real.test_transformers import STEPS
from tests.support.waiting import until

MODULE = "transformers.models.llama.modeling_llama"
PROBE = {"at": "LlamaModel.forward", "where": "entry", "show": {"ids": "input_ids"}}
SEEN = [
    {"id": "seen", "expect_probe": {"probe": "ids", "since": "chat", "until": "chat"}},
    {"id": "state", "diagnose": {"server": "server", "timeout": "60s"}},
]


def source() -> Path:
    """The module's file."""
    return next((real_dir() / "venv" / "lib").glob("python*")) / "site-packages" / (MODULE.replace(".", "/") + ".py")


@pytest.fixture
def inside() -> Iterator[int]:
    """The first process of new namespaces, by its pid out here."""
    command = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc", "sleep", "3600"]
    with subprocess.Popen(command) as outer:
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        try:
            yield int(str(until(lambda: children.read_text().strip(), 10)))
        finally:
            outer.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
@pytest.mark.parametrize("become", ["", "sudo -n "], ids=["nsenter", "sudo_nsenter"])
def test_a_server_in_namespaces_is_launched_probed_restored_and_ended(become, inside, port, tmp_path):
    need("transformers")
    if become and shutil.which("sudo") is None:
        pytest.skip("sudo is not installed")
    patch = {"id": "ids", "patch": {"for": "server", "module": MODULE, "probes": [PROBE]}}
    path = engines.playbook(tmp_path / "p.yaml", engines.transformers(port), [*STEPS, *SEEN], [patch], [{"restore": "ids"}, *engines.END])
    whole = yaml.safe_load(path.read_text())
    whole["hosts"] = {"gpu": {"target": "local", "via": f"{become}nsenter -t {inside} -m -p -i --root --wd"}}
    path.write_text(yaml.safe_dump(whole, sort_keys=False))
    before = hashlib.sha256(source().read_bytes()).hexdigest()
    outcome = runbook("run", path, "--json", "--no-suspend", "--out", tmp_path / "run", state=tmp_path / "state", seconds=900)
    assert outcome.code == 0, (outcome.out, outcome.err)
    assert (outcome.json["verdict"], outcome.json["left_behind"]) == ("passed", []), outcome.err
    assert outcome.json["steps"] and hashlib.sha256(source().read_bytes()).hexdigest() == before
    until(lambda: not _others(inside), 20)


def _others(first: int) -> list[str]:
    """What runs beside the first process of its namespace."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    found = [processes.find(pid) for pid in pids if pid != first and _namespace(pid) == _namespace(first)]
    return [one.title for one in found if one is not None]  # its first process reaps nobody


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


PODMAN = "podman --root {0}/store --runroot {0}/run --storage-driver vfs --runtime runc --cgroup-manager cgroupfs --events-backend=file"
LIMITS = ["--ulimit", "nofile=1024:4096", "--ulimit", "nproc=1000:1000"]
"""Podman's own defaults are above what a root without CAP_SYS_RESOURCE may ask for."""
SERVER = """
from http.server import BaseHTTPRequestHandler, HTTPServer
import sys

class Hello(BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"hello"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

HTTPServer(("127.0.0.1", int(sys.argv[1])), Hello).serve_forever()
"""


@pytest.fixture
def container() -> Iterator[str]:
    """The command that runs another in a container; the container has the network of this host."""
    need("podman")
    with tempfile.TemporaryDirectory(prefix="box-") as place:  # podman wants a short path
        podman = PODMAN.format(place)
        run = [*podman.split(), "run", "--detach", *LIMITS, "--network=host", "--name=box", "--rootfs", str(real_dir() / "podman" / "tree")]
        subprocess.run([*run, "sleep", "3600"], check=True, stdout=subprocess.DEVNULL, timeout=120)
        try:
            yield f"{podman} exec -i box"
        finally:
            subprocess.run([*podman.split(), "rm", "--force", "box"], check=True, stdout=subprocess.DEVNULL, timeout=120)
            until(lambda: not _mention(place), 30)  # its monitor cleans up after it, and would make the folder anew


def _mention(place: str) -> list[str]:
    """Command lines with this folder."""
    titles = [processes.Process(int(name), 0).title for name in os.listdir("/proc") if name.isdigit()]
    return [title for title in titles if place in title]


def test_a_server_in_a_container_is_launched_probed_restored_and_ended(container, port, tmp_path):
    """A look at it by its port, too. Killing `podman exec` would leave its process: all ends by what runbook does inside."""
    (tmp_path / "hello.py").write_text(SERVER)
    write = {"id": "write", "copy": {"from": str(tmp_path / "hello.py"), "to": "/root/hello.py"}}
    probe = {"at": "Hello.do_GET", "where": "entry", "show": {"path": "self.path"}}
    steps = [
        write,
        {"id": "taps", "patch": {"for": "server", "file": "/root/hello.py", "probes": [probe]}},
        {"id": "server", "launch": {"command": ["python3", "/root/hello.py", port], "port": port}},
        {"id": "up", "wait_healthy": {"server": "server", "path": "/"}},
        {"id": "ask", "request": {"server": "server", "get": "/asked"}},
        {"id": "seen", "expect_probe": {"probe": "taps", "since": "ask", "until": "ask"}},
        {"id": "state", "diagnose": {"server": "server", "url": f"http://127.0.0.1:{port}/", "timeout": "60s"}},
        {"assert": ["steps.ask.text == 'hello'", "any(h.path == '/asked' for h in steps.seen.hits)"]},
    ]
    hosts = {"box": {"target": "local", "via": container, "python": "python3"}}
    path = tmp_path / "p.yaml"
    always = [{"restore": "taps"}, {"kill": {"step": "server"}}]
    path.write_text(yaml.safe_dump({"runbook": 1, "name": "in a container", "hosts": hosts, "steps": steps, "always": always}))
    outcome = runbook("run", path, "--json", "--no-suspend", state=tmp_path / "state", seconds=300)
    assert outcome.code == 0, (outcome.out, outcome.err)
    assert (outcome.json["verdict"], outcome.json["left_behind"]) == ("passed", []), outcome.err
    inside = subprocess.run([*container.split(), "cat", "/root/hello.py"], check=True, stdout=subprocess.PIPE, text=True, timeout=60)
    assert inside.stdout == SERVER, "the probe is out again"
    until(lambda: not _python_in(container), 20)


def _python_in(container: str) -> list[str]:
    """Command lines of Python in the container, apart from the one that looks."""
    look = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f; echo; done"
    out = subprocess.run([*container.split(), "sh", "-c", look], check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout
    return [line for line in out.splitlines() if "python" in line]
