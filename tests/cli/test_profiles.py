"""The search path of engine profiles, and `validate` on a profile's own file."""

from __future__ import annotations

import json
from pathlib import Path

import click
import jsonschema
import pytest

from runbook.cli.main import exit_code
from runbook.cli.profiles import PACKAGED, profiles
from runbook.lang.yaml_loader import load

BOOK = "runbook: 1\nhosts: {box: local}\nsteps:\n  - {id: server, launch: {command: [./server], profile: mine}}\n"


@pytest.fixture
def work(tmp_path: Path, monkeypatch) -> Path:
    """A folder with a playbook, and an empty configuration of the user's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.yaml").write_text(BOOK)
    return tmp_path


def put(folder: Path, text: str, name: str = "mine") -> Path:
    """A profile in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


def test_a_profile_beside_the_playbook_is_found_and_the_users_own_wins(work, capsys):
    assert exit_code(["validate", "book.yaml"]) == 2
    assert "no engine profile is called `mine`" in capsys.readouterr().err
    put(work / "profiles", "profile: mine\nready: beside\n")
    assert exit_code(["validate", "book.yaml"]) == 0
    assert profiles("book.yaml").read("mine").ready == "beside"
    put(work / "config" / "runbook" / "profiles", "profile: mine\nready: own\n")
    assert profiles("book.yaml").read("mine").ready == "own"


def test_the_users_own_profile_of_an_engine_extends_the_packaged_one(work):
    put(work / "config" / "runbook" / "profiles", "profile: sglang\nextends: sglang\nphases: [{id: weights, stall: 1h}]\n", "sglang")
    found = profiles().read("sglang")
    assert next(one for one in found.phases if one.id == "weights").stall == 3600 and found.health.body == "empty"


def test_the_profile_that_tells_its_processes_apart_is_tried_before_its_base(work):
    put(work / "config" / "runbook" / "profiles", "profile: aa\nextends: sglang\n", "aa")
    put(work / "config" / "runbook" / "profiles", "profile: zz\nextends: sglang\nprocesses: {main: my_fork}\n", "zz")
    order = [one.profile for one in profiles().all()]
    assert order.index("lab") < order.index("sglang") > order.index("zz") and order.index("aa") > order.index("sglang")


def test_a_broken_profile_is_a_usage_error_with_its_place(work):
    path = put(work / "profiles", "profile: mine\nnoise: ['(']\n")
    with pytest.raises(click.UsageError, match=rf"{path.name}:2:9: error\[regex\]"):
        profiles("book.yaml").read("mine")
    with pytest.raises(click.UsageError, match=r"no profile `yours`; there are: .*sglang"):
        profiles("book.yaml").read("yours")
    assert profiles("book.yaml").known("mine") is profiles("book.yaml").known("yours") is None


def test_validate_takes_a_profile_and_tells_all_its_mistakes(work, capsys):
    path = put(work / "profiles", "profile: mine\nextends: sglang\nheath: {}\nnoise: ['.*']\n")
    assert exit_code(["validate", "--json", str(path), "book.yaml"]) == 2
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    assert [(one["code"], one["line"]) for one in found] == [("unknown-key", 3), ("matches-all", 4)]


def test_every_packaged_profile_validates_and_fits_the_published_schema(work, capsys):
    files = sorted(PACKAGED.glob("*.yaml"))
    assert exit_code(["validate", *map(str, files)]) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert exit_code(["schema", "--profile"]) == 0
    validator = jsonschema.Draft202012Validator(json.loads(capsys.readouterr().out))
    for path in files:
        document = load(path.read_bytes(), path.name)[0]
        assert document is not None and validator.is_valid(document.data), path.name
    for wrong in ({}, {"profile": "x", "heath": {}}, {"profile": "x", "phases": [{"id": "a", "stall": 5}]}):
        assert not validator.is_valid(wrong), wrong


@pytest.mark.parametrize("command", ["validate", "plan"])
def test_a_warning_is_shown_and_leaves_the_exit_code_alone(work, capsys, command):
    steps = "  - {id: server, launch: {command: [./s], profile: sglang}}\n  - wait_healthy: {server: server, expect: {body: ok}}\n"
    (work / "book.yaml").write_text(f"runbook: 1\nhosts: {{box: local}}\nsteps:\n{steps}")
    assert exit_code([command, "book.yaml"]) == 0
    said = capsys.readouterr().err
    assert "book.yaml:5:51: warning[never-matches]: `/health` of sglang answers with an empty body" in said and "hint: " in said
