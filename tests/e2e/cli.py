"""The real command in a process of its own, as a person types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from runbook.engine.journal import load_events
from tests.support.schemas import validator

ROOT = Path(__file__).resolve().parents[2]
STORY = ROOT / "playbooks" / "eagle3_fusion.yaml"


class Outcome:
    """How a command ended: exit code, the JSON object when there is one, both streams. `schema` is the published one of its object."""

    def __init__(self, code: int, out: str, err: str, schema: str | None = "run") -> None:
        self.schema = schema
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> dict[str, Any]:
        """The object on stdout; it fits the published schema."""
        assert self.out.strip().startswith("{"), f"no object on stdout: {self.out!r}\n{self.err}"
        answer = dict(json.loads(self.out))
        if self.schema is not None:
            validator(self.schema).validate(answer)
        return answer

    @property
    def events(self) -> list[Any]:
        """The journal of the run."""
        return load_events(Path(self.json["transcript"]["dir"]))

    def step_rows(self, name: str) -> list[dict[str, Any]]:
        """All ends of a step in the object."""
        return [row for row in self.json["steps"] if row["id"] == name]

    def step(self, name: str) -> dict[str, Any]:
        """The last end of a step in the object."""
        return next(row for row in reversed(self.json["steps"]) if row["id"] == name)


def start(*args: str | Path, state: Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start `runbook …` in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "runbook.cli.main", *map(str, args)],
        cwd=cwd,
        env={**os.environ, "XDG_STATE_HOME": str(state), **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def runbook(*args: str | Path, state: Path, cwd: Path = ROOT, env: dict[str, str] | None = None, seconds: float = 180) -> Outcome:
    """Run `runbook …` to its end."""
    child = start(*args, state=state, cwd=cwd, env=env)
    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        out, err = child.communicate()
        raise AssertionError(f"runbook {args} took more than {seconds} s\n{err}") from None
    return Outcome(child.returncode, out, err, "run" if str(args[0]) in ("run", "cancel") else None)
