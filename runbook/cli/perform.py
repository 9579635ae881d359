"""What `run` and `cancel` share: the runtime, the connector, the second Ctrl-C."""

from __future__ import annotations

import functools
import getpass
import importlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from runbook.cli import live, store
from runbook.cli.profiles import profiles
from runbook.engine.journal import Journal, JournalError, load_events
from runbook.engine.redact import Mask
from runbook.engine.runtime import Options, Runtime
from runbook.hosts.base import CancelToken, ConnectFailed, Host
from runbook.model.clock import Clock
from runbook.model.playbook import Playbook, Target
from runbook.model.usual import Kin, MeasuredStart
from runbook.steps import TABLE


def runtime(
    playbook: Playbook, options: Options, secrets: Mapping[str, str], clock: Clock, *, first: int = 0, cwd: str | None = None
) -> Runtime:
    """A runtime over real hosts; `cwd` is where hosts.yaml is looked for. A folder that cannot be written is a usage error."""
    try:
        journal = Journal(Path(options.dir), clock, Mask(secrets), first=first)
    except JournalError as problem:
        raise click.UsageError(f"{problem}: name another folder with --out, or set XDG_STATE_HOME") from problem
    journal.follow(live.let_go_of_terminal)
    (journal.folder / store.ANSWER).unlink(missing_ok=True)
    known = profiles(str(Path(cwd or "") / playbook.file))
    return Runtime(
        playbook=playbook,
        options=options,
        journal=journal,
        table=TABLE,
        profile=known.read,
        profiles=known.all,
        connect=functools.partial(connect, clock, Path(cwd) if cwd else None),
        secrets=secrets,
        environ=os.environ,
        clock=clock,
        tensor_diff=functools.partial(tensor_diff, Path(options.dir)),
        earlier=earlier,
    )


def earlier(kin: Kin) -> Sequence[MeasuredStart]:
    """What runs of the same kind took before."""
    from runbook.engine import history

    return history.earlier(store.run_folders(), kin)


def tensor_diff(folder: Path, a: str, b: str, atol: float, rtol: float) -> Any:
    """Behind the expression of that name; what reads tensors is imported when one is asked for."""
    from runbook.cli.tensor_diff import in_run_folder

    return in_run_folder(folder, a, b, atol, rtol)


def connect(clock: Clock, cwd: Path | None, target: Target, cancel: CancelToken, note: Callable[[str], None]) -> Host:
    """Connect to a target; the lab is started first when it is one. `note` gets what a user should know. Raises Unreachable."""
    if target.target == "lab":
        from runbook.lab.control import LabError, ensure_up

        try:
            ensure_up()
        except LabError as problem:
            raise ConnectFailed(problem.summary, problem.hint, stage="lab") from problem
    from runbook.hosts.connect import connect as connect_host

    threading.Thread(target=_load_the_end, args=(target.target == "local",), daemon=True).start()
    return connect_host(target, clock=clock, cancel=cancel, cwd=cwd, note=note)


def _load_the_end(local: bool) -> None:
    """Import what a run needs at its end while a host is being reached; the SSH library first, which that waits for."""
    for module in (() if local else ("runbook.hosts.ssh",)) + ("runbook.cli.finish",):
        importlib.import_module(module)


def controller() -> dict[str, Any]:
    """Who runs this run, and where: enough to tell later whether it still lives, and to find its hosts again."""
    from runbook.hosts.inventory import working_folder

    stat = Path("/proc/self/stat")
    return {
        "host": socket.gethostname(),
        "user": getpass.getuser(),
        "cwd": working_folder(),
        "pid": os.getpid(),
        "start": int(stat.read_text().rpartition(")")[2].split()[19]) if stat.exists() else None,
        "boot_id": store.boot_id(),
    }


def leave(options: Options, as_json: bool, left: list[str], code: int) -> None:
    """The second Ctrl-C or SIGTERM: say what is left, and go."""
    how = f"runbook cancel {options.run}"
    click.echo(f"left at once; nothing more is cleaned up. `{how}` does it.", err=True)
    for line in left:
        click.echo(f"left behind: {line}", err=True)
    if as_json:
        from runbook.render.summary import summary

        answer = summary(load_events(Path(options.dir)), options.dir, {})
        click.echo(json.dumps({**answer, "exit_code": code, "left_behind": left, "next": [how]}, ensure_ascii=False))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
