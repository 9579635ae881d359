"""The end of a run: `always`, then what is still owed, newest first: launches, patches, keepers. Each is tried, whatever failed.

What cannot be undone is named in `left_behind`; nothing is dropped in silence.
"""

from __future__ import annotations

from typing import NamedTuple

from runbook.engine import names
from runbook.engine.boxes import NO_BOX
from runbook.engine.runner import Ending, Runner
from runbook.engine.runtime import Runtime
from runbook.engine.state import keeper_run
from runbook.hosts.base import Host, HostError, Unreachable
from runbook.model.event import EvidenceSaved, Owed, Settled
from runbook.model.playbook import BlockNode, Node
from runbook.model.units import format_size
from runbook.model.verdict import worst
from runbook.steps.base import Launched
from runbook.steps.kill import end, launch_processes, others, split, tell_keeper, widen
from runbook.steps.restore import UNDONE, not_undone

LADDER = ("TERM 15s", "KILL 10s")
LOG_CAP = 64 * 2**20
PIECE = 4 * 2**20


class Cleaned(NamedTuple):
    """How cleanup went: passed, failed or none; the verdict of what failed in it; and what stays on hosts."""

    status: str
    verdict: str
    reason: str
    left_behind: list[str]
    kept: list[str] = []
    """What was asked to stay, on hosts too."""
    kept_until: float | None = None


def clean_up(runtime: Runtime, runner: Runner, suspended_step: str | None = None) -> Cleaned:
    """Run `always` (of the blocks around a suspended step first), then settle every debt."""
    blocks = open_blocks(runtime.playbook.steps, suspended_step) if suspended_step else []
    endings: list[Ending] = []
    for block in blocks:
        endings += runner.each(block.always, NO_BOX, names.around(runtime, block.id).enter(block), "always")
    runtime.keeping = runtime.options.keep
    endings += runner.each(runtime.playbook.always, NO_BOX, names.Place(), "always")
    runtime.keeping = False
    had_debts = bool(runtime.state.owed)
    kept, until = keep_all(runtime) if runtime.options.keep else ([], None)
    staying = [debt for debt in runtime.state.owed.values() if debt.detail.get("at_end") == "keep"]
    left = [] if kept else settle_all(runtime)
    kept += [_stays(runtime, debt) for debt in staying if runtime.state.settled.get(debt.id) == "kept"]
    missed = [ending for ending in endings if _never_there(runtime, ending)]
    endings = [ending for ending in endings if ending not in missed]
    failed = bool(endings or left)
    tried = bool(runtime.playbook.always or blocks) and (not missed or bool(runtime.state.hosts))
    did_anything = had_debts or tried
    verdict = worst([ending.verdict for ending in endings]) if endings else "failed" if left else "passed"
    reason = endings[0].end.reason if endings else f"left behind: {left[0]}" if left else ""
    return Cleaned("failed" if failed else "passed" if did_anything else "none", verdict, reason, left, kept, until)


def _never_there(runtime: Runtime, ending: Ending) -> bool:
    """Whether a step of `always` only missed hosts that this run never reached: nothing of it can be there, and its main part has told."""
    main, record = runtime.state.main, runtime.state.steps.get(ending.end.step)
    if record is None or main is None or main.verdict == "passed":
        return False
    bad = [end for end in record.ends if end.verdict not in (None, "passed") and not end.ignored]
    return all(end.verdict == "unreachable" and end.host not in runtime.state.hosts for end in bad)


def keep_all(runtime: Runtime) -> tuple[list[str], float | None]:
    """Hand what the run made to its keepers, until the time of a suspension is over; answers what stays, and until when.

    A host that cannot be told is a reason to clean up instead: then nothing is kept.
    """
    try:
        expires = hand_over(runtime)
    except HostError as problem:
        runtime.find("not_kept", f"what was made could not be left to its keeper, so it is cleaned up: {problem.summary}")
        return [], None
    debts = [debt for debt in runtime.state.owed.values() if debt.kind != "keeper"]
    for debt in debts:
        launched = runtime.state.launches.get((debt.step, debt.host))
        if debt.kind == "launch" and launched is not None:
            save_log(runtime, runtime.host(debt.host), launched)
    return [f"{debt.host}: {_what(runtime, debt)}, kept as asked" for debt in debts], expires if debts else None


def hand_over(runtime: Runtime) -> float:
    """Leave every host to its keepers for the time of a suspension; answers its end (controller unix s). Raises HostError."""
    expires = runtime.clock.now() + runtime.info.suspend_for_s
    for name, run in sorted(
        {(debt.host, keeper_run(debt, runtime.options.run)) for debt in runtime.state.owed.values() if debt.kind == "keeper"}
    ):
        host = runtime.host(name)
        host.suspend(run, expires + host.facts.clock_offset_s)
    return expires


def open_blocks(nodes: tuple[Node, ...], step: str) -> list[BlockNode]:
    """The blocks around a step of the main part, innermost first."""
    for node in nodes:
        if isinstance(node, BlockNode):
            for part in (node.steps, node.rescue):
                if any(inner.id == step for inner in part):
                    return [node]
                found = open_blocks(part, step)
                if found:
                    return [*found, node]
    return []


def settle_all(runtime: Runtime, tell: bool = False) -> list[str]:
    """Pay every debt, newest first, keepers last. Answers what stays. `tell`: each one that was paid is a finding."""
    left: list[str] = []
    newest_first = list(reversed(runtime.state.owed.values()))
    for debt in [*(d for d in newest_first if d.kind != "keeper"), *(d for d in newest_first if d.kind == "keeper")]:
        try:
            left += _pay(runtime, debt)
            if tell and debt.kind != "keeper" and (how := runtime.state.settled.get(debt.id)):
                runtime.find("kept_ended", f"{debt.host}: {_what(runtime, debt)}: {_HOW.get(how, how)}", debt.step)
        except HostError as problem:
            left.append(f"{debt.host}: {_what(runtime, debt)}: {problem.summary}")
    return left


def _pay(runtime: Runtime, debt: Owed) -> list[str]:
    """Pay one debt; over a fresh connection when the one that stands has died. Paying twice does no harm."""
    try:
        return _PAY[debt.kind](runtime, runtime.host(debt.host), debt)
    except Unreachable:
        runtime.drop(debt.host)
        return _PAY[debt.kind](runtime, runtime.host(debt.host), debt)


def _what(runtime: Runtime, debt: Owed) -> str:
    launched = runtime.state.launches.get((debt.step, debt.host))
    patched = runtime.state.patches.get((debt.step, debt.host))
    if debt.kind == "launch":
        return f"server of `{debt.step}`" + (f" (pid {launched.state.pid})" if launched else "")
    if debt.kind == "patch":
        return f"patch of `{debt.step}`" + (f" in {patched.path}" if patched else "")
    return "the run's keeper and its folder"


def _stop_launch(runtime: Runtime, host: Host, debt: Owed) -> list[str]:
    run = keeper_run(debt, runtime.options.run)
    launched = runtime.state.launches.get((debt.step, debt.host))
    # A launch may have begun and never been told of: then its keeper knows.
    state = launched.state if launched else next((known for known in host.keeper(run).launches if known.id == debt.step), None)
    if state is None:
        runtime.emit(Settled(id=debt.id, how="gone"))
        return []
    if debt.detail.get("at_end") == "keep":
        runtime.emit(Settled(id=debt.id, how="kept"))
        return []
    table = host.processes(run)
    seeds = launch_processes(table, state.pid, state.start, state.sid)
    spare = others(host, run, _ending(runtime, debt))
    targets, _ = split(widen(seeds, table, run, spare), ())
    if targets:
        tell_keeper(host, run, debt.step, targets)
        with runtime.action(debt.step, debt.host, "stop", {"pids": [target.pid for target in targets]}) as done:
            _, report = end(host, targets, LADDER, run, run, spare)
            done(gone=len(report.gone), left=list(report.left))
        if report.left:
            return [f"{debt.host}: pid {row['pid']} of `{debt.step}` ({row.get('why', 'alive')})" for row in report.left]
    runtime.emit(Settled(id=debt.id, how="stopped" if targets else "gone"))
    return []


def _ending(runtime: Runtime, debt: Owed) -> set[str]:
    """The launches that end with this one: others are kept, or are a run's from which this one was taken over."""
    run = keeper_run(debt, runtime.options.run)
    owed = [other for other in runtime.state.owed.values() if other.kind == "launch" and other.host == debt.host]
    return {other.step for other in owed if other.detail.get("at_end") != "keep" and keeper_run(other, runtime.options.run) == run}


def _stays(runtime: Runtime, debt: Owed) -> str:
    """A server whose launch says `at_end: keep`: asked for, so it is told and no failure of the cleanup."""
    launched = runtime.state.launches.get((debt.step, debt.host))
    log = f", log {launched.state.log}" if launched else ""
    return f"{debt.host}: {_what(runtime, debt)}, kept as asked{log}"


def _restore_patch(runtime: Runtime, host: Host, debt: Owed) -> list[str]:
    patched = runtime.state.patches.get((debt.step, debt.host))
    ids = [patched.record.id] if patched else [debt.step]
    left = []
    with runtime.action(debt.step, debt.host, "restore", {"ids": ids}) as done:
        reports = host.restore(keeper_run(debt, runtime.options.run), ids)
        done(states=[report.state for report in reports])
    for report in reports:
        if report.state not in UNDONE:
            left.append(f"{debt.host}: {not_undone(report)}; it was left alone")
        elif report.note and report.state != "already":
            runtime.find("patch_undone", f"{debt.host}: {report.path}: {report.note}", debt.step)
    if not left:
        runtime.emit(Settled(id=debt.id, how="restored"))
    return left


def _retire_keeper(runtime: Runtime, host: Host, debt: Owed) -> list[str]:
    own = runtime.options.run
    run = keeper_run(debt, own)
    for launched in runtime.state.launches.values():
        if launched.host == debt.host and not launched.attached and (launched.run or own) == run:
            save_log(runtime, host, launched)
    if any(other.host == debt.host and other.kind != "keeper" and keeper_run(other, own) == run for other in runtime.state.owed.values()):
        return []  # what is still owed needs its keeper and its records
    if run != own and (host.open_patches(run) or any(launch.ended is None for launch in host.keeper(run).launches)):
        host.renew(run, by=run)
        runtime.emit(Settled(id=debt.id, how="given back"))
        return []  # the other run still has something there that this one did not take over
    with runtime.action(debt.step, debt.host, "retire", {}) as done:
        left = host.retire(run)
        done(left=left)
    kept = {launched.state.log for launched in runtime.state.launches.values() if launched.host == debt.host}
    staying = [f"{debt.host}: {what}" for what in left if what not in kept]
    if not staying:  # else a cancel tries again
        runtime.emit(Settled(id=debt.id, how="gone"))
    return staying


_HOW = {"gone": "was gone already", "kept": "left as its launch asked"}
_PAY = {"launch": _stop_launch, "patch": _restore_patch, "keeper": _retire_keeper}


def save_log(runtime: Runtime, host: Host, launched: Launched) -> None:
    """Bring what a server wrote in this run into evidence/, before its file goes."""
    begin = launched.state.log_offset
    if runtime.options.unmasked:
        unset = ", ".join(runtime.options.unmasked)
        runtime.find("log_not_fetched", f"{launched.state.log}: it cannot be masked, since {unset} is not set now", launched.step)
        return
    try:
        size = host.read(launched.state.log, 0, 0).size
        if size - begin > LOG_CAP:
            runtime.find(
                "log_cut", f"{launched.state.log}: only the last {format_size(LOG_CAP)} of {format_size(size)} were fetched", launched.step
            )
            begin = size - LOG_CAP
        data = b""
        while begin + len(data) < size:
            piece = host.read(launched.state.log, begin + len(data), PIECE).data
            if not piece:
                break
            data += piece
    except HostError as problem:
        runtime.find("log_not_fetched", f"{launched.state.log}: {problem.summary}", launched.step)
        return
    several = len(names.targets(runtime, runtime.nodes[launched.step])) > 1
    name = f"{launched.step}/{launched.host + '-' if several else ''}server.log"
    runtime.emit(
        EvidenceSaved(step=launched.step, file=runtime.journal.save(name, data), bytes=len(data), about="the server's log in this run")
    )
