"""`runbook mcp`: the commands as tools of the Model Context Protocol, over stdin and stdout."""

from __future__ import annotations

import click

from runbook import __version__
from runbook.cli import mcp_tools
from runbook.model import extras

INSTRUCTIONS = (
    "runbook runs playbooks of debugging steps on hosts with GPUs and answers with a verdict and its evidence."
    " Verdicts: passed, failed, hung, slow, crashed, unreachable, wrong_check, wrong_server, invalid_experiment, resource_held, refused,"
    " undecided, interrupted. `undecided` is an answer: it says what could not be seen and what to look at next."
    " A missing debug line is evidence only where a step says not_reached."
    " Every tool answers within a minute; exit_code 75 means that a run goes on: call `wait` with its id."
)


@click.command()
@click.option("--read-only", is_flag=True, help="Offer only the tools that change nothing: no run, cancel, restore.")
def command(read_only: bool) -> None:
    """Serve the commands as tools to an agent, over stdin and stdout (Model Context Protocol).

    Needs the extra `mcp`. Each tool is one of the commands with --json, bounded to a minute.
    """
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError as problem:
        raise click.UsageError(f"needs the extra `mcp`: {extras.how('mcp')}") from problem
    server = MCPServer("runbook", instructions=INSTRUCTIONS, version=__version__)
    for tool in mcp_tools.LOOKING:
        server.add_tool(tool, annotations=ToolAnnotations(read_only_hint=True))
    for tool in () if read_only else mcp_tools.ACTING:
        server.add_tool(tool, annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True))
    server.run()
