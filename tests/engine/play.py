"""Runs playbooks through the whole engine with steps that only say what they were asked to say: no host is touched."""

from __future__ import annotations

import threading
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from runbook.engine.execute import execute
from runbook.engine.journal import Journal
from runbook.engine.redact import Mask
from runbook.engine.runtime import Options, Runtime
from runbook.engine.stepping import Stepping
from runbook.hosts.base import Host, HostFacts, Unreachable
from runbook.model.clock import SystemClock
from runbook.playbook.build import load_playbook
from runbook.playbook.library import find_beside
from runbook.steps.assert_ import Assert
from runbook.steps.base import Step, StepResult
from runbook.steps.include import Include
from runbook.steps.pause import Pause
from runbook.steps.set_ import Set

FACTS = HostFacts(
    hostname="h", user="u", uid=0, pid=1, python="python3", python_version="3.11.0", boot_id="b", state_dir="/s", home="/", cpus=1, cwd="/"
)
SAID: list[tuple[str, str]] = []
FAILURES: dict[str, int] = {}
BARRIER = threading.Barrier(1)


class Say(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ends with the verdict that it was told, and gives back `value`."""

    TYPE: ClassVar[str] = "say"
    SHORTHAND: ClassVar[str | None] = "verdict"
    RESULTS: ClassVar[dict[str, str]] = {"value": "what was given"}
    SUSPENDS: ClassVar[bool] = False

    verdict: Annotated[str, Meta(description="verdict word")] = "passed"
    value: Annotated[Any, Meta(description="any value")] = None
    fails_first: Annotated[int, Meta(description="attempts that fail before it passes")] = 0
    waits: Annotated[float, Meta(description="seconds to wait, at most the box")] = 0.0
    bug: Annotated[bool, Meta(description="raise what nobody expects")] = False

    def run(self, ctx):
        SAID.append((ctx.step, ctx.host.name))
        if self.bug:
            raise ZeroDivisionError("planted")
        if self.waits:
            BARRIER.wait(5)
            box = min(self.waits, max(0.0, ctx.remaining_s()))
            if ctx.clock.wait(ctx.cancel.event, box):
                return StepResult(verdict="interrupted")
        done = FAILURES.get(ctx.step, 0)
        if done < self.fails_first:
            FAILURES[ctx.step] = done + 1
            return StepResult(verdict="failed", reason=f"attempt {done + 1}")
        return StepResult(verdict=self.verdict, fields={"value": self.value, "limited_by": ctx.limited_by()}, reason=f"said {self.verdict}")


class SilentTransport:
    """No operation is expected."""

    lost = None

    def call(self, op, args, blob=b"", **_):
        raise AssertionError(f"unexpected operation {op}")

    def close(self):
        return None


TABLE = {"say": Say, "assert": Assert, "set": Set, "include": Include, "pause": Pause}


def play(
    text: str,
    folder: Any,
    *,
    overrides: dict[str, Any] | None = None,
    unreachable: tuple[str, ...] = (),
    check: bool = False,
    secrets=None,
    find: Any = find_beside,
    ask: Any = None,
    step: bool = False,
    **options: Any,
):
    """Run a playbook text; answers (last event, events, steps that ran as (id, host))."""
    SAID.clear()
    FAILURES.clear()
    playbook, problems = load_playbook(text.encode(), "t.yaml", table=TABLE, profiles=["generic"], overrides=overrides or {}, find=find)
    assert playbook is not None, problems
    clock = SystemClock()
    journal = Journal(folder, clock, Mask(secrets or {}))
    events: list[Any] = []
    journal.follow(events.append)

    def connect(target, cancel, note):
        if target.target in unreachable:
            raise Unreachable(f"{target.target} does not answer", "look at the network")
        return Host(target.target, target.target, SilentTransport(), FACTS, None)

    runtime = Runtime(
        playbook=playbook,
        options=Options(run="r1", dir=str(folder), overrides=overrides or {}, check=check, **options),
        journal=journal,
        table=TABLE,
        profile=lambda name: None,
        connect=connect,
        secrets=secrets or {},
        environ={},
        clock=clock,
    )
    runtime.ask, runtime.stepping = ask, Stepping() if step else None
    ended = execute(runtime, lambda *_: None, {"pid": 1})
    return ended, events, list(SAID)
