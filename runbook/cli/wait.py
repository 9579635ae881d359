"""`runbook wait`: the answer of a run that another process does."""

from __future__ import annotations

import click

from runbook.cli import store
from runbook.cli.attend import attend
from runbook.cli.params import DURATION
from runbook.model.clock import SystemClock


@click.command()
@click.argument("run")
@click.option(
    "--for", "for_s", type=DURATION, default=float("inf"), help="At most this long; exit 75 when the run still goes on [no limit]."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(run: str, for_s: float, as_json: bool) -> int:
    """Wait for RUN (an id, its beginning, `last`, or a folder); answer and exit as the run itself does.

    A run that has ended, is suspended, or has lost its controller (exit 9) is answered at once. Ctrl-C leaves the run alone.
    """
    return attend(store.find_run(run), SystemClock(), as_json=as_json, for_s=for_s)
