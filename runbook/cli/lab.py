"""`runbook lab`: start, stop and look at the embedded GPU host."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator

import click


@click.group(name="lab")
def command() -> None:
    """The embedded GPU host: a loopback SSH server with two stand-in GPUs and a small real inference server.

    A playbook whose host is `lab` starts it by itself.
    """


@command.command()
@click.option("--leftover", is_flag=True, help="Also start a forgotten server that holds a port and GPU memory.")
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True, help="Port of the forgotten server.")
@click.option("--fault", default="", metavar="NAME", help="Servers started on the lab from now on have this fault; `none` for none.")
def up(leftover: bool, port: int, fault: str) -> None:
    """Start the lab unless it is up.

    Faults that hang: deadlock, rank_missing, rank_stopped, collective_mismatch, livelock, stale_lock, log_pipe. That are slow and
    work: slow_load, slow_compile, long_prefill. Those of ranks take a server with `--tp-size 4`.
    """
    from runbook.lab import control

    with _errors():
        lab = control.up()
        click.echo(f"the lab is up: {shlex.join(control.ssh_argv(lab))}", err=True)
        if fault:
            control.set_fault(lab, fault)
            click.echo(f"its next servers have the fault {fault}" if fault != "none" else "its next servers have no fault", err=True)
        if leftover:
            from runbook.lab import leftover as forgotten

            forgotten.start(lab, port)
            click.echo(f"a leftover server holds port {port} and GPU memory", err=True)


@command.command()
def down() -> None:
    """End the lab and everything that runs on it."""
    from runbook.lab import control

    with _errors():
        ended = control.down()
    for name in ended:
        click.echo(f"ended {name}", err=True)
    click.echo("the lab is down" if ended else "the lab was not up", err=True)


@command.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def status(as_json: bool) -> None:
    """Say whether the lab is up, how to log in, and what runs on it. Exit 1 when it is down."""
    from runbook.lab import control

    state = control.status()
    if as_json:
        click.echo(json.dumps(state))
    elif state["state"] == "down":
        click.echo("the lab is down; `runbook lab up` starts it")
    else:
        click.echo(f"the lab is up, pid {state['pid']}, home {state['home']}")
        click.echo(f"log in: {shlex.join(state['ssh'])}")
        if state["fault"]:
            click.echo(f"its next servers have the fault {state['fault']}")
        for process in state["processes"]:
            click.echo(f"  {process['pid']:>8}  {process['title']}")
    if state["state"] == "down":
        raise SystemExit(1)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """A LabError as a sentence and a hint."""
    from runbook.lab.control import LabError

    try:
        yield
    except LabError as error:
        click.echo(f"error: {error.summary}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        raise SystemExit(error.exit_code) from None
