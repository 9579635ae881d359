"""A whole run, from its header to its last event; and the cancel of a suspended one.

The entry takes plain options and a connector, and starts no thread before it is called: the same call runs in this process or in
a worker of its own session.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import runbook
from runbook.engine import names, requests
from runbook.engine.boxes import NO_BOX, nested
from runbook.engine.cleanup import Cleaned, clean_up, hand_over, settle_all
from runbook.engine.journal import JournalError
from runbook.engine.renew import Renewer
from runbook.engine.runner import Ending, Runner, suspends
from runbook.engine.runtime import Runtime
from runbook.engine.signals import Interrupts
from runbook.hosts.base import HostError
from runbook.model.event import FORMAT, Interrupted, MainEnded, RunEnded, RunStarted, RunSuspended
from runbook.model.units import format_duration
from runbook.model.verdict import EXIT_CODES, INTERRUPTED_BY

Ended = TypeVar("Ended", bound="RunEnded | RunSuspended")
Leave = Callable[[list[str], int], None]
"""Called on the second Ctrl-C or SIGTERM with what is left on hosts and the exit code; it does not come back."""


class Execution:
    """One run from start to end or suspension."""

    def __init__(self, runtime: Runtime, leave: Leave) -> None:
        self._runtime = runtime
        self._runner = Runner(runtime)
        self._leave = leave
        self._interrupted_by: str | None = None
        self._asked_by: str | None = None
        self._why = ""
        self._cleaning = False
        self._renewer = Renewer(runtime)
        self._began = runtime.clock.monotonic()
        started = runtime.state.header.t if runtime.state.header else 0.0
        self._before_s = max(0.0, runtime.clock.now() - started) if started else 0.0

    def run(self) -> RunEnded | RunSuspended:
        """Main part, then cleanup or suspension."""
        with self._guarded():
            return self._recording(self._played)

    def resume(self, undone: list[str]) -> RunEnded | RunSuspended:
        """Go on from what the runtime's past says. `undone`: what keepers had cleaned up by themselves: then only the end is left."""
        state = self._runtime.state
        requests.take(Path(self._runtime.options.dir))  # it was meant for the controller that has died
        self._interrupted_by = state.interrupted.by if state.interrupted else None
        with self._guarded():
            if undone:
                return self._recording(lambda: self._expired(undone))
            return self._recording(self._played if state.main is None and state.interrupted is None else self._cleaned_up)

    def _cleaned_up(self) -> RunEnded:
        """The main part was over already."""
        main = self._runtime.state.main
        step, verdict = (main.failed_step, main.verdict) if main else (None, "interrupted")
        return self._finish(self._recorded(step, verdict), step if self._interrupted_by else None)

    def _expired(self, undone: list[str]) -> RunEnded:
        """The run ends as what it was when it was left alone."""
        was = self._runtime.past.suspended
        ending = self._recorded(was.step, was.verdict) if was else None
        if ending is None:
            self._interrupted_by = self._interrupted_by or "the death of its controller"
        self._why = f"its time was over before the resume, and its keeper had cleaned up: {'; '.join(undone)}; nothing was done again"
        return self._finish(ending, was.step if was else None)

    def _recorded(self, step: str | None, verdict: str) -> Ending | None:
        """What ended the main part, from the journal."""
        record = self._runtime.state.steps.get(step or "")
        ends = [end for end in record.ends if end.verdict == verdict] if record else []
        return Ending(verdict, self._runtime.nodes.get(step or ""), ends[-1]) if ends else None

    def _played(self) -> RunEnded | RunSuspended:
        """Main part, then cleanup or suspension."""
        runtime = self._runtime
        box = nested(runtime.clock, NO_BOX, float(runtime.playbook.timeout) if runtime.playbook.timeout else None, "playbook")
        ending = self._runner.nodes(runtime.playbook.steps, box, names.Place(), "main")
        if ending is not None and not self._interrupted_by and (ending.unknown or suspends(runtime, ending)):
            suspended = self._suspend(ending)
            if suspended is not None:
                return suspended
        return self._finish(ending)

    def _recording(self, work: Callable[[], Ended]) -> Ended | RunEnded:
        """Do this; when the journal cannot be written any more, clean up all the same."""
        try:
            return work()
        except JournalError as problem:
            return self._without_journal(problem)

    def release(self) -> RunEnded:
        """End what a run has kept. Its verdict stays as it is."""
        with self._guarded():
            return self._recording(self._released)

    def _released(self) -> RunEnded:
        runtime, was = self._runtime, self._runtime.state.ended
        assert was is not None
        self._cleaning = True
        left = settle_all(runtime, tell=True)
        cleanup = "failed" if left else "passed"
        ended = msgspec.structs.replace(was, t=0.0, n=-1, cleanup=cleanup, left_behind=left, next=_again(runtime, left), kept_until=None)
        runtime.emit(ended)
        return ended

    def cancel(self) -> RunEnded:
        """End a suspended run: `always`, then what is owed."""
        state = self._runtime.state
        step = state.suspended.step if state.suspended else None
        requests.take(Path(self._runtime.options.dir))
        with self._guarded():
            self._interrupted_by = "cancel"
            return self._recording(lambda: self._finish(None, step))

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            with Interrupts(self._first, self._again, self._asked), self._renewer:
                yield
        finally:
            self._runtime.close()

    def _first(self, name: str) -> None:
        if self._cleaning:
            return
        self._interrupted_by = name
        self._runtime.cancel.set()

    def _asked(self) -> bool:
        """Whether another process asks for the cancel of this run."""
        self._asked_by = requests.take(Path(self._runtime.options.dir))
        return self._asked_by is not None

    def _again(self, name: str) -> None:
        owed = list(self._runtime.state.owed.values())
        left = [f"{debt.host}: {debt.kind} of `{debt.step}`" for debt in owed if debt.kind != "keeper"]
        code = INTERRUPTED_BY.get(self._interrupted_by or name, EXIT_CODES["interrupted"])
        self._leave(left or [f"{debt.host}: the run's keeper and its folder" for debt in owed], code)

    def _suspend(self, ending: Ending) -> RunSuspended | None:
        """Hand every host to its keeper. A host that cannot be told is a reason to clean up instead."""
        runtime = self._runtime
        self._renewer.stop()
        try:
            expires = hand_over(runtime)
        except HostError as problem:
            runtime.find("not_suspended", f"the run could not be suspended, so it is cleaned up: {problem.summary}")
            return None
        left = [f"{debt.host}: {debt.kind} of `{debt.step}`, until the run is cancelled or expires" for debt in runtime.state.owed.values()]
        run, after = runtime.options.run, format_duration(runtime.info.suspend_for_s)
        event = RunSuspended(
            verdict=ending.verdict,
            kind=ending.end.kind,
            exit_code=EXIT_CODES[ending.verdict],
            reason=_reason(runtime, ending),
            step=ending.end.step,
            expires=expires,
            left_behind=[line for line in left if ": keeper of" not in line],
            next=[
                f"runbook show {run}",
                *([f"runbook resume {run} --{how}" for how in _choices(ending)] if ending.unknown else [f"runbook resume {run}"]),
                f"runbook cancel {run}  # or it ends by itself {after} after the suspension",
            ],
        )
        runtime.emit(event)
        return event

    def _finish(self, ending: Ending | None, suspended_step: str | None = None) -> RunEnded:
        runtime = self._runtime
        self._cleaning = True
        if runtime.options.keep:
            self._renewer.stop()  # a renewal after the hosts are left to their keepers would end that
        verdict = "interrupted" if self._interrupted_by else ending.verdict if ending else "passed"
        if self._interrupted_by and runtime.state.interrupted is None:
            code = INTERRUPTED_BY.get(self._interrupted_by, EXIT_CODES["interrupted"])
            runtime.emit(Interrupted(by=self._interrupted_by, exit_code=code))
        if self._asked_by:
            runtime.find("cancel_asked", f"the cancel was asked for by {self._asked_by}")
        runtime.fresh_cancel()
        if runtime.state.main is None:
            runtime.emit(MainEnded(verdict=verdict, failed_step=ending.end.step if ending else suspended_step))
        inside = suspended_step or (ending.end.step if ending and verdict == "interrupted" else None)
        cleaned = clean_up(runtime, self._runner, inside)
        ended = self._ended(verdict, ending, cleaned)
        runtime.emit(ended)
        return ended

    def _ended(self, verdict: str, ending: Ending | None, cleaned: Cleaned) -> RunEnded:
        decided_by_cleanup = verdict == "passed" and cleaned.status == "failed"
        word = cleaned.verdict if decided_by_cleanup else verdict
        all_well = "check mode: nothing was changed" if self._runtime.options.check else "every step passed"
        reason = _reason(self._runtime, ending) if ending else all_well
        if self._interrupted_by:
            by = "SIGHUP (its terminal was closed)" if self._interrupted_by == "SIGHUP" else self._interrupted_by
            reason = f"{by}; " + ("cleaned up" if cleaned.status != "failed" else "cleanup is not complete")
        reason = self._why or reason
        if decided_by_cleanup:
            reason = f"the steps passed, but cleanup did not: {cleaned.reason}"
        code = INTERRUPTED_BY.get(self._interrupted_by or "", EXIT_CODES[word])
        run = self._runtime.options.run
        advice = list(ending.end.diagnosis.next) if ending and ending.end.diagnosis else []
        return RunEnded(
            verdict=word,
            kind=ending.end.kind if ending and not decided_by_cleanup else None,
            exit_code=code,
            reason=reason,
            failed_step=ending.end.step if ending else None,
            cleanup=cleaned.status,
            left_behind=[*cleaned.kept, *cleaned.left_behind],
            next=[
                *advice,
                *([] if word == "passed" else [f"runbook show {run}"]),
                *_again(self._runtime, cleaned.left_behind),
                *(_ways(self._runtime) if cleaned.kept_until else ()),
            ],
            kept_until=cleaned.kept_until,
            seconds=self._runtime.clock.monotonic() - self._began + self._before_s,
        )

    def _without_journal(self, problem: JournalError) -> RunEnded:
        """The journal cannot be written any more: clean up all the same, say so, and write the end down if there is room by then."""
        self._cleaning = True
        runtime = self._runtime
        runtime.journal.give_up()
        runtime.fresh_cancel()
        cleaned = clean_up(runtime, self._runner)
        run = runtime.options.run
        reason = f"{problem}; " + ("all was cleaned up" if cleaned.status != "failed" else "cleanup is not complete")
        ended = RunEnded(
            verdict="error",
            exit_code=EXIT_CODES["error"],
            reason=reason,
            cleanup=cleaned.status,
            left_behind=cleaned.left_behind,
            next=[f"runbook show {run}", *_again(runtime, cleaned.left_behind)],
            seconds=runtime.clock.monotonic() - self._began + self._before_s,
        )
        runtime.journal.take_up()
        with contextlib.suppress(JournalError):
            runtime.emit(ended)
        return ended


def _ways(runtime: Runtime) -> list[str]:
    """What can be done with what was kept."""
    run, after = runtime.options.run, format_duration(runtime.info.suspend_for_s)
    return [f"runbook run {runtime.playbook.file} --reuse {run}", f"runbook cancel {run}  # or its keeper ends it {after} after the run"]


def _again(runtime: Runtime, left: list[str]) -> list[str]:
    """What can be done about what was left behind."""
    run = runtime.options.run
    if not left:
        return []
    patched = any(debt.kind == "patch" for debt in runtime.state.owed.values())
    look = [f"runbook restore {run} --list  # what each patched file holds now"] if patched else []
    return [*look, f"runbook cancel {run}  # tries again to clean up"]


def _choices(ending: Ending) -> list[str]:
    return [f"redo {ending.end.step}  # run it again", f"skip {ending.end.step}  # go on after it"]


def _reason(runtime: Runtime, ending: Ending) -> str:
    """The sentence of the step that decided, with its host where there are several."""
    end = ending.end
    several = len({target.target for targets in runtime.playbook.hosts.values() for target in targets}) > 1
    where = f" on {end.host}" if several and end.host else ""
    return f"step `{end.step}` ({end.type}){where}: {end.reason or ending.verdict}"


def header(runtime: Runtime, controller: dict[str, Any]) -> RunStarted:
    """The journal's first line: enough to go on, cancel or re-judge without the playbook file."""
    playbook, options = runtime.playbook, runtime.options
    return RunStarted(
        format=FORMAT,
        run=options.run,
        version=runbook.__version__,
        playbook=playbook.file,
        playbook_text=playbook.text,
        playbook_sha256=hashlib.sha256("".join([playbook.text, *playbook.files.values()]).encode()).hexdigest(),
        name=playbook.name,
        targets={role: [msgspec.to_builtins(target) for target in targets] for role, targets in playbook.hosts.items()},
        vars=playbook.vars,
        overrides=options.overrides,
        secrets=[secret.name for secret in playbook.secrets],
        check=options.check,
        no_suspend=options.no_suspend,
        keep=options.keep,
        reuse=runtime.reused.run if runtime.reused else "",
        argv=options.argv,
        files=playbook.files,
        includes=playbook.includes,
        tags=options.tags,
        skip_tags=options.skip_tags,
        start_at=options.start_at,
        controller=controller,
    )


def execute(runtime: Runtime, leave: Leave, controller: dict[str, Any]) -> RunEnded | RunSuspended:
    """Run a playbook. Writes every event; answers the last one. Raises JournalError when not even the first can be written."""
    try:
        runtime.emit(header(runtime, controller))
    except JournalError as problem:
        raise JournalError(f"the run did not begin, and nothing was done on its hosts: {problem}") from problem
    return Execution(runtime, leave).run()
