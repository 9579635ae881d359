"""Bad input: every mistake that can be found before a host is touched has its place and its next step; never a traceback.

The cases are files in tests/data/bad_playbooks. Their first lines say what must be found:

    # expect: LINE:COLUMN CODE      each diagnostic, in order, and no other
    # hint: TEXT                    a hint that must be among them
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runbook.cli.main import exit_code
from tests.cli.running import runbook

CASES = sorted((Path(__file__).parents[1] / "data" / "bad_playbooks").glob("*.yaml"))


def _said(path: Path, word: str) -> list[str]:
    head = f"# {word}: "
    return [line[len(head) :].strip() for line in path.read_text().splitlines() if line.startswith(head)]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_each_mistake_has_its_place_and_its_next_step(path, capsys):
    assert exit_code(["validate", "--json", str(path)]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdict"] == "invalid"
    found = answer["diagnostics"]
    assert [f"{one['line']}:{one['col']} {one['code']}" for one in found] == _said(path, "expect")
    assert {one["file"] for one in found} == {str(path)}
    hints = [one["hint"] for one in found]
    assert all(hint in hints for hint in _said(path, "hint")), hints


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_people_get_the_place_the_line_and_the_count_on_stderr(path, capsys):
    assert exit_code(["validate", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    for expected in _said(path, "expect"):
        place, code = expected.split()
        assert f"{path}:{place}: error[{code}]: " in err
    assert err.splitlines()[-1].endswith("in 1 file")


def _write(folder: Path, name: str, data: bytes) -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"runbook: 1\n#" + b"x" * 10_000_000, "file-too-large"),
        (
            b"a: &a [x,x,x,x,x,x,x,x,x]\n"
            + b"".join(b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 9)) for n in range(8)),
            "too-many-nodes",
        ),
        (bytes(range(256)) * 4, "not-text"),
        (b"runbook: 1\nname: \xff\xfe\n", "not-utf8"),
        (b"steps: " + b"[" * 5000, None),
        (b"\x1b[2J", "control-character"),
    ],
    ids=["10 MB", "alias bomb", "binary", "not UTF-8", "nested", "escape"],
)
def test_a_hostile_file_is_refused_in_a_moment(tmp_path, capsys, data, code):
    assert exit_code(["validate", "--json", _write(tmp_path, "bad.yaml", data)]) == 2
    codes = [one["code"] for one in json.loads(capsys.readouterr().out)["diagnostics"]]
    assert codes and (code is None or codes == [code])


def test_a_file_that_is_not_there_names_the_next_step(capsys):
    assert exit_code(["validate", "no/such.yaml"]) == 2
    err = capsys.readouterr().err
    assert "cannot read `no/such.yaml`" in err and "runbook list" in err


def test_a_folder_without_a_playbook_is_a_mistake(tmp_path, capsys):
    assert exit_code(["validate", str(tmp_path)]) == 2
    assert f"no playbook and no profile in {tmp_path}" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_the_process_ends_with_2_and_without_a_traceback():
    done = runbook("validate", str(CASES[0]))
    assert done.returncode == 2 and "Traceback" not in done.stderr and done.stdout == ""
