"""collect: a bundle on the author's word."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runbook.hosts.base import Host, ProcessId
from runbook.onhost import collect as onhost
from runbook.steps.bundle import ITEMS, OF_THE_HOST
from runbook.steps.collect import Collect
from runbook.steps.launch import Launch
from tests.diagnose.stories import GENERIC
from tests.support.context import LocalContext


@pytest.fixture
def ctx(local_host: Host, tmp_path: Path) -> Iterator[LocalContext]:
    """A run with one launched server that waits."""
    found = LocalContext(local_host, tmp_path, profiles={"generic": GENERIC})
    program = "import time\ndef waits_here(): time.sleep(60)\nprint('up', flush=True); waits_here()"
    found.at("server").do(Launch(command=[sys.executable, "-c", program]))
    yield found
    launched = found.launched("server")
    assert launched is not None
    local_host.kill([ProcessId(launched.state.pid, launched.state.start)], ["KILL 5s"])
    local_host.retire(found.run.id)


def test_the_items_are_those_of_the_host() -> None:
    assert set(ITEMS) == set(onhost.ITEMS) and set(OF_THE_HOST) < set(ITEMS)


@pytest.mark.slow
def test_the_only_server_is_meant_and_files_and_index_tell_of_it(ctx: LocalContext, tmp_path: Path) -> None:
    result = ctx.at("look").do(Collect(what=["stacks", "log", "ras"]))
    assert result.verdict == "passed" and result.reason.startswith("2 of 3 items, ")
    names = {row["item"]: row["file"] for row in result.fields["files"]}
    assert {item: Path(file).name for item, file in names.items()} == {"stacks": "stacks.txt", "log": "log.txt", "index": "index.json"}
    assert "waits_here (<string>:2)" in (tmp_path / names["stacks"]).read_text() and (tmp_path / names["log"]).read_text() == "up\n"
    told = json.loads((tmp_path / names["index"]).read_text())
    assert told["server"] == "server" and [row["status"] for row in told["items"]] == ["taken", "taken", "absent"]
    assert result.fields["index"][2]["item"] == "ras" and result.fields["index"][2]["reason"]


def test_what_needs_a_server_is_undecided_without_one(local_host: Host, tmp_path: Path) -> None:
    ctx = LocalContext(local_host, tmp_path)
    assert ctx.do(Collect(what=["stacks"])).verdict == "undecided"
    assert ctx.do(Collect(server="up", what=["stacks"])).verdict == "undecided"
    result = ctx.do(Collect(what=["stacks", "disk"]))
    assert result.verdict == "passed" and [row["item"] for row in result.fields["index"]] == ["disk"]


def test_check_mode_only_says_what_it_would_do(local_host: Host, tmp_path: Path) -> None:
    result = LocalContext(local_host, tmp_path, check_mode=True).do(Collect(server="s", what=["gpu"]))
    assert result.reason == "would collect gpu of server `s`, changing nothing" and not list(tmp_path.iterdir())
