"""What `runbook doctor` finds out about a host, as its answer has it."""

from __future__ import annotations

from typing import Union

import msgspec

from runbook.model.remote import Lease


class StateFolder(msgspec.Struct, frozen=True, kw_only=True):
    """The folder of runbook's own files there. `problem` says why it cannot be used; sizes are bytes."""

    path: str
    problem: str
    free: int
    total: int
    free_inodes: Union[int, None]


class LiveLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """A process that a run launched and that still lives."""

    id: str
    pid: int
    title: str


class RunLeft(msgspec.Struct, frozen=True, kw_only=True):
    """A run with files on the host. `keeper`: whether its keeper lives; `patched`: files that still carry its patch."""

    run: str
    path: str
    keeper: bool
    live: tuple[LiveLaunch, ...] = ()
    patched: tuple[str, ...] = ()
    problem: str = ""


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What the account may see there, in words why not (empty: it may), and what earlier runs left."""

    root: bool
    ptrace: str
    others: str
    kernel_log: str
    py_spy: str
    gpu_tool: str
    gpu_devices: int
    state: StateFolder
    leases: tuple[Lease, ...] = ()
    leases_alone: str = ""
    """Why leases of other accounts cannot be seen here."""
    runs: tuple[RunLeft, ...] = ()


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A stage of getting in: resolve, tcp, banner, key exchange, host key, auth, channel, helper. `problem`: it ended there."""

    stage: str
    seconds: float
    problem: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know about the host, with what to do. `breaks`: a run that needs it will not get through."""

    code: str
    breaks: bool
    text: str
    fix: str


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer. `state`: healthy, findings (one that breaks a run), unreachable. `gpus`: memory of each, MiB used of MiB."""

    host: str
    address: str = ""
    state: str = "healthy"
    exit_code: int = 0
    stages: tuple[Stage, ...] = ()
    ssh: dict[str, str] = {}
    """What ssh_config says, as far as it is used."""
    not_honoured: tuple[str, ...] = ()
    account: str = ""
    python: str = ""
    clock_offset_s: Union[float, None] = None
    clock_error_s: Union[float, None] = None
    examined: Union[Examined, None] = None
    gpus: tuple[str, ...] = ()
    gpu_problem: str = ""
    findings: tuple[Finding, ...] = ()
