"""Finding a server that runs already: by port, pid, pattern or run; which profile fits it, and where its log is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from runbook.hosts.base import Described, Host, PortOwner, Process
from runbook.model.profile import Profile
from runbook.steps.kill import has_title, is_server
from runbook.steps.launch import read_port

GENERIC = "generic"
LOG_NAME = re.compile(r"\.(?:log|out|err)(?:\.\d+)?$|(?:^|/)(?:log|stdout|stderr)$")
NOWHERE = {
    "tty": "its output goes to a terminal",
    "null": "its output is thrown away (/dev/null)",
    "socket": "its output goes to a socket, as systemd's journal",
    "closed": "its output is closed",
    "deleted": "its log file was deleted",
    "pipe": "its output goes to a pipe, and nobody who reads it writes a file",
}


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A process that may be the server in question."""

    pid: int
    start: int
    title: str
    command: str
    user: str
    state: str
    age_s: float
    profile: str
    ports: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()


class Survey:
    """What runs on a host, looked at once."""

    def __init__(self, host: Host, profiles: Iterable[Profile]) -> None:
        self._profiles = [profile for profile in profiles if profile.processes.main or profile.processes.workers]
        self._table = {process.pid: process for process in host.processes()}
        self._ports = host.ports()
        self._children: dict[int, list[Process]] = {}
        for process in self._table.values():
            self._children.setdefault(process.ppid, []).append(process)

    def candidates(self) -> list[Server]:
        """What looks like a model server: an engine that a profile knows, or an interpreter that listens or holds a GPU."""
        listening = {owner.pid for owner in self._ports}
        known = [p for p in self._others() if self.profile_of(p) != GENERIC]
        likely = [p for p in self._others() if (p.pid in listening or p.gpus) and is_server(p) and _is_interpreter(p)]
        return self._roots([*known, *likely])

    def on_port(self, port: int) -> list[Server]:
        """Who listens on it; where nobody does yet, whose command says that it will."""
        owners = [self._table[owner.pid] for owner in self._ports if owner.port == port and owner.pid in self._table]
        if owners:
            return self._roots([self._top(process) for process in owners])
        return self._roots([p for p in self._others() if is_server(p) and self._named_port(p) == port])

    def hidden_owner(self, port: int) -> bool:
        """Whether somebody listens whom we may not see."""
        return any(owner.port == port and owner.pid == 0 for owner in self._ports)

    def matching(self, pattern: str) -> list[Server]:
        """Servers whose argv or title hold the pattern."""
        found = [p for p in self._others() if is_server(p) and (re.search(pattern, " ".join(p.argv)) or has_title(p, pattern))]
        return self._roots(found)

    def of_pid(self, pid: int) -> Server | None:
        """Exactly this process."""
        return self._server(self._table[pid]) if pid in self._table else None

    def profile_of(self, process: Process) -> str:
        """The profile whose pattern its command, or the title of a process below it, matches; else generic."""
        text = " ".join(process.argv)
        if is_server(process):
            by_command = [one for one in self._profiles if one.processes.main and re.search(one.processes.main, text)]
            if by_command:
                return _narrowest(by_command)
        tree = (process, *self._below(process.pid))
        by_title = [one for one in self._profiles if one.processes.workers and any(has_title(p, one.processes.workers) for p in tree)]
        return _narrowest(by_title) if by_title else GENERIC

    def _others(self) -> list[Process]:
        """All but ourselves and those above us."""
        return [p for p in self._table.values() if p.protected not in ("ancestry", "pid1", "sshd", "keeper") and p.state not in "ZX"]

    def _named_port(self, process: Process) -> int | None:
        name = self.profile_of(process)
        profile = next((one for one in self._profiles if one.profile == name), Profile(profile=GENERIC))
        return read_port(process.argv, profile)

    def _top(self, process: Process) -> Process:
        """The highest of its parents that belongs to the same engine: a listener may be a worker of it."""
        name = self.profile_of(process)
        parent = self._table.get(process.ppid)
        while name != GENERIC and parent is not None and parent.protected is None and self.profile_of(parent) == name and is_server(parent):
            process, parent = parent, self._table.get(parent.ppid)
        return process

    def _roots(self, found: Sequence[Process]) -> list[Server]:
        """Each once, without those that have one of the others above them, oldest first."""
        chosen = {process.pid: process for process in found}
        roots = [p for p in chosen.values() if not any(above in chosen for above in self._above(p.pid))]
        return [self._server(p) for p in sorted(roots, key=lambda p: (-p.age_s, p.pid))]

    def _above(self, pid: int) -> list[int]:
        chain: list[int] = []
        parent = self._table[pid].ppid
        while parent in self._table and parent not in chain:
            chain.append(parent)
            parent = self._table[parent].ppid
        return chain

    def _below(self, pid: int) -> list[Process]:
        found: dict[int, Process] = {}
        queue = [pid]
        while queue:
            more = [child for child in self._children.get(queue.pop(), ()) if child.pid not in found]
            found.update((child.pid, child) for child in more)
            queue += [child.pid for child in more]
        return list(found.values())

    def _server(self, process: Process) -> Server:
        tree = {process.pid, *(below.pid for below in self._below(process.pid))}
        return Server(
            pid=process.pid,
            start=process.start,
            title=process.title,
            command=" ".join(process.argv)[:300],
            user=process.user,
            state=process.state,
            age_s=process.age_s,
            profile=self.profile_of(process),
            ports=tuple(sorted({owner.port for owner in self._ports if owner.pid in tree})),
            gpus=process.gpus,
        )


def _narrowest(fitting: Sequence[Profile]) -> str:
    """Of several that fit, one that no other of them extends."""
    extended = {profile.extends for profile in fitting}
    return next((profile.profile for profile in fitting if profile.profile not in extended), fitting[0].profile)


def log_of(found: Described) -> tuple[str, str]:
    """(path of its log, or empty; why it is that one, or why there is none)."""
    if not found.readable:
        return "", "its open files are not ours to see: look as its user or as root, or name the log"
    files = [output for output in reversed(found.outputs) if output.kind == "file"]
    if files:
        return files[0].path, f"its descriptor {files[0].fd}"
    behind = [(reader, path) for output in found.outputs for reader in output.readers for path in reader.written]
    if behind:
        reader, path = behind[0]
        return path, f"written by `{reader.title}` (pid {reader.pid}), which reads its output"
    named = [path for path in found.written if LOG_NAME.search(path)]
    if named:
        return named[0], "it holds it open for writing"
    kinds = [output.kind for output in found.outputs]
    return "", NOWHERE.get(kinds[-1] if kinds else "closed", "its output goes nowhere that can be read")


def _is_interpreter(process: Process) -> bool:
    name = process.argv[0].rsplit("/", 1)[-1] if process.argv else process.comm
    return bool(re.match(r"python|pypy|node$|java$|ruby|llama|text-generation|trtllm|triton", name))


__all__ = ["PortOwner", "Server", "Survey", "log_of"]
