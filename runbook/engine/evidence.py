"""Evidence before cleanup: when a watched server ends in anything but passed, its bundle is taken before anything may touch it."""

from __future__ import annotations

import traceback

from runbook.engine.journal import JournalError
from runbook.engine.runtime import Runtime
from runbook.hosts.base import Cancelled, HostError
from runbook.model.event import EvidenceSaved, StepEnded
from runbook.model.playbook import StepNode
from runbook.steps.base import Launched
from runbook.steps.bundle import take

SERVER_KEYS = ("server", "log")
"""Keys of a step by which it names the server that it watches; a launch watches its own."""
WORTH = frozenset({"hung", "crashed", "slow", "undecided", "wrong_check", "wrong_server", "invalid_experiment", "failed"})
CERTAIN = frozenset({"hung", "crashed"})
"""Without a diagnosis too: the step has not watched, but its answer is about the server."""


def preserve(runtime: Runtime, node: StepNode, end: StepEnded, prefix: str) -> None:
    """Take the bundle that this end asks for, if any. `prefix` makes file names unique among the step's hosts and loop items.

    What goes wrong is a finding: it never changes how the step ended.
    """
    launched = _watched(runtime, node, end)
    if launched is None or not _wanted(runtime, end):
        return
    key = (launched.step, end.host, launched.state.pid, end.verdict or "")
    if not runtime.first_time(key):
        return

    def save(file: str, data: bytes, about: str) -> str:
        path = runtime.journal.save(f"{node.id}/{prefix}{file}", data)
        runtime.emit(EvidenceSaved(step=node.id, file=path, bytes=len(data), about=about))
        return path

    try:
        host = runtime.host(end.host)
        with runtime.action(node.id, end.host, "collect", {"server": launched.step}) as done:
            bundle = take(host, launched, runtime.options.run, save)
            done(items=bundle.summary(), index=bundle.files[-1]["file"])
    except Cancelled:
        return  # interrupted: cleanup does not wait for evidence
    except HostError as problem:
        runtime.find("no_evidence", f"the evidence of `{launched.step}` could not be taken: {problem.summary}", node.id)
    except JournalError:
        raise
    except Exception:  # a bug of ours: it must not cost the run its rescue and its cleanup
        path = runtime.journal.save(f"{node.id}/{prefix}traceback.txt", traceback.format_exc().encode())
        last = traceback.format_exc().strip().splitlines()[-1]
        runtime.find("no_evidence", f"a bug in runbook kept the evidence of `{launched.step}` from being taken: {last} ({path})", node.id)


def _watched(runtime: Runtime, node: StepNode, end: StepEnded) -> Launched | None:
    """The server that the step was about, when this run knows it on that host."""
    names = [node.id, *(node.body[key] for key in SERVER_KEYS if isinstance(node.body.get(key), str))]
    found = (runtime.state.launches.get((name, end.host)) for name in names)
    return next((launched for launched in found if launched is not None), None)


def _wanted(runtime: Runtime, end: StepEnded) -> bool:
    if not runtime.playbook.collect or runtime.options.check or end.type == "collect":
        return False
    return end.verdict in CERTAIN or (end.verdict in WORTH and end.diagnosis is not None)
