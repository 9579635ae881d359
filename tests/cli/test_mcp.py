"""`runbook mcp` as an agent meets it: a real client of the protocol, over stdin and stdout of a real process."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager

import pytest

pytestmark = pytest.mark.slow

SHORT = """runbook: 1
name: two steps
hosts: {box: local}
vars: {word: hello}
steps:
  - id: say
    run: {argv: [echo, "${{ vars.word }}"]}
  - assert: "'hello' in steps.say.stdout"
"""
LONG = """runbook: 1
name: long
hosts: {box: local}
steps:
  - run: {argv: [sleep, '600'], timeout: 11m}
"""


@asynccontextmanager
async def agent(state, *options):
    """A client that is connected to a server of its own."""
    environ = {**os.environ, "XDG_STATE_HOME": str(state)}
    from mcp import Client, StdioServerParameters  # here: importing it takes as long as all the other tests' modules

    words = StdioServerParameters(command=sys.executable, args=["-m", "runbook.cli.main", "mcp", *options], env=environ)
    async with Client(words) as client:
        yield client


async def call(client, tool, **given):
    """A tool's object."""
    found = await client.call_tool(tool, given)
    assert not found.is_error, found.content
    return found.structured_content


def test_a_playbook_is_checked_run_and_shown(own_state, tmp_path):
    (tmp_path / "short.yaml").write_text(SHORT)

    async def story():
        async with agent(own_state) as client:
            assert (await call(client, "validate", playbook=str(tmp_path / "short.yaml")))["exit_code"] == 0
            done = await call(client, "run", playbook=str(tmp_path / "short.yaml"))
            assert (done["exit_code"], done["verdict"]) == (0, "passed")
            other = await call(client, "run", playbook=str(tmp_path / "short.yaml"), variables={"word": "other"})
            assert (other["exit_code"], other["verdict"]) == (1, "failed")
            page = await call(client, "show", run=done["run"], cursor=0)
            assert page["events"][0]["event"] == "run_started" and page["cursor"] > 1
            listed = await call(client, "runs")
            assert {row["run"] for row in listed["items"]} == {done["run"], other["run"]}

    asyncio.run(story())


def test_a_long_run_goes_on_and_can_be_waited_for_and_cancelled(own_state, tmp_path):
    (tmp_path / "long.yaml").write_text(LONG)

    async def story():
        async with agent(own_state) as client:
            begun = await call(client, "run", playbook=str(tmp_path / "long.yaml"), wait_for=2)
            assert (begun["exit_code"], begun["state"], begun["verdict"]) == (75, "running", None)
            assert (await call(client, "wait", run=begun["run"], seconds=1))["exit_code"] == 75
            ended = await call(client, "cancel", run=begun["run"])
            assert (ended["exit_code"], ended["verdict"]) == (130, "interrupted")

    asyncio.run(story())


def test_what_is_wrong_comes_back_as_an_object(own_state, tmp_path):
    (tmp_path / "bad.yaml").write_text("runbook: 1\nsteps: [{rnu: x}]\n")

    async def story():
        async with agent(own_state) as client:
            found = await call(client, "validate", playbook=str(tmp_path / "bad.yaml"))
            assert found["exit_code"] == 2 and found["diagnostics"]
            assert (await call(client, "show", run="no-such-run"))["exit_code"] == 2

    asyncio.run(story())


def test_read_only_offers_nothing_that_changes_a_host(own_state):
    async def story():
        async with agent(own_state, "--read-only") as client:
            tools = (await client.list_tools()).tools
            assert {tool.name for tool in tools} == {"validate", "diagnose", "show", "wait", "runs"}
            assert all(tool.annotations.read_only_hint for tool in tools)

    asyncio.run(story())
