"""The command line itself: help, versions, usage errors, bugs, broken pipes; and what it does not import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import click
import pytest

from runbook import __version__
from runbook.cli import main as cli
from runbook.cli.main import COMMANDS, Entry, exit_code
from tests.cli.running import ROOT, runbook
from tests.support.waiting import until

HEAVY = ("fabric", "paramiko", "invoke", "httpx", "torch", "rich", "jsonschema", "asyncio", "numpy", "tenacity")


def _imported(*argv: str) -> set[str]:
    """Top-level modules loaded by a command line, in a process of its own."""
    code = f"import sys; from runbook.cli.main import exit_code; exit_code({list(argv)!r}); print('LOADED', *sorted({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.slow
def test_help_loads_no_command_and_nothing_heavy():
    loaded = _imported("--help")
    assert not loaded & {*HEAVY, "yaml", "msgspec"}


@pytest.mark.slow
@pytest.mark.parametrize("playbook", ["good", "bad"])
def test_validate_loads_nothing_heavy(tmp_path, playbook):
    steps = {"good": "[{run: {argv: ['true']}}]", "bad": "[{rum: {}}]"}[playbook]
    path = tmp_path / "book.yaml"
    path.write_text(f"runbook: 1\nhosts: {{box: local}}\nsteps: {steps}\n")
    assert not _imported("validate", str(path)) & set(HEAVY)


def test_help_names_every_command_and_every_exit_code(capsys):
    assert exit_code(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS)
    assert all(f"{code} " in text for code in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 70, 130))


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_of_the_table_can_be_asked_for_help(name, capsys):
    assert exit_code([name, "--help"]) == 0
    assert "Usage: runbook" in capsys.readouterr().out


def test_the_version_is_the_packages(capsys):
    assert exit_code(["--version"]) == 0
    assert capsys.readouterr().out == f"runbook {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["rum"], "did you mean `run`?"),
        (["validate"], "Missing argument"),
        (["steps", "--nope"], "No such option"),
        (["plan", "x", "-H", "gpu"], "-H gpu=big-box"),
    ],
)
def test_a_usage_error_ends_with_2_and_says_what_to_type(argv, said, capsys):
    assert exit_code(argv) == 2
    assert said in capsys.readouterr().err


def _command_that(act, monkeypatch):
    import types

    @click.command()
    @click.argument("words", nargs=-1)
    def command(words):
        act()

    monkeypatch.setitem(sys.modules, "runbook.cli.probe", types.SimpleNamespace(command=command))
    monkeypatch.setitem(cli.COMMANDS, "probe", Entry("probe", "x"))


def test_a_bug_ends_with_70_and_a_report_to_paste_instead_of_a_traceback(monkeypatch, capsys):
    def act():
        raise ZeroDivisionError("impossible")

    _command_that(act, monkeypatch)
    assert exit_code(["probe", "token=hunter22"]) == 70
    err = capsys.readouterr().err
    assert "Traceback" not in err and "ZeroDivisionError: impossible" in err and f"runbook {__version__}" in err
    assert "hunter22" not in err and "token=…" in err and "tests/cli" not in err.split("error:")[0]


def test_ctrl_c_ends_with_130(monkeypatch):
    def act():
        raise KeyboardInterrupt

    _command_that(act, monkeypatch)
    assert exit_code(["probe"]) == 130


@pytest.mark.slow
@pytest.mark.parametrize("words", [["schema"], ["--help"], ["runs", "--json"]])
def test_a_reader_that_has_gone_is_the_exit_code_of_a_program_that_sigpipe_ended(words):
    read, write = os.pipe()
    os.close(read)
    argv = [sys.executable, "-m", "runbook.cli.main", *words]
    done = subprocess.run(argv, stdout=write, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=60, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.slow
def test_ctrl_c_at_any_moment_of_the_start_is_130_without_a_traceback(tmp_path):
    """From the first line of ours on: before it the interpreter itself is still beginning."""
    begun = tmp_path / "begun"
    program = f"import gc; from runbook.cli import start; gc.disable = lambda: open({str(begun)!r}, 'w').close(); start.main()"
    for turn in range(12):
        begun.unlink(missing_ok=True)
        child = subprocess.Popen([sys.executable, "-c", program, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until(begun.exists, 30)
        time.sleep(0.002 + turn * 0.012)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=30)
        assert "Traceback" not in err and child.returncode in (0, 130), err


def test_the_installed_command_is_this_function():
    done = runbook("--version")
    assert (done.returncode, done.stdout) == (0, f"runbook {__version__}\n")


def test_a_full_disk_is_no_bug():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "runbook.cli.main", "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 70
    assert "No space left" in done.stderr and "bug" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_no_exit_code(closed):
    done = subprocess.run(
        ["bash", "-c", f'"$0" -m runbook.cli.main steps {closed}', sys.executable], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
