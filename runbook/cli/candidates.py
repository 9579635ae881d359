"""Which server on a host is meant: the one that was named, the only one, or a list to choose from."""

from __future__ import annotations

import json
import re

import click
import msgspec

from runbook.hosts.base import Host
from runbook.model.diagnostic import Diagnostic
from runbook.model.units import format_duration
from runbook.model.verdict import EXIT_CODES
from runbook.render.diagnostics import as_object, visible
from runbook.steps.servers import GENERIC, Server, Survey

LONGEST = 90


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for: at most one of port, pid and match."""

    port: int | None = None
    pid: int | None = None
    match: str | None = None
    profile: str | None = None

    def check(self) -> None:
        """Raises click.UsageError for what can never be."""
        if sum(one is not None for one in (self.port, self.pid, self.match)) > 1:
            raise click.UsageError("--port, --pid and --match each name a server: give one of them")
        if self.match is not None:
            try:
                re.compile(self.match)
            except re.error as problem:
                raise click.UsageError(f"--match is no regular expression: {problem}") from problem
        if self.profile is not None:
            from runbook.cli.profiles import profiles

            profiles().read(self.profile)


class Unclear(Exception):
    """No server, or more than one, is meant. `found` are those to choose from."""

    def __init__(self, summary: str, hint: str, found: list[Server], code: str = "no-server") -> None:
        super().__init__(summary)
        self.code = code
        self.summary = summary
        self.hint = hint
        self.found = found

    def tell(self, target: str, as_json: bool) -> int:
        """Say so on the right stream; answers the exit code."""
        problem = Diagnostic(code=self.code, summary=self.summary, hint=self.hint)
        if as_json:
            rows = [msgspec.to_builtins(server) for server in self.found]
            click.echo(json.dumps({**as_object([problem]), "candidates": rows}, ensure_ascii=False))
        click.echo(f"{target}: {self.summary}", err=True)
        for line in rows_of(self.found):
            click.echo(line, err=True)
        click.echo(f"hint: {self.hint}", err=True)
        return EXIT_CODES["invalid"]


def choose(host: Host, wish: Wish) -> Server:
    """The server that is meant. Raises Unclear, and HostError for the host."""
    from runbook.cli.profiles import profiles

    survey = Survey(host, profiles().all())
    if wish.pid is not None:
        one = survey.of_pid(wish.pid)
        if one is None:
            raise Unclear(f"there is no process {wish.pid}", "it has ended, or this user may not see it", survey.candidates())
        return one
    if wish.port is None and wish.match is None:
        return _only(survey.candidates())
    found = survey.on_port(wish.port) if wish.port else survey.matching(wish.match or "")
    if len(found) == 1:
        return found[0]
    if found:
        raise Unclear(f"{len(found)} servers fit", "name one: `--pid N`", found, "which-server")
    if wish.port and survey.hidden_owner(wish.port):
        raise Unclear(f"port {wish.port} is held by a process that is not visible to this user", "look as its user or as root", [])
    what = f"nothing listens on port {wish.port}, and no command line names it" if wish.port else f"no process matches `{wish.match}`"
    raise Unclear(what, "name it by `--pid N`", survey.candidates())


def _only(found: list[Server]) -> Server:
    """The one that is an engine's for certain; what merely listens is listed and never taken by itself."""
    known = [one for one in found if one.profile != GENERIC]
    if len(known) == 1:
        return known[0]
    if not found:
        raise Unclear("no server was found", "name its main process: `--pid N`", [])
    raise Unclear("which server is meant?", "name one: `--pid N` or `--port N`", found, "which-server")


def rows_of(found: list[Server]) -> list[str]:
    """A table for people."""
    if not found:
        return []
    head = ("PID", "PROFILE", "PORT", "UP", "USER", "COMMAND")
    rows = [
        (
            str(one.pid),
            one.profile,
            ",".join(map(str, one.ports)) or "-",
            format_duration(one.age_s),
            one.user,
            visible((one.command or one.title)[:LONGEST]),
        )
        for one in found
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)]
