"""Who may end a process that stands, so that whoever waits for it goes on: a timer of its own, or who started it and waits only so long.

A shell, an init, a launcher in another language wait as long as it takes, and so do the engines' own parents; a script in Python may have
a limit: `subprocess.run(timeout=60)`, a timer that kills. It has none where each of its threads waits without one, or only logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from runbook.diagnose.calls import FAR_ENDED, at_calls, has_timer, waits_of
from runbook.diagnose.family import ancestors, everyone
from runbook.diagnose.loops import closed, stacks_of
from runbook.diagnose.view import View
from runbook.model.sample import ProcessSample
from runbook.model.waits import CallSample


def may_be_ended(view: View, pids: Iterable[int]) -> bool:
    """Whether one of these may end by a timer of its own or by who started it. The main process's end is the server's."""
    return any(True for _ in enders(view, pids))


def enders(view: View, pids: Iterable[int]) -> Iterator[str]:
    """Each of those, in words."""
    chosen = sorted({pid for pid in pids if view.main is None or pid != view.main.pid})
    for pid in chosen:
        if has_timer(view, pid):
            yield f"a timer of its own may end pid {pid}, and who started it would go on"
    yield from starters(view, chosen)


def starters(view: View, pids: Iterable[int]) -> Iterator[str]:
    """Processes above these that may end them, in words."""
    chosen = set(pids)
    for process in view.once(everyone).values():
        if process.pid in chosen:
            for above in ancestors(view, process):
                if above.pid not in chosen and _has_a_limit(view, above):
                    yield f"pid {above.pid} `{above.title.strip()[:40]}`, which started pid {process.pid}, may end it"


def _has_a_limit(view: View, process: ProcessSample) -> bool:
    known = view.profile.processes.main
    if known and re.search(known, process.title):
        return False
    waits = waits_of(view, process.pid)
    if waits is not None and waits.alarm:
        return True
    calls, loops = view.once(at_calls), view.once(closed)
    ours = [tid for tid in view.once(stacks_of) if tid[0] == process.pid]
    return any(tid not in loops and not _is_endless(calls.get(tid)) for tid in ours)


def _is_endless(call: CallSample | None) -> bool:
    return call is not None and not call.timed and (call.private or call.call in (*FAR_ENDED, "child"))
