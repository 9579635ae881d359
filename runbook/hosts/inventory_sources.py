"""Hosts that others know of: an Ansible inventory, as `ansible-inventory` reads it, and the nodes of a Slurm job."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runbook.hosts.base import ResolveFailed

LIMIT_S = 30.0
"""An inventory script may ask a cloud."""
SLURM = re.compile(r"slurm:(\d+(?:_\d+)?)")
STRICT = {"ANSIBLE_INVENTORY_UNPARSED_FAILED": "true", "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true", "ANSIBLE_NOCOLOR": "true"}
"""Without them Ansible warns of what it cannot read and answers with no hosts."""
_NAME = re.compile(r"[A-Za-z_]\w*")


class Foreign(NamedTuple):
    """Hosts as the keys of hosts.yaml, and groups as lists of names."""

    hosts: dict[str, dict[str, Any]]
    groups: dict[str, list[str]]


def ansible(path: Path) -> Foreign:
    """The hosts and groups of an Ansible inventory. Raises ResolveFailed."""
    try:
        stamp = path.stat().st_mtime_ns
    except OSError as error:
        raise ResolveFailed(f"the Ansible inventory {path} cannot be read: {error.strerror}", "correct `ansible:` in hosts.yaml") from None
    return _ansible(path, stamp)


@functools.lru_cache(maxsize=8)
def _ansible(path: Path, stamp: int) -> Foreign:
    said = _ask(["ansible-inventory", "-i", str(path), "--list"], "pip install ansible-core, or take `ansible:` out of hosts.yaml")
    try:
        data = json.loads(said)
        return read_ansible(data)
    except (ValueError, TypeError, AttributeError):
        raise ResolveFailed(f"ansible-inventory said {said[:60]!r}", f"look at `ansible-inventory -i {path} --list`") from None


def read_ansible(data: Mapping[str, Any]) -> Foreign:
    """What `ansible-inventory --list` printed. Connection variables become keys, the others variables, as far as they can be named."""
    hostvars: Mapping[str, Any] = data.get("_meta", {}).get("hostvars", {})
    groups = {name: sorted(_members(data, name, ())) for name in data if name != "_meta"}
    names = sorted({host for members in groups.values() for host in members} | set(hostvars))
    return Foreign({name: _entry(hostvars.get(name, {})) for name in names}, {name: found for name, found in groups.items() if found})


def _members(data: Mapping[str, Any], name: str, above: tuple[str, ...]) -> set[str]:
    group = data.get(name) or {}
    found = set(group.get("hosts") or [])
    for child in group.get("children") or []:
        if child not in above:
            found |= _members(data, child, (*above, name))
    return found


def _entry(values: Mapping[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    for key, names in {"host": ("ansible_host", "ansible_ssh_host"), "user": ("ansible_user", "ansible_ssh_user")}.items():
        found = next((values[name] for name in names if values.get(name)), None)
        if found is not None:
            entry[key] = str(found)
    port = str(values.get("ansible_port") or values.get("ansible_ssh_port") or "")
    if port.isdigit():
        entry["port"] = int(port)
    if values.get("ansible_connection") == "local":
        entry["host"] = "local"
    python = str(values.get("ansible_python_interpreter") or "")
    if python.startswith("/"):
        entry["python"] = python
    own = {name: value for name, value in values.items() if not name.startswith("ansible_") and _NAME.fullmatch(name)}
    return {**entry, **({"vars": own} if own else {})}


def slurm(target: str) -> list[str] | None:
    """The nodes of `slurm:JOB`, as names for ssh; None for another target. Raises ResolveFailed."""
    job = SLURM.fullmatch(target)
    if job is None:
        return None
    said = _ask(["squeue", "--noheader", "--jobs", job[1], "--format", "%T|%N"], "run this where Slurm's commands are: a login node")
    state, _, nodes = said.strip().splitlines()[0].partition("|") if said.strip() else ("", "", "")
    if not nodes:
        what = f"is {state.lower()} and has no nodes yet" if state else "is not in the queue"
        raise ResolveFailed(f"the Slurm job {job[1]} {what}", "`squeue --me` lists your jobs; ask again once it runs")
    found = _ask(["scontrol", "show", "hostnames", nodes], "run this where Slurm's commands are: a login node")
    return [line.strip() for line in found.splitlines() if line.strip()]


def _ask(argv: Sequence[str], hint: str) -> str:
    if shutil.which(argv[0]) is None:
        raise ResolveFailed(f"there is no `{argv[0]}` on this machine", hint)
    try:
        environ = {**os.environ, **STRICT}
        done = subprocess.run(argv, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ResolveFailed(f"`{argv[0]}` gave no answer in {LIMIT_S:.0f} s", f"try `{' '.join(argv)}` by hand") from None
    except OSError as error:
        raise ResolveFailed(f"`{argv[0]}` could not be run: {error.strerror}", hint) from None
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exited {done.returncode}"]
        raise ResolveFailed(f"`{argv[0]}` failed: {_reason(lines)[:300]}", f"try `{' '.join(argv)}` by hand")
    return done.stdout.decode(errors="replace")


def _reason(lines: Sequence[str]) -> str:
    """The line that says most: Ansible ends with "completely failed" and has warned before of what it did not understand."""
    told = [line.partition(": ")[2] for line in lines if line.startswith("[WARNING]: Failed to parse inventory with")]
    return told[0] if told else lines[-1]
