"""The lab's SSH server: python -m runbook.lab.server FOLDER. Runs commands on this machine as a GPU box's sshd would.

One process, loopback only, keys made at the start. It is the subreaper of all that it starts: what outlives its channel stays in its
process tree, and nothing escapes it. `lab.json` in the folder appears when it accepts connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import getpass
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import asyncssh

from runbook.lab import home as lab_home
from runbook.lab import processes

PR_SET_CHILD_SUBREAPER = 36
CHUNK = 1 << 16
HANGUP_S = 1.0
"""Between SIGHUP and SIGKILL for the process group of a channel that was closed."""


class Reaper:
    """Waits for orphans that fell to us; those that asyncio started are its own to wait for."""

    def __init__(self) -> None:
        self.ours: set[int] = set()
        self.starting = 0
        if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1) != 0:
            raise OSError("prctl(PR_SET_CHILD_SUBREAPER) was refused")
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)

    async def start(self, argv: list[str], **options: Any) -> asyncio.subprocess.Process:
        """A child of our own; reaping rests meanwhile, since its pid is not known yet."""
        self.starting += 1
        try:
            child = await asyncio.create_subprocess_exec(*argv, **options)
            self.ours.add(child.pid)
        finally:
            self.starting -= 1
        self.reap()
        return child

    def reap(self) -> None:
        """Collect every ended orphan."""
        if self.starting:
            return
        for pid in _children() - self.ours:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _children() -> set[int]:
    """Pids of our children, zombies too. A thread that ends between two looks has passed its children on to the others."""
    found: set[int] = set()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.update(map(int, (task / "children").read_text().split()))
    return found


class Shell:
    """Runs one exec or shell request of a channel."""

    def __init__(self, reaper: Reaper, env: dict[str, str]) -> None:
        self.reaper = reaper
        self.env = env

    async def __call__(self, channel: asyncssh.SSHServerProcess[bytes]) -> None:
        if channel.subsystem is not None:
            channel.stderr.write(f"the lab has no subsystem {channel.subsystem}\n".encode())
            channel.exit(127)
            return
        argv = ["/bin/sh", "-c", channel.command] if channel.command is not None else ["/bin/sh"]
        pipe = asyncio.subprocess.PIPE
        child = await self.reaper.start(
            argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, cwd=self.env["HOME"], env=self.env, limit=CHUNK
        )
        work = asyncio.create_task(_serve(channel, child))
        gone = asyncio.create_task(channel.channel.wait_closed())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await _hang_up(child)
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
            self.reaper.ours.discard(child.pid)


async def _serve(channel: asyncssh.SSHServerProcess[bytes], child: asyncio.subprocess.Process) -> None:
    """As sshd: over when the command has ended and both outputs are at their end, whoever holds them open."""
    assert child.stdout and child.stderr
    feed = asyncio.create_task(_feed(channel, child))
    try:
        await asyncio.gather(_drain(child.stdout, channel.stdout), _drain(child.stderr, channel.stderr))
        status = await child.wait()
    finally:
        feed.cancel()
    if status < 0:
        channel.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
    else:
        channel.exit(status)


async def _drain(source: asyncio.StreamReader, sink: Any) -> None:
    while data := await source.read(CHUNK):
        sink.write(data)
        await sink.drain()


async def _feed(channel: asyncssh.SSHServerProcess[bytes], child: asyncio.subprocess.Process) -> None:
    """The client's input to the command, its end included; a signal request goes to the process group."""
    assert child.stdin
    with contextlib.suppress(ConnectionError):  # the command no longer reads
        while True:
            try:
                data = await channel.stdin.read(CHUNK)
            except asyncssh.SignalReceived as received:
                _signal_group(child, getattr(signal, f"SIG{received.signal}", None))
                continue
            except asyncssh.BreakReceived:
                continue
            if not data:
                break
            child.stdin.write(data)
            await child.stdin.drain()
    child.stdin.close()


async def _hang_up(child: asyncio.subprocess.Process) -> None:
    """The channel is gone: so is its process group. What runs in a session of its own lives on."""
    _signal_group(child, signal.SIGHUP)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(child.wait(), HANGUP_S)
    _signal_group(child, signal.SIGKILL)


def _signal_group(child: asyncio.subprocess.Process, number: signal.Signals | None) -> None:
    if number is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)


def _keys(folder: Path) -> tuple[asyncssh.SSHKey, asyncssh.SSHKey]:
    """A host key that only lives in memory, and a client key with its file."""
    host, client = (asyncssh.generate_private_key("ssh-ed25519", comment="runbook lab") for _ in range(2))
    _write_private(folder / "id_ed25519", client.export_private_key())
    return host, client


def _write_private(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)


async def serve(folder: Path) -> None:
    """Build the home, listen, announce, and stay until SIGTERM."""
    me = processes.find(os.getpid())
    assert me is not None
    home = folder / "home"
    lab_home.build(home)
    user = getpass.getuser()
    host_key, client_key = _keys(folder)
    shell = Shell(Reaper(), lab_home.environment(home, user, me.scope))
    listener = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[host_key],
        authorized_client_keys=asyncssh.import_authorized_keys(client_key.export_public_key().decode()),
        process_factory=shell,
        encoding=None,
        allow_pty=False,
        agent_forwarding=False,
    )
    port = listener.get_port()
    known = folder / "known_hosts"
    _write_private(known, f"[127.0.0.1]:{port} ".encode() + host_key.export_public_key())
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    place = {"host": "127.0.0.1", "port": port, "user": user, "key": str(folder / "id_ed25519"), "known_hosts": str(known)}
    announcement = {**place, "pid": me.pid, "start": me.start, "home": str(home)}
    _write_private(folder / "lab.json.new", json.dumps(announcement, indent=2).encode() + b"\n")
    (folder / "lab.json.new").replace(folder / "lab.json")
    await stop.wait()
    listener.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
