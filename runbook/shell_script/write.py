"""Translated steps as the text of a playbook."""

from __future__ import annotations

from collections.abc import Sequence

from runbook.lang.yaml_write import dump
from runbook.shell_script.state import Made
from runbook.shell_script.translate import Translated
from runbook.shell_script.traps import OTHERWISE

HEAD = """\
# From a shell script. Read it before you run it: `runbook plan` shows what each step would do, `runbook run --check` looks and
# changes nothing. A step that fails ends the run, begins in the login folder unless it has a `cwd:`, and ends when its `timeout:` is over.
"""
ON_THE_LAB = "# CHANGE: an ssh alias or user@host; `lab` comes with runbook, and its only engine is `lab_engine.launch_server`"


def write(found: Translated, name: str, modeline: str) -> str:
    """The playbook. `modeline` is its first line, if there is one."""
    hosts = [f"  {role}: {dump(target) if target else f'lab    {ON_THE_LAB}'}" for role, target in found.hosts.items()]
    otherwise = [f"# - line {one.span.line}: {one.summary}" for one in found.traps if one.code in OTHERWISE and one.span]
    said = ["#", "# Not as in the script:", *otherwise, "#"] if otherwise else []
    lines = [*([modeline, "#"] if modeline else []), *HEAD.splitlines(), *said, "runbook: 1", f"name: {dump(name)}", "hosts:", *hosts]
    if found.vars:
        lines += ["vars:", *(f"  {line}" for line in dump(found.vars).splitlines())]
    if found.secrets:
        lines += ["secrets:", *(f"  - {{name: {one}, required: true}}" for one in found.secrets)]
    steps = found.steps or [Made({"run": "true"}, "The script does nothing that a playbook would.")]
    lines += ["steps:", *_steps(steps)]
    if found.always:
        lines += ["", "always:    # also after a failure", *_steps(found.always)]
    return "\n".join(lines) + "\n"


def _steps(steps: Sequence[Made]) -> list[str]:
    lines: list[str] = []
    for made in steps:
        lines += [f"  # {line}".rstrip() for line in made.comment.splitlines()]
        lines += [f"  {line}".rstrip() if not line.strip() else f"  {line}" for line in dump([made.step], 2).splitlines()]
    return lines
