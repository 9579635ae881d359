"""The published schema in the YAML language server that editors run: what it offers while somebody types, and where it marks mistakes.

The server is a real one, spoken to over its own protocol. What a schema cannot know (names of steps, variables, expressions) is for
`validate`: `SCHEMA_SEES` says which faults of a broken playbook an editor must mark, by their number in tests/data/broken/expected.yaml.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from runbook.lang.yaml_loader import load
from runbook.playbook.keys import COMMON, TOP
from runbook.steps import TABLE
from tests.support.language_server import language_server

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
BROKEN = ROOT / "tests" / "data" / "broken"
EXPECTED = yaml.safe_load((BROKEN / "expected.yaml").read_text())
SCHEMA_SEES = {
    "misspelt_step_types": [1, 2, 3, 4, 5],
    "misspelt_keys": [1, 2, 3, 4, 5],
    "habits_of_ansible": [1, 2, 3, 4],
    "habits_of_github_actions": [1, 2, 3, 4],
    "bare_numbers": [1, 2, 3, 4, 5],
    "words_that_are_not_allowed": [2, 3, 4, 5],
    "retry_and_loop_misused": [1, 2, 3, 4],
    "the_wrong_kind_of_value": [1, 2, 3, 4, 5],
    "the_same_twice": [1, 3],
    "probes_that_cannot_be": [1, 3, 5],
}
STEPS = "runbook: 1\nhosts: {gpu: local}\nsteps:\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    try:
        with language_server(ROOT / "schemas" / "playbook.schema.json", tmp_path_factory.mktemp("editor")) as running:
            yield running
    except LookupError as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(reason))


def labels(items):
    return {item["label"] for item in items}


@pytest.mark.parametrize("name", SCHEMA_SEES)
def test_an_editor_marks_the_places_that_validate_names(server, name):
    found = server.open(name, (BROKEN / f"{name}.yaml").read_text())
    places = {f"{one['range']['start']['line'] + 1}:{one['range']['start']['character'] + 1}" for one in found}
    faults = EXPECTED[name]["faults"]
    assert places == {faults[number - 1]["at"] for number in SCHEMA_SEES[name]}, found
    assert not [one["message"] for one in found if "\\s" in one["message"]], "a mistake is told in words, not as a pattern"


def test_the_playbooks_that_come_along_are_without_marks(server):
    for path in sorted((ROOT / "playbooks").glob("**/*.yaml")):
        text = path.read_text()
        if "\nrunbook: 1" in text:
            assert server.open(path.stem, text.split("\n", 1)[1]) == [], path


def test_all_keys_of_a_playbook_are_offered_with_a_whole_one_first(server):
    found = server.complete("top", "|")
    assert labels(found) >= set(TOP)
    example = next(item for item in found if item["label"] == "playbook (example)")
    assert example["insertText"].startswith("runbook: 1\nname: ") and "${1:" in example["insertText"]


def test_a_step_is_offered_every_type_as_a_key_and_as_an_example_and_the_common_keys(server):
    found = server.complete("step", STEPS + "  - |")
    assert labels(found) >= {*TABLE, *(f"{name} (example)" for name in TABLE), *COMMON, "block", "rescue"}
    told = next(item for item in found if item["label"] == "wait_gpu_free")
    assert "below a memory ceiling" in str(told["documentation"])


def test_an_example_that_is_inserted_is_the_step_of_the_reference(server):
    """As an editor inserts it: each further line as deep as the one of the cursor, escapes undone."""
    offered = {item["label"]: item for item in server.complete("step", STEPS + "  - |")}
    for name in TABLE:
        item = offered[f"{name} (example)"]
        inserted = item["insertText"].replace("\n", "\n  ").replace("\\$", "$").replace("\\\\", "\\")
        document, problems = load(f"{STEPS}  - {inserted}\n", name)
        assert problems == [] and document is not None, inserted
        example = load(TABLE[name].EXAMPLE, name)[0]
        assert example is not None
        assert document.data["steps"] == (example.data if isinstance(example.data, list) else [example.data]), inserted


@pytest.mark.parametrize("name", [name for name in TABLE if name != "set"])
def test_a_step_type_is_offered_its_keys_each_explained(server, name):
    found = {item["label"]: item for item in server.complete(name, f"{STEPS}  - {name}:\n      |")}
    keys = TABLE[name].__struct_encode_fields__
    assert set(found) >= {*keys, "timeout"}
    assert all(found[key]["documentation"] for key in keys)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("  - run:\n      parse: |", {"text", "lines", "json"}),
        ("  - launch:\n      at_end: |", {"stop", "keep"}),
        ("  - request:\n      stream: |", {"true", "false"}),
        ("  - wait_healthy:\n      expect:\n        |", {"status", "body", "json", "info"}),
        ("  - run: x\n    retry:\n      |", {"for", "every", "until", "verdicts"}),
        ("  - run: x\n    ignore_errors:\n      - |", {"failed", "undecided", "slow"}),
        ("  - patch:\n      probes:\n        - |", {"at", "where", "after", "show", "hits"}),
        ("  - patch:\n      probes:\n        - where: |", {"entry", "exit"}),
    ],
)
def test_what_may_stand_there_is_offered(server, line, wanted):
    assert labels(server.complete("values", STEPS + line)) >= wanted


def test_a_key_under_the_cursor_is_explained_with_an_example(server):
    shown = server.hover("hover", STEPS + "  - wait_gpu_free: {stable|_for: 3s}")
    assert "how long it must stay below" in shown and "10m" in shown
