"""Walks a playbook's nodes: blocks, conditions, loops, retries, targets side by side.

A step's life on one target, each arrow one event:

    step_started ─▶ step_ended(passed | failed | unknown | skipped)
        ▲                 │ retry: another attempt
        └─────────────────┘

A step that ends neither passed nor skipped ends its block; `rescue` may take it; the first that nobody takes ends the main part.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec

from runbook.engine import names
from runbook.engine.boxes import Box, nested
from runbook.engine.context import Context, once
from runbook.engine.evidence import preserve
from runbook.engine.journal import JournalError
from runbook.engine.lease import secure
from runbook.engine.past import Flight, Key
from runbook.engine.runtime import Runtime, walk
from runbook.engine.scope import plain
from runbook.engine.selection import main_steps
from runbook.engine.watch import pause
from runbook.hosts.base import CallTimeout, Cancelled, HostError, RemoteError, Unreachable
from runbook.model.event import StepEnded, StepStarted
from runbook.model.playbook import BlockNode, IncludeNode, Node, Retry, StepNode, Target
from runbook.model.units import Duration
from runbook.model.verdict import status_of, worst
from runbook.steps.base import Reentry, StepResult

MOST_THREADS = 32
CLEANUP_STEP_S = 60.0
NEVER_RESCUED = frozenset({"interrupted", "refused", "error"})


class Ending(NamedTuple):
    """What ended a block: the verdict and the step that gave it."""

    verdict: str
    node: StepNode | None
    end: StepEnded
    unknown: bool = False
    """Of a run that was resumed: it cannot be known whether the step ran. Nothing takes that; the author decides."""


class Runner:
    """Runs nodes on a runtime. `part` is main, rescue, always or cleanup, as events name it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def nodes(self, nodes: Sequence[Node], box: Box, place: names.Place, part: str) -> Ending | None:
        """Run in order until one ends neither passed nor skipped. Check mode looks at all; the first bad look is the ending."""
        first = None
        for node in nodes:
            ending = self.node(node, box, place, part)
            if ending is not None and not self._runtime.options.check:
                return ending
            first = first or ending
        return first

    def each(self, nodes: Sequence[Node], box: Box, place: names.Place, part: str) -> list[Ending]:
        """Run all, also after a failure; answers what did not pass."""
        return [ending for node in nodes if (ending := self.node(node, box, place, part)) is not None]

    def node(self, node: Node, box: Box, place: names.Place, part: str) -> Ending | None:
        """Run one step or block. In check mode undecided is no ending: it needs an effect that was not made."""
        ending = self._run(node, box, place, part)
        return None if ending is not None and ending.verdict == "undecided" and self._runtime.options.check else ending

    def _run(self, node: Node, box: Box, place: names.Place, part: str) -> Ending | None:
        if isinstance(node, BlockNode):
            return self._block(node, box, place, part)
        return _Step(self._runtime, node, box, place, part).run()

    def _block(self, node: BlockNode, box: Box, place: names.Place, part: str) -> Ending | None:
        known, inside = self._runtime.past, walk((node,))
        if node.id in self._runtime.unselected:
            for step in [] if known.entered(inside) else main_steps(node):
                self._runtime.emit(skipped(step, part, self._runtime.unselected[node.id]))
            return None
        own = place.inside(node.common.vars)
        if known.entered(inside):
            decision = names.Decision(True)
        elif known.beyond(inside):
            return None
        else:
            decision = names.decide(self._runtime, node.common.when, own)
        if decision.skip:
            return None
        if decision.problem:
            return Ending("undecided", None, _unrun(node.id, "block", decision.problem, part))
        if isinstance(node, IncludeNode) and not known.entered(inside) and (fault := names.misgiven(self._runtime, node, own)):
            end = msgspec.structs.replace(_unrun(node.id, "include", fault, part), status="failed", verdict="failed")
            return Ending("failed", None, end)
        timeout = names.seconds(self._runtime, node.common.timeout, own)
        inner = place.enter(node)
        ending = self.nodes(node.steps, nested(self._runtime.clock, box, timeout, "block"), inner, part)
        if ending is not None and (ending.unknown or (suspends(self._runtime, ending) and not node.rescue)):
            return ending  # the run may be suspended: this block's `always` then waits for `cancel`
        if ending is not None and node.rescue and ending.verdict not in NEVER_RESCUED:
            taken = self.nodes(node.rescue, box, inner, "rescue")
            if taken is None and ("rescued", ending.end.step) not in self._runtime.past.found:
                self._runtime.find("rescued", f"`{ending.end.step}` ended {ending.verdict}; its block's rescue passed", ending.end.step)
            ending = taken
        if node.always and not (ending is not None and (ending.verdict == "interrupted" or ending.unknown)):
            failed = self.each(node.always, box, inner, "always")
            ending = ending or (failed[0] if failed else None)
        return ending


def suspends(runtime: Runtime, ending: Ending) -> bool:
    """Whether this ending suspends the run instead of ending it: a wait on a server of this run, slow or undecided."""
    if ending.node is None or runtime.options.no_suspend or runtime.options.check or ending.verdict not in ("slow", "undecided"):
        return False
    server = ending.end.result.get("server") or ending.node.body.get("server")
    launched = any(step == server and not one.attached for (step, _), one in runtime.state.launches.items())
    return runtime.table[ending.node.type].SUSPENDS and launched


class _Step:
    """One step over its targets."""

    def __init__(self, runtime: Runtime, node: StepNode, box: Box, place: names.Place, part: str) -> None:
        self._runtime = runtime
        self._node = node
        self._box = box
        self._part = part
        self._place = place.inside(node.common.vars)
        self._class = runtime.table[node.type]
        self._past = runtime.past

    def run(self) -> Ending | None:
        """Condition, then all targets at once; the step ends when all have ended."""
        if (decided := self._past.unrun(self._node.id)) is not None:
            return self._ending([decided])
        if self._node.id in self._runtime.unselected:
            self._runtime.emit(skipped(self._node, self._part, self._runtime.unselected[self._node.id]))
            return None
        if self._runtime.keeping and self._class.ENDS:
            self._end_unrun("skipped", None, "--keep")
            return None
        begun = self._past.entered([self._node])
        decision = names.Decision(True) if begun else names.decide(self._runtime, self._node.common.when, self._place)
        if decision.skip:
            self._end_unrun("skipped", None, f"when: {self._node.common.when} is false")
            return None
        if decision.problem:
            return self._ending([self._end_unrun("unknown", "undecided", f"when: {decision.problem}")])
        if not begun and (declined := self._declined()) is not None:
            return self._ending([declined])
        targets = names.targets(self._runtime, self._node)
        if len(targets) == 1:
            return self._ending([self._on(targets[0], 0)])
        with ThreadPoolExecutor(min(MOST_THREADS, len(targets)), thread_name_prefix=self._node.id) as pool:
            return self._ending(list(pool.map(self._on, targets, range(len(targets)))))

    def _declined(self) -> StepEnded | None:
        """The end of a step that somebody did not want, asked by `--step`."""
        stepping, ask = self._runtime.stepping, self._runtime.ask
        if stepping is None or ask is None or self._part not in ("main", "rescue"):
            return None
        try:
            choice = stepping.choice(self._node, ask, self._runtime.cancel)
        except Cancelled:
            return self._end_unrun("failed", "interrupted", "interrupted before it began")
        if choice == "skip":
            return self._end_unrun("skipped", None, "skipped at the prompt")
        return self._end_unrun("failed", "interrupted", "the run was ended at the prompt") if choice == "quit" else None

    def _ending(self, ends: list[StepEnded]) -> Ending | None:
        verdicts = [end.verdict for end in ends if end.verdict not in (None, "passed") and not end.ignored]
        if not verdicts:
            return None
        verdict = worst([word for word in verdicts if word])
        unknown = [end for end in ends if end in self._past.unknown]
        if unknown:
            return Ending(verdict, self._node, unknown[0], unknown=True)
        return Ending(verdict, self._node, next(end for end in ends if end.verdict == verdict))

    def _on(self, target: Target, index: int) -> StepEnded:
        place = self._place._replace(target=target, host_index=index)
        before = self._past.unrun(self._node.id, target.target) or self._past.last(self._node, target.target)
        if before is not None:
            return before
        items = names.items(self._runtime, self._node, place)
        if isinstance(items, str):
            return self._end_unrun("unknown", "undecided", items, target.target)
        if items is None:
            return self._attempts(target, place)
        end = None
        for number, item in enumerate(items):
            end = self._attempts(target, place._replace(item=item, number=number, looping=True))
            if end.status not in ("passed", "skipped") and not end.ignored:
                break
        return end or self._end_unrun("skipped", None, "loop: the list is empty", target.target)

    def _attempts(self, target: Target, place: names.Place) -> StepEnded:
        retry = names.retry(self._runtime, self._node, place)
        deadline = self._runtime.clock.monotonic() + (float(retry.for_) if retry else 0.0)
        attempt = 1
        while True:
            key = Key(self._node.id, target.target, place.number if place.looping else None, attempt)
            before = self._past.end(key)
            end = before or self._reentered(key) or self._attempt(target, place, attempt)
            if self._past.knows(key._replace(attempt=attempt + 1)):
                attempt += 1
                continue
            if end in self._past.unknown or retry is None or not self._again(retry, end, place, deadline):
                if before is None and end not in self._past.unknown:
                    self._preserve(end, place)
                return end
            attempt += 1

    def _reentry(self, flight: Flight | None) -> Reentry | None:
        return msgspec.structs.replace(flight.reentry(), redo=self._node.id in self._past.redo) if flight is not None else None

    def _went_on(self, key: Key) -> bool:
        """Whether the host knows of its command, which has gone on without a controller: then its end can be had there."""
        if not self._class.HOLDS:
            return False
        try:
            names_there = self._runtime.host(key.host).held_names(self._runtime.options.run)
        except HostError:
            return False
        return once(*key) in names_there

    def _reentered(self, key: Key) -> StepEnded | None:
        """The end of an attempt that was in flight when its controller died and is not entered again: skipped, or not to be known."""
        if key not in self._past.flights:
            return None
        if self._node.id in self._past.skip:
            why, status, verdict = "skipped as `resume --skip` asks", "skipped", None
        elif self._class.on_resume(self._node.body) != "unknown" or self._node.id in self._past.redo or self._went_on(key):
            return None
        else:
            what = f"`{key.step}` ({self._node.type}) was in flight when the run lost its controller or was suspended"
            why = f"{what}: whether it had its effect cannot be known, and it is not repeated by itself"
            status, verdict = "unknown", "undecided"
        base: dict[str, Any] = {"step": key.step, "type": self._node.type, "host": key.host, "item": key.item, "attempt": key.attempt}
        end = StepEnded(**base, part=self._part, status=status, verdict=verdict, reason=why, seconds=0.0)
        if verdict is not None:
            self._past.unknown.append(end)
        self._runtime.emit(end)
        return end

    def _preserve(self, end: StepEnded, place: names.Place) -> None:
        """Evidence before cleanup."""
        if not self._runtime.cancel.is_set():
            preserve(self._runtime, self._node, end, names.file(self._runtime, self._node, place))

    def _again(self, retry: Retry, end: StepEnded, place: names.Place, deadline: float) -> bool:
        """Whether to try once more; waits `every` first."""
        if end.verdict == "interrupted" or end.status == "skipped":
            return False
        if retry.until is not None and end.verdict == "passed":
            wanted = not names.decide(self._runtime, retry.until, place).run
        else:
            wanted = end.verdict in retry.verdicts
        left = min(deadline - self._runtime.clock.monotonic(), self._box.remaining_s(self._runtime.clock))
        if not wanted or left <= float(retry.every):
            return False
        try:
            pause(self._runtime.clock, self._runtime.cancel, float(retry.every))
        except Cancelled:
            return False
        return True

    def _attempt(self, target: Target, place: names.Place, attempt: int) -> StepEnded:
        runtime, clock = self._runtime, self._runtime.clock
        began = clock.monotonic()
        box = self._step_box(place)
        base: dict[str, Any] = {
            "step": self._node.id,
            "type": self._node.type,
            "host": target.target,
            "attempt": attempt,
            "part": self._part,
        }
        base["item"] = place.number if place.looping else None
        limited = None if box.label == "step" else box.label
        rest = box.remaining_s(clock)
        started = StepStarted(**base, name=self._node.common.name, box_s=rest, limited_by=limited, marks=_marks(runtime, target.target))
        runtime.emit(started)
        flight = self._past.flights.get(Key(self._node.id, target.target, base["item"], attempt))
        result = self._result(target, place, box, began, self._reentry(flight), attempt)
        ended = StepEnded(
            **base,
            status=status_of(result.verdict),
            verdict=result.verdict,
            kind=result.kind or (result.diagnosis.kind if result.diagnosis else None),
            reason=result.reason or (result.diagnosis.reason if result.diagnosis else ""),
            seconds=clock.monotonic() - began,
            result=plain(result.fields),
            diagnosis=result.diagnosis,
            ignored=_ignored(self._node, result.verdict),
            marks=_marks(runtime, target.target),
        )
        runtime.emit(ended)
        return ended

    def _step_box(self, place: names.Place) -> Box:
        own = names.seconds(self._runtime, self._node.common.timeout, place)
        usual = float(Duration.parse(self._class.TIMEOUT))
        if own is None:
            own = min(usual, CLEANUP_STEP_S) if self._part in ("always", "cleanup") else usual
        return nested(self._runtime.clock, self._box, own, "step")

    def _result(self, target: Target, place: names.Place, box: Box, began: float, reentry: Reentry | None, attempt: int) -> StepResult:
        """Run the step's own code; whatever it raises becomes a verdict."""
        if self._runtime.cancel.is_set():
            return StepResult(verdict="interrupted", reason="interrupted before it began")
        try:
            step = names.build(self._runtime, self._node, place)
            if isinstance(step, StepResult):
                return step
            context = Context(self._runtime, self._node, target.target, box, place, began)
            refused = secure(self._runtime, step, context)
            if refused is not None:
                return refused
            box = self._step_box(place)  # anew: waiting for a lease is not the step's own time
            return step.run(Context(self._runtime, self._node, target.target, box, place, began, reentry, attempt))
        except Cancelled:
            return StepResult(verdict="interrupted", reason="interrupted")
        except Unreachable as problem:
            self._runtime.drop(target.target)
            return StepResult(verdict="unreachable", reason=_sentence(problem, problem.stage))
        except CallTimeout as problem:
            return StepResult(verdict="unreachable", reason=_sentence(problem, "link"))
        except RemoteError as problem:
            return StepResult(verdict="refused" if problem.code in ("protected", "busy") else "failed", reason=_sentence(problem, ""))
        except JournalError:
            raise
        except Exception:  # a bug of ours: the run must still clean up, and the report must name it
            self._runtime.journal.save(f"{self._node.id}/traceback.txt", traceback.format_exc().encode())
            last = traceback.format_exc().strip().splitlines()[-1]
            return StepResult(verdict="error", reason=f"a bug in runbook: {last} (evidence/{self._node.id}/traceback.txt)")

    def _end_unrun(self, status: str, verdict: str | None, reason: str, host: str = "") -> StepEnded:
        end = msgspec.structs.replace(_unrun(self._node.id, self._node.type, reason, self._part), status=status, verdict=verdict, host=host)
        self._runtime.emit(end)
        return end


def _unrun(step: str, type: str, reason: str, part: str) -> StepEnded:
    return StepEnded(step=step, type=type, status="unknown", verdict="undecided", reason=reason, seconds=0.0, part=part)


def skipped(node: StepNode, part: str, reason: str) -> StepEnded:
    """The end of a step that was not chosen."""
    return msgspec.structs.replace(_unrun(node.id, node.type, reason, part), status="skipped", verdict=None)


def _marks(runtime: Runtime, target: str) -> dict[str, Any]:
    return {path: msgspec.to_builtins(mark) for path, mark in runtime.marks(target).items()} if target else {}


def _ignored(node: StepNode, verdict: str) -> bool:
    ignore = node.common.ignore_errors
    if ignore is True:
        return verdict == "failed"
    return ignore is not False and verdict in ignore


def _sentence(problem: HostError, stage: str) -> str:
    return (f"{stage}: " if stage else "") + problem.summary + (f"; {problem.hint}" if problem.hint else "")
