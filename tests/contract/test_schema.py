"""What is generated from the step types is committed and current, and every step type keeps the contract of its struct."""

from __future__ import annotations

import json

import jsonschema
import pytest

from runbook.cli import generate
from runbook.lang.yaml_loader import load
from runbook.playbook.build import load_playbook
from runbook.playbook.keys import BLOCK, COMMON
from runbook.playbook.names import ALWAYS_THERE
from runbook.playbook.reference import describe
from runbook.playbook.shape import type_of
from runbook.steps import TABLE

NAMES = sorted(TABLE)


def test_generated_files_are_current():
    """The message names the command that repairs it."""
    stale = generate.out_of_date()
    assert not stale, "\n".join(stale)


@pytest.mark.slow
def test_the_message_of_a_stale_file_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    assert all(line.endswith("is out of date\nrun: make generate") for line in generate.out_of_date())
    assert generate.write_all() and not generate.out_of_date()


@pytest.mark.parametrize("name", NAMES)
def test_every_step_type_keeps_its_contract(name):
    step = TABLE[name]
    keys = step.__struct_encode_fields__
    assert name == step.TYPE
    assert step.__doc__ and step.RESULTS, "the docstring and the results are the reference page"
    assert step.SHORTHAND is None or step.SHORTHAND in keys
    assert not set(keys) & {*COMMON, *BLOCK}, "a key of every step cannot be a key of one"
    assert not set(step.RESULTS) & (set(ALWAYS_THERE) - {"diagnosis"}), "a result of every step would hide it"
    assert all(key.description for key in describe(step).keys if "." not in key.path), "each key says what it means"
    assert type_of(step).forbid_unknown_fields


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_a_step_that_validates(name):
    """Alone it may refer to steps that are not there; nothing else may be wrong."""
    example = describe(TABLE[name]).example
    indented = "\n".join(f"  {line}" for line in example.splitlines())
    text = f"runbook: 1\nhosts: {{box: local}}\nsteps:\n{indented}\n"
    _, found = load_playbook(text.encode(), "example", table=TABLE, profiles={"generic", "sglang"})
    alone = {"unknown-step-id", "undefined-var", "undeclared-secret", "unknown-playbook"}
    missing_launch = {one.summary for one in found if one.code == "missing-key" and "for which launch" in one.summary}
    assert [one for one in found if one.code not in alone and one.summary not in missing_launch] == []
    document = load(text, "example")[0]
    assert document is not None
    jsonschema.Draft202012Validator(json.loads(generate.schema_text())).validate(document.data)


def test_the_schema_refuses_what_no_playbook_may_say():
    validator = jsonschema.Draft202012Validator(json.loads(generate.schema_text()))
    assert validator.is_valid({"runbook": 1, "steps": [{"run": "true", "timeout": "5m"}]})
    for wrong in (
        {"steps": []},
        {"runbook": 1, "steps": [], "stepps": []},
        {"runbook": 1, "steps": [{"run": "true", "timeout": 300}]},
        {"runbook": 1, "steps": [{"run": {"shel": "true"}}]},
        {"runbook": 1, "steps": [{"block": [{"run": {"shel": "true"}}]}]},
    ):
        assert not validator.is_valid(wrong), wrong
