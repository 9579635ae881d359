"""The tools of `runbook mcp`: each is one command of this program with `--json`, run beside the server and bounded in time.

A tool answers the command's own object, so what an agent reads here, a script reads there; where the object has no `exit_code` of its
own, the command's is added.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

MOST_S = 55.0
"""The longest that a tool waits for what it asks for; many clients give up after 60 s."""
GRACE_S = 30.0
"""What a command may take beyond the time that it was given: to connect, to write its answer."""
PROGRAM = (sys.executable, "-m", "runbook.cli.main")


async def answer(*argv: str, within: float = MOST_S + GRACE_S) -> dict[str, Any]:
    """One command's object; where it printed none, what it said."""
    child = await asyncio.create_subprocess_exec(
        *PROGRAM, *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, said = await asyncio.wait_for(child.communicate(), within)
    except asyncio.TimeoutError:
        return {"exit_code": None, "problem": f"`runbook {' '.join(argv)}` gave no answer within {within:g}s"}
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    try:
        found = json.loads(out)
    except ValueError:
        found = {"output": out.decode("utf-8", "replace"), "messages": said.decode("utf-8", "replace")[-2000:]}
    return {"exit_code": child.returncode, **(found if isinstance(found, dict) else {"items": found})}


def bounded(seconds: float) -> str:
    """A time that a tool may take, as the command line wants it."""
    return f"{min(max(seconds, 1.0), MOST_S):g}s"


async def run(
    playbook: str, variables: Mapping[str, Any] | None = None, hosts: Mapping[str, str] | None = None, wait_for: float = 45
) -> dict[str, Any]:
    """Run a playbook and follow it for `wait_for` seconds. Exit code 75: it still goes on; call `wait` with its `run`.

    `variables` override the playbook's, `hosts` maps a role to a target (an ssh alias, `local`, `lab`).
    """
    roles = [word for role, target in (hosts or {}).items() for word in ("-H", f"{role}={target}")]
    return await answer("run", "--json", "--wait-for", bounded(wait_for), *_given(variables), *roles, "--", playbook)


async def validate(playbook: str, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Say all that is wrong with a playbook, with file, line and column; nothing is contacted."""
    return await answer("validate", "--json", *_given(variables), "--", playbook)


async def wait(run: str, seconds: float = 45) -> dict[str, Any]:
    """Wait for a run that goes on, at most `seconds`. Exit code 75: it still goes on."""
    return await answer("wait", "--json", "--for", bounded(seconds), "--", run)


async def diagnose(
    target: str, port: int | None = None, pid: int | None = None, match: str | None = None, log: str | None = None, seconds: float = 30
) -> dict[str, Any]:
    """Say whether a server on a host serves, loads or hangs, and why, with evidence. Nothing is changed there."""
    asked = {"--port": port, "--pid": pid, "--match": match, "--log": log}
    words = [word for option, value in asked.items() if value is not None for word in (option, str(value))]
    return await answer("diagnose", "--json", "--for", bounded(seconds), *words, "--", target)


async def show(run: str = "last", cursor: int | None = None) -> dict[str, Any]:
    """Show a run: verdict, reason, steps, next. With `cursor` (0 at first): its events from there on and the next cursor."""
    return await answer("show", "--json", *(["--cursor", str(cursor)] if cursor is not None else []), "--", run)


async def runs(most: int = 20) -> dict[str, Any]:
    """List the runs on this machine, newest first."""
    return await answer("runs", "--json", "-n", str(most))


async def cancel(run: str, seconds: float = 45) -> dict[str, Any]:
    """End a run that goes on or is suspended: its `always` steps, then what it still owes its hosts. Exit code 75: not done yet."""
    return await answer("cancel", "--json", "--for", bounded(seconds), "--", run)


async def restore(run: str | None = None, host: str | None = None) -> dict[str, Any]:
    """Undo the patches of a run, or all open ones on a host."""
    return await answer("restore", "--json", *(["--host", host] if host else []), *(["--", run] if run else []))


def _given(variables: Mapping[str, Any] | None) -> list[str]:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in (variables or {}).items()}
    return [word for name, text in texts.items() for word in ("-e", f"{name}={text}")]


Tool = Callable[..., Awaitable[dict[str, Any]]]
LOOKING: tuple[Tool, ...] = (validate, diagnose, show, wait, runs)
"""Tools that change nothing."""
ACTING: tuple[Tool, ...] = (run, cancel, restore)
