"""What tries a block of the documentation: for each language a function that answers what is wrong with it, None when all is well."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from runbook.cli import library
from runbook.cli.profiles import Profiles
from runbook.cli.reference import DO_NOT_EDIT
from runbook.hosts.inventory import read_hosts
from runbook.playbook.build import load_playbook
from runbook.steps import TABLE
from tests.docs.shell import mistake, simple_commands
from tests.support.pages import ROOT, Block, commands_in
from tests.support.schemas import validator

PROFILES = Profiles([ROOT / "runbook" / "profiles"])
ALONE = {"unknown-step-id", "undefined-var", "undeclared-secret", "unknown-playbook"}
"""Of a step without its playbook these are no mistakes: it may refer to steps and variables that are not shown."""


def wrong(block: Block, folder) -> str | None:
    """What is wrong with a block, or that nothing tries it. `folder` is an empty one."""
    if block.kind == "shown":
        return None if len(block.words.split()) >= 3 else "`shown` needs a reason"
    if block.kind == "made":
        return None if _program(block.words.split()).exists() else f"no program {block.words}"
    if block.kind == "part of":
        return _not_in(block)
    if block.language == "text" and DO_NOT_EDIT in block.page.read_text(encoding="utf-8"):
        return None  # tests/contract/test_schema.py makes the page anew
    check = LANGUAGES.get(block.language)
    if check is not None:
        return check(block, folder)
    if block.kind == "file":
        return None  # a session writes it, and what uses it there is run
    if block.kind == "output":
        name, _, file = block.words.partition(", ")
        return None if f'"{name}"' in (ROOT / file).read_text(encoding="utf-8") else f"{file} does not name `{name}`"
    return "nothing tries it: give it a note of tests/support/pages.py"


def _program(words: list[str]) -> Path:
    """The file of `python FILE …` or `python -m MODULE …`."""
    return ROOT / (words[2].replace(".", "/") + ".py" if words[1] == "-m" else words[1])


def _not_in(block: Block) -> str | None:
    """A line that the file lacks, or has elsewhere. Comments at the end of a line are the page's own."""
    rest = [line.split("  # ")[0].strip() for line in (ROOT / block.words).read_text(encoding="utf-8").splitlines()]
    for line in (line.split("  # ")[0].strip() for line in block.text.splitlines()):
        if line in ("", "…"):
            continue
        if line not in rest:
            return f"{block.words} has no line `{line}` at this place"
        rest = rest[rest.index(line) + 1 :]
    return None


def _yaml(block: Block, folder) -> str | None:
    text = block.text
    keys = yaml.safe_load(text) if not text.startswith(" ") else None
    first = next(iter(keys), None) if isinstance(keys, dict) else next(iter(keys[0]), None) if isinstance(keys, list) else None
    if first == "runbook":
        return _found(text, ())
    if first in ("hosts", "groups"):
        (folder / "hosts.yaml").write_text(text)
        return None if read_hosts(folder / "hosts.yaml") else "no hosts"
    if first == "profile":
        profile, found = PROFILES.check(str(folder / f"{keys['profile']}.yaml"), text.encode())
        return None if profile and not found else "; ".join(one.summary for one in found)
    if first == "at":
        step = {"patch": {"for": "server", "module": "a.b", "probes": keys}}
        launch = {"id": "server", "launch": {"command": ["python", "-m", "a"]}}
        return _found(_playbook([step, launch]), ALONE)
    if isinstance(keys, list) and any(key in TABLE for key in keys[0]):
        return _found(_playbook(keys), ALONE)
    return "neither playbook, steps, hosts, profile nor probes"


def _playbook(steps: list) -> str:
    return yaml.safe_dump({"runbook": 1, "hosts": {"box": "local"}, "steps": steps}, allow_unicode=True)


def _found(text: str, ignored) -> str | None:
    _, found = load_playbook(text.encode(), "docs.yaml", table=TABLE, profiles=PROFILES.names(), find=library.find)
    left = [one for one in found if one.code not in ignored and "for which launch" not in one.summary]
    return "; ".join(f"{one.span}: {one.summary}" for one in left) or None


def _shell(block: Block, folder) -> str | None:
    text = "\n".join(command for command, _ in commands_in(block))
    grammar = subprocess.run([shutil.which("bash") or "bash", "-n"], input=text, capture_output=True, text=True)
    if grammar.returncode:
        return grammar.stderr
    if block.kind == "file":
        return None  # a script that is read, not run
    found = [f"{' '.join(words)}: {problem}" for words in simple_commands(text) if (problem := mistake(words))]
    if not found and block.language == "console" and not block.kind:
        return "what it shows is compared with nothing: note it as `run` or `output`"
    return "; ".join(found) or None


def _json(block: Block, folder) -> str | None:
    told = json.loads(block.text)
    if "mcpServers" in told:
        server = told["mcpServers"]["runbook"]
        return mistake([server["command"], *server["args"]])
    validator("run").validate(told)
    return None


def _python(block: Block, folder) -> str | None:
    if block.kind in ("file", "output"):
        compile(block.text, block.words, "exec")
    else:
        executed(block)
    return None


def executed(block: Block) -> dict[str, Any]:
    """The names that a block of Python defines; it runs as a module of its own."""
    module = ModuleType("docs_block")
    sys.modules[module.__name__] = module  # types that are written as text are looked up there
    exec(compile(textwrap.dedent(block.text), block.place, "exec"), module.__dict__)
    return module.__dict__


LANGUAGES: dict[str, Callable[[Block, object], str | None]] = {
    "yaml": _yaml,
    "sh": _shell,
    "console": _shell,
    "json": _json,
    "python": _python,
    "{toctree}": lambda block, folder: None,  # tests/contract/test_docs_site.py builds it
}
