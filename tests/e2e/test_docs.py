"""The commands of README.md and docs/ that are noted as `run` are run, page by page, and what they are shown to print is compared.

A page is one shell in an empty folder that holds a copy of `playbooks/`; its files are written where the page writes them. The target
`lab` is the one of the whole suite. Port 8000 of a page becomes a free one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.cli import runbook
from tests.support.pages import PAGES, ROOT, Block, blocks_of, commands_in, missing, shown_as

pytestmark = pytest.mark.e2e
SESSIONS = [page for page in PAGES if any(block.kind == "run" for block in blocks_of(page))]
LIMIT_S = 300
MARK = "\x1e"


class Session:
    """A page's commands as one bash script; after each command it prints MARK and the exit code."""

    def __init__(self, page: Path, folder: Path, port: int) -> None:
        self.page, self.folder, self.port = page, folder, port
        self.script: list[str] = []
        self.expected: list[tuple[Block, str, str]] = []
        for number, block in enumerate(blocks_of(page)):
            if block.kind == "file":
                self._write(block, folder / f".block{number}")
            elif block.kind == "run":
                self._run(block)

    def own_port(self, text: str) -> str:
        """The port of this test in place of 8000."""
        return re.sub(r"\b8000\b", str(self.port), text)

    def _write(self, block: Block, kept: Path) -> None:
        kept.write_text(self.own_port(block.text) + "\n")
        self.script.append(f"mkdir -p {Path(block.words).parent} && cp {kept} {block.words}")

    def _run(self, block: Block) -> None:
        for command, shown in commands_in(block):
            self.script += [f"{{ {self.own_port(command)}\n}} 2>&1", f"_code=$?; printf '{MARK}%s{MARK}' $_code; ( exit $_code )"]
            self.expected.append((block, command, shown))

    def play(self, env: dict[str, str]) -> str:
        """Run it; all that was printed. Every command prints what the page shows; one that shows nothing must succeed."""
        done = subprocess.run(
            ["bash", "-c", "\n".join(self.script)],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
        parts = done.stdout.split(MARK)
        assert len(parts) == 2 * len(self.expected) + 1, done.stdout
        for (block, command, shown), printed, code in zip(self.expected, parts[::2], parts[1::2], strict=False):
            lost = missing(shown, printed)
            assert lost is None, f"{block.place}: `{command}` does not print `{lost}` but\n{printed}"
            assert shown or code == "0", f"{block.place}: `{command}` exits {code}\n{printed}"
        return done.stdout


@pytest.fixture
def play(lab, port, tmp_path):
    """Run a page."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    home = tmp_path / "home"
    home.mkdir()
    env = {**os.environ, "PATH": path, "HOME": str(home), "XDG_STATE_HOME": str(lab.state), "XDG_CONFIG_HOME": str(home / ".config")}
    work = tmp_path / "work"
    shutil.copytree(ROOT / "playbooks", work / "playbooks")
    yield lambda page: Session(page, work, port).play(env)
    assert lab.processes() == [], "a page leaves the lab as it was"


@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_do_what_it_shows(page, play):
    play(page)


LOADING = """
import time
for shard in range(1, 600):
    print(f"Loading safetensors checkpoint shards:  {shard / 6:.0f}% Completed | {shard}/600", flush=True)
    time.sleep(0.1)
"""


def test_a_server_that_loads_is_told_as_the_page_shows(tmp_path, own_state):
    (tmp_path / "loading.py").write_text(LOADING)
    with (tmp_path / "log").open("w") as log, subprocess.Popen([sys.executable, tmp_path / "loading.py"], stdout=log) as server:
        try:
            told = runbook("diagnose", "local", "--pid", str(server.pid), "--for", "6s", state=own_state)
        finally:
            server.kill()
    assert told.code == 4, told.err
    assert missing(shown_as("docs/guides/hung_or_loading.md", "loading"), told.out) is None, told.out


def test_the_doctor_tells_of_the_lab_what_the_page_shows(lab):
    """Names and numbers of the page are a usual machine's, so only what each line is about is compared."""
    (shown,) = [block.text for block in blocks_of(ROOT / "docs/guides/doctor.md") if "(lab)" in block.words]
    told = lab.runbook("doctor", "lab")
    assert told.code == 0, told.err
    assert subjects(told.out) == subjects(shown.partition("\n")[2]), told.out


def subjects(text: str) -> list[str]:
    """The first column of what `doctor` prints."""
    return [line[:15].strip() for line in text.splitlines() if line.strip()]
