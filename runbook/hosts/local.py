"""This machine as a host: the helper as a child process, with or without a `via:` prefix."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from runbook.hosts.base import ConnectFailed, Host, NoPython
from runbook.hosts.bundle import helper_argv
from runbook.hosts.http import RelayHttp
from runbook.hosts.session import PYTHON_HINT, Session
from runbook.hosts.via import ends_with_link
from runbook.model.playbook import Protect

STDERR_KEPT = 8192


class ProcessChannel:
    """A `Channel` over the pipes of a child process in a session of its own: Ctrl-C on our terminal does not reach it."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Raises OSError when it cannot be started. `env` is added to ours."""
        self._process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **env} if env else None,
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._to, self._from = self._process.stdin, self._process.stdout.fileno()
        self._stderr = bytearray()
        self._drain = threading.Thread(target=self._keep_stderr, args=(self._process.stderr.fileno(),), name="helper stderr", daemon=True)
        self._drain.start()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def _keep_stderr(self, fd: int) -> None:
        while data := os.read(fd, 4096):
            self._stderr += data
            del self._stderr[:-STDERR_KEPT]

    def send(self, data: bytes) -> None:
        """Write all of it (see `Channel`)."""
        view = memoryview(data)
        try:
            while view:
                view = view[self._to.write(view) :]
        except ValueError:
            raise EOFError("it was closed") from None

    def recv(self, most: int) -> bytes:
        """Some bytes, b"" at the end."""
        return os.read(self._from, most)

    def ending(self) -> str:
        """The last of stderr and how the child ended."""
        try:
            status = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "it closed its output and still runs"
        self._drain.join(1.0)
        said = bytes(self._stderr).decode("utf-8", "backslashreplace").strip()
        how = f"exit {status}" if status >= 0 else f"killed by signal {-status}"
        return f"{said[-1000:]} ({how})" if said else how

    def close(self) -> None:
        """End the child's input, give it a moment, then kill it. Idempotent."""
        self._to.close()
        try:
            self._process.wait(3.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5.0)


def connect_local(
    name: str = "local",
    *,
    via: Sequence[str] | str = (),
    python: str = "",
    env: Mapping[str, str] | None = None,
    gpus: list[int] | None = None,
    timeout_s: float = 30.0,
    protect: Sequence[Protect] = (),
) -> Host:
    """Start a helper on this machine, behind `via` if given. Raises Unreachable."""
    if not os.path.isdir("/proc/self"):
        raise ConnectFailed("`local` needs /proc to see processes, which this system does not have", "use an SSH target", stage="helper")
    argv = helper_argv(via, os.path.expanduser(python) or ("" if via else sys.executable))
    try:
        channel = ProcessChannel(argv, env)
    except OSError as error:
        hint = f"check `via:`: `{argv[0]}` is to be found on this machine" if via else PYTHON_HINT
        raise NoPython(f"the helper did not start on {name}: `{argv[0]}`: {error.strerror}", hint) from error
    try:
        session = Session(channel, timeout_s=timeout_s, what=name, protect=protect)
    except NoPython as error:
        if via:
            error.hint = f"check that `via:` works: `{shlex.join([*argv[:-3], 'true'])}`; or {error.hint}"
        raise
    mortal = ends_with_link(argv[:-3])
    return Host(name, session.facts.hostname, session, session.facts, RelayHttp(session), gpus, ends_with_link=mortal)
