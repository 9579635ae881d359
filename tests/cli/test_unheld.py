"""A launch where nothing outlives the connection: refused before a host is touched, unless the run may never come to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runbook.cli.main import exit_code

VIA = "srun --jobid=4711 --overlap"
LAUNCH = "{id: server, launch: {command: [sleep, 60]}}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_it_is_refused_by_name_whichever_file_says_how_to_get_in(here, capsys):
    (here / "hosts.yaml").write_text(f"hosts: {{node: {{host: local, via: {VIA}}}}}\n")
    for hosts in ("node", f"{{target: other, via: {VIA}}}"):
        (here / "p.yaml").write_text(f"runbook: 1\nhosts: {{node: {hosts}}}\nsteps:\n  - {{run: touch it}}\n  - {LAUNCH}\n")
        assert exit_code(["run", "p.yaml", "--json"]) == 8
        answer = json.loads(capsys.readouterr().out)
        (found,) = answer["diagnostics"]
        assert (answer["verdict"], found["code"], found["line"]) == ("refused", "ends-with-link", 5)
        assert "`server` (launch)" in found["summary"] and VIA in found["summary"] and "attach" in found["hint"]
        assert exit_code(["validate", "p.yaml"]) == 0
        assert "p.yaml:5:5: warning[ends-with-link]" in capsys.readouterr().err
    assert not (here / "state").exists() and not (here / "it").exists()


@pytest.mark.parametrize(
    ("step", "options"),
    [
        ("{id: server, when: false, launch: {command: [sleep, 60]}}", []),
        (f"{{block: [{{run: 'true'}}], rescue: [{LAUNCH}]}}", []),
        ("{id: server, tags: [later], launch: {command: [sleep, 60]}}", ["--skip-tags", "later"]),
    ],
    ids=["when", "rescue", "left_out"],
)
def test_a_launch_that_the_run_may_never_come_to_stops_nothing(here, step, options):
    (here / "srun").write_text('#!/bin/sh\nshift 3\nexec "$@"\n')
    (here / "srun").chmod(0o755)
    (here / "hosts.yaml").write_text(f"hosts: {{node: {{host: local, via: {here}/{VIA}}}}}\n")
    (here / "p.yaml").write_text(f"runbook: 1\nhosts: {{node: node}}\nsteps:\n  - {{run: touch it}}\n  - {step}\n")
    assert exit_code(["run", "p.yaml", *options]) == 0
