"""A secret by its name: from the environment, a file, a command. Errors name it and its source, never its value."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runbook.cli import secrets
from runbook.cli.load import load
from runbook.model.playbook import Secret
from tests.support.secret_texts import made

VALUE = made("hf_", 34)


def one(folder: Path, environ: dict[str, str] | None = None, **source: object) -> tuple[str | None, str]:
    values, wrong = secrets.read([Secret(name="HF_TOKEN", **source)], environ or {}, folder)
    told = "".join(f"{problem.summary} {problem.hint}" for problem in wrong.values())
    assert VALUE not in told
    return values.get("HF_TOKEN"), told


def write(path: Path, text: str = f"{VALUE}\n", mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_environment_goes_before_a_file_and_a_file_is_read_without_its_last_line_break(tmp_path):
    write(tmp_path / "token")
    assert one(tmp_path, file="token") == (VALUE, "")
    assert one(tmp_path, {"HF_TOKEN": "other-value"}, file="token") == ("other-value", "")
    assert one(tmp_path, file="none") == (None, "")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_a_file_that_others_may_read_or_write_is_refused_with_what_to_do(tmp_path, mode):
    value, told = one(tmp_path, file=str(write(tmp_path / "token", mode=mode)))
    assert value is None and f"mode {mode:o}" in told and "chmod 600" in told and "HF_TOKEN" in told and str(tmp_path / "token") in told


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")
def test_a_file_of_somebody_else_is_refused(tmp_path):
    path = write(tmp_path / "token")
    os.chown(path, 65534, 65534)
    assert "belongs to uid 65534" in one(tmp_path, file="token")[1]


def test_what_is_no_file_is_told_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in one(tmp_path, file="pipe")[1]
    assert "more than" in one(tmp_path, file=str(write(tmp_path / "big", "x" * 70_000)))[1]


def test_a_command_gives_what_it_prints_and_nothing_of_it_is_told(tmp_path):
    assert one(tmp_path, command=["printf", f"{VALUE}\\n"]) == (VALUE, "")
    for script, told in (("exit 3", "exited 3"), ("true", "printed nothing"), (f"echo {VALUE}; echo {VALUE} >&2; exit 4", "exited 4")):
        assert told in one(tmp_path, command=["sh", "-c", script])[1]
    assert "No such file" in one(tmp_path, command=["no-such-program-here"])[1]


BOOK = """\
runbook: 1
hosts: {{box: local}}
secrets: [{{name: HF_TOKEN, {source}}}]
steps: [{{run: {{shell: 'true', env: {{T: '${{{{ secrets.HF_TOKEN }}}}'}}}}}}]
"""


@pytest.mark.parametrize(
    "source, codes",
    [
        ("file: token", []),
        ("file: open", ["bad-secret"]),
        ("file: none", ["missing-secret"]),
        ("command: [cat, token]", []),
        ("command: [cat, none]", ["bad-secret"]),
        ("command: []", ["empty"]),
        ("file: a, command: [b]", ["bad-secret"]),
        ("file: '${{ vars.x }}'", ["bad-secret"]),
    ],
)
def test_a_playbook_is_refused_before_anything_runs_when_a_source_gives_nothing(tmp_path, source, codes):
    write(tmp_path / "token")
    write(tmp_path / "open", mode=0o644)
    (tmp_path / "book.yaml").write_text(BOOK.format(source=source))
    loaded = load(str(tmp_path / "book.yaml"), environ={})
    assert [one.code for one in loaded.diagnostics if one.severity.value == "error"] == codes
    assert all(VALUE not in f"{one.summary}{one.hint}" for one in loaded.diagnostics)
    if not codes:
        assert loaded.secrets == {"HF_TOKEN": VALUE}
