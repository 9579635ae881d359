"""A role with several targets: side by side, each with its own end, the worst of them counts.

The targets are places on this machine, each with a name in hosts.yaml and a state folder of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from runbook.model.event import HostConnected, StepEnded, StepStarted
from tests.e2e.cli import Outcome, runbook
from tests.steps.serving import SMALL_SERVER, free_port
from tests.support.processes import is_gone

pytestmark = pytest.mark.e2e
MEET = """
touch "$MEET/$SIDE"
for try in $(seq 100); do
  if [ "$(ls "$MEET" | wc -l)" = 2 ]; then echo "$SIDE met"; exit 0; fi
  sleep 0.05
done
echo "$SIDE is alone"; exit 1
"""
"""Passes only where both are under way at the same time."""


class Pair:
    """Hosts `left` and `right`, and whatever else a test names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.meet = folder / "meet"
        self.meet.mkdir()
        self.hosts: dict[str, dict[str, Any]] = {side: self.place(side) for side in ("left", "right")}

    def place(self, side: str, **more: Any) -> dict[str, Any]:
        """A place on this machine whose processes know which one it is."""
        (self.folder / side).mkdir()
        (self.folder / side / "model.py").write_text("value = 1\n")
        via = ["env", f"SIDE={side}", f"MEET={self.meet}", f"XDG_STATE_HOME={self.folder / side / 'state'}"]
        return {"host": "local", "via": via, "vars": {"folder": str(self.folder / side)}, **more}

    def run(self, targets: list[str], *steps: dict[str, Any], always: tuple[dict[str, Any], ...] = (), **vars: Any) -> Outcome:
        """Run these steps on the role `boxes`."""
        (self.folder / "hosts.yaml").write_text(yaml.safe_dump({"hosts": self.hosts}))
        book = {"runbook": 1, "name": "Pair", "hosts": {"boxes": targets}, "vars": vars, "steps": list(steps), "always": list(always)}
        (self.folder / "book.yaml").write_text(json.dumps(book))
        return runbook("run", "book.yaml", "--json", state=self.folder / "runs", cwd=self.folder)

    def left_on_hosts(self) -> list[Path]:
        """Files of runs in the hosts' state folders."""
        return [path for side in self.hosts for path in (self.folder / side / "state").rglob("*") if path.is_file()]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """Two hosts."""
    return Pair(tmp_path)


def ends(outcome: Outcome, step: str) -> dict[str, StepEnded]:
    """How a step ended on each host."""
    return {event.host: event for event in outcome.events if isinstance(event, StepEnded) and event.step == step}


def test_a_step_runs_on_all_targets_at_once_and_ends_when_all_have_ended(pair):
    after = [
        {"that": "steps.both.hosts['left'].stdout == 'left met\\n' and steps.both.hosts['right'].stdout == 'right met\\n'"},
        {"that": "all(steps.both.hosts[h.name].exit == 0 for h in hosts.boxes)"},
        {"that": "[h.name for h in hosts.boxes] == ['left', 'right']"},
    ]
    outcome = pair.run(["left", "right"], {"id": "both", "run": {"shell": MEET, "timeout": "15s"}}, {"id": "after", "assert": after})
    assert outcome.code == 0, outcome.err
    events = outcome.events
    started = [event for event in events if isinstance(event, StepStarted) and event.step == "both"]
    ended = list(ends(outcome, "both").values())
    assert {event.host for event in started} == {event.host for event in ended} == {"left", "right"}
    assert max(event.t for event in started) < min(event.t for event in ended), "they overlap"
    begun = next(event for event in events if isinstance(event, StepStarted) and event.step == "after")
    assert begun.n > max(event.n for event in ended), "a barrier"
    assert {event.host for event in events if isinstance(event, HostConnected)} == {"left", "right"}


def test_a_field_of_a_step_on_several_hosts_without_its_host_is_an_error_before_anything_runs(pair):
    outcome = pair.run(["left", "right"], {"id": "both", "run": f"touch {pair.meet}/ran"}, {"assert": "steps.both.exit == 0"})
    assert outcome.code == 2
    assert "hosts[" in outcome.json["diagnostics"][0]["hint"] and not (pair.meet / "ran").exists()


def test_the_worst_verdict_counts_and_the_others_are_told(pair):
    pair.hosts["gone"] = pair.place("gone", python="/no/such/python")
    work = {"id": "work", "run": {"shell": f'touch "{pair.meet}/$SIDE"; test "$SIDE" = left'}}
    outcome = pair.run(["gone", "left", "right"], work, {"run": f"touch {pair.meet}/next"})
    assert outcome.code == 1, outcome.err
    assert outcome.json["verdict"] == "failed" and "`work` (run) on right: " in outcome.json["reason"]
    assert {host: end.verdict for host, end in ends(outcome, "work").items()} == {
        "gone": "unreachable",
        "left": "passed",
        "right": "failed",
    }
    assert sorted(path.name for path in pair.meet.iterdir()) == ["left", "right"], "both did their work, and nothing came after"


def test_a_host_that_cannot_be_reached_does_not_stop_the_others(pair):
    pair.hosts["gone"] = pair.place("gone", python="/no/such/python")
    work = {"id": "work", "run": f'touch "{pair.meet}/$SIDE"', "ignore_errors": ["unreachable"]}
    told = {"assert": "steps.work.hosts['gone'].verdict == 'unreachable' and steps.work.hosts['left'].exit == 0"}
    outcome = pair.run(["gone", "left"], work, told)
    assert outcome.code == 0, outcome.err
    assert (pair.meet / "left").exists()


def test_patches_and_servers_of_several_hosts_are_each_their_own_and_all_are_cleaned_up(pair):
    """Two servers, two files, one step each; the variables of hosts.yaml and `host.index` tell them apart."""
    ports = [free_port(), free_port()]
    command = [sys.executable, str(SMALL_SERVER), "--port", "${{ vars.ports[host.index] }}", "--load", "0.2"]
    outcome = pair.run(
        ["left", "right"],
        {"id": "taps", "patch": {"file": "${{ vars.folder }}/model.py", "replace": [{"find": "1", "with": "2"}]}},
        {"id": "server", "launch": {"command": command, "port": "${{ vars.ports[host.index] }}", "profile": "sglang", "settle": "100ms"}},
        {"id": "up", "wait_healthy": {"server": "server", "timeout": "30s"}},
        {"id": "look", "run": {"argv": ["cat", "${{ vars.folder }}/model.py"]}},
        {"assert": "all('value = 2' in steps.look.hosts[h.name].stdout for h in hosts.boxes)"},
        {"assert": "steps.server.hosts['left'].pid != steps.server.hosts['right'].pid"},
        ports=ports,
    )
    assert outcome.code == 0, outcome.err
    launched = ends(outcome, "server")
    assert [launched[side].result["port"] for side in ("left", "right")] == ports
    assert all(is_gone(end.result["pid"]) for end in launched.values())
    assert [(pair.folder / side / "model.py").read_text() for side in ("left", "right")] == ["value = 1\n"] * 2
    assert outcome.json["left_behind"] == outcome.json["findings"] == [] and pair.left_on_hosts() == []
    logs = sorted(path.name for path in Path(outcome.json["transcript"]["dir"]).glob("evidence/server/*"))
    assert len(logs) == 2 and all(side in " ".join(logs) for side in ("left", "right")), "one log each"


def test_a_suspended_run_finds_its_hosts_again_from_another_folder(pair, tmp_path_factory):
    command = [sys.executable, str(SMALL_SERVER), "--port", str(free_port()), "--load", "60"]
    outcome = pair.run(
        ["left"],
        {"id": "server", "launch": {"command": command, "profile": "sglang", "settle": "100ms"}},
        {"wait_healthy": {"server": "server", "timeout": "5s"}},
    )
    assert outcome.code == 4, outcome.err
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    cancelled = runbook("cancel", outcome.json["run"], "--json", state=pair.folder / "runs", cwd=elsewhere)
    assert cancelled.code == 0, cancelled.err
    assert cancelled.json["left_behind"] == [] and pair.left_on_hosts() == []


def test_long_outputs_of_several_hosts_and_items_are_each_kept(pair):
    outcome = pair.run(
        ["left", "right"],
        {"id": "many", "loop": ["a", "b"], "run": 'n=0; while [ $n -lt 600 ]; do echo "$SIDE" ${{ item }}; n=$((n+1)); done'},
    )
    assert outcome.code == 0, outcome.err
    kept = {path.name: path.read_text().split("\n")[0] for path in Path(outcome.json["transcript"]["dir"]).glob("evidence/many/*")}
    sides = [(side, number, item) for side in ("left", "right") for number, item in enumerate("ab")]
    assert kept == {f"{side}-{number}-stdout.txt": f"{side} {item}" for side, number, item in sides}
