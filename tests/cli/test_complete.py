"""What the shells offer: real bash asks as a person's does; nothing heavy is loaded for an answer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runbook.cli.generate import words_text
from runbook.cli.main import COMMANDS
from tests.support.terminal import Terminal
from tests.support.waiting import until

BOOK = "runbook: 1\nhosts:\n  gpu: local   # here\n  head: lab\nsteps:\n  - id: first\n    run: uname\n  - {id: second, host: head, run: uname}\n"
LIGHT = {"runbook", "runbook.cli", "runbook.cli.start", "runbook.cli.complete"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a playbook, hosts, an ssh_config with an Include, and two runs."""
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks" / "mine.yaml").write_text(BOOK)
    (tmp_path / "hosts.yaml").write_text("hosts:\n  big-box: {host: gpu7}\n")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Include more\nHost gpu* *\n  User me\nHost alias-one\n")
    (tmp_path / ".ssh" / "more").write_text("Host from-include\n")
    for run in ("20300101-000000-aaaa", "20300102-000000-bbbb"):
        (tmp_path / "state" / "runbook" / "runs" / run).mkdir(parents=True)
    return tmp_path


def offered(home: Path, line: str, *more: str) -> list[str]:
    """What is offered for the last word of a line."""
    env = {
        **os.environ,
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "none"),
        "RUNBOOK_SSH_CONFIG": "",
    }
    env |= {"_RUNBOOK_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    code = "import sys; from runbook.cli.start import main; main(); print('LOADED', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=home, env=env, capture_output=True, text=True, timeout=60)
    *words, loaded = done.stdout.splitlines()
    assert {name for name in loaded.split()[1:] if name.split(".")[0] == "runbook"} <= LIGHT, (
        "an answer within a keystroke loads no command"
    )
    assert not {"click", "yaml", "msgspec", "rich", "inspect", "typing_extensions"} & set(loaded.split())
    return [word.partition(",")[2] for word in words]


@pytest.mark.slow
def test_each_kind_of_word_is_offered(home):
    assert {"run", "runs", "resume"} <= set(offered(home, "runbook r")) <= set(COMMANDS)
    assert offered(home, "runbook run mi") == ["mine"]
    assert offered(home, "runbook run playbooks/") == ["playbooks/mine.yaml"]
    assert offered(home, "runbook run mine -H ") == ["gpu=", "head="]
    assert offered(home, "runbook run mine -H gpu=b") == ["gpu=big-box"]
    assert offered(home, "runbook run mine --start-at ") == ["first", "second"]
    assert offered(home, "runbook show ") == ["last", "20300102-000000-bbbb", "20300101-000000-aaaa"]
    assert offered(home, "runbook diagnose ") == ["local", "lab", "big-box", "from-include", "alias-one"]
    assert offered(home, "runbook lab st") == ["status"]
    assert "--check" in offered(home, "runbook run --ch") and offered(home, "runbook validate --format sa") == ["sarif"]


@pytest.mark.slow
def test_bash_itself_completes(home):
    """The printed script, in a bash of its own: the function that it registers is called as the shell would."""
    folder = Path(sys.executable).parent
    script = subprocess.run(
        [sys.executable, "-m", "runbook.cli.start", "completion", "bash"], capture_output=True, text=True, check=True
    ).stdout
    ask = f"{script}\nCOMP_WORDS=(runbook run mi) COMP_CWORD=2\n_runbook_completion runbook\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(home)}
    done = subprocess.run(["bash", "--norc", "-c", ask], cwd=home, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["mine"], done.stderr


LINES = {
    "runbook run mine --start-at=fi": "runbook run mine --start-at=first",
    "runbook run mine -H gpu=b": "runbook run mine -H gpu=big-box",
    "runbook validate --format=sa": "runbook validate --format=sarif",
}
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(runbook completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -U compinit; compinit -u -D; eval "$(runbook completion zsh)"'),
}


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_a_person_types_an_option_with_its_value(home, shell):
    """A shell at a terminal: what stands on the line after the key Tab."""
    argv, setup = SHELLS[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(home), "TERM": "dumb"}
    terminal = Terminal(home, env=env, program=argv)

    def shows(text: str) -> bool:
        terminal.read(0.05)
        return text in terminal.shown

    terminal.type(f"{setup}; echo set''up\n")
    until(lambda: shows("setup\r\n"), 60)
    for line, whole in LINES.items():
        terminal.type(f"{line}\t")
        until(lambda whole=whole: shows(whole), 30)
        terminal.type("\x15")  # clears the line
    terminal.hang_up()
    terminal.process.wait(30)


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_fish_completes_an_option_with_its_value(home, line):
    if shutil.which("fish") is None:
        pytest.skip("no fish here")
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(home)}
    ask = f"runbook completion fish | source; complete -C '{line}'"
    done = subprocess.run(["fish", "--no-config", "-c", ask], cwd=home, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [LINES[line].rpartition(" ")[2]], done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_have_a_script(shell, capsys):
    from runbook.cli.main import exit_code

    assert exit_code(["completion", shell]) == 0
    assert "_RUNBOOK_COMPLETE" in capsys.readouterr().out


def test_the_words_are_those_of_the_commands():
    words = json.loads(words_text())
    assert list(words) == list(COMMANDS)
    assert {one["name"] for one in words["run"]["params"]} >= {"playbook", "roles", "check"}
    assert "up" in words["lab"]["commands"]
