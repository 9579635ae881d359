"""The progress vector: what moved between two samples. CPU is no part of it, since a process that spins for ever burns CPU too.

Only a difference between two readings of the same source counts; a reading that could not be taken is neither motion nor rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from runbook.diagnose.byte_progress import byte_motions
from runbook.diagnose.child_progress import child_motions
from runbook.diagnose.counter_progress import counter_motions
from runbook.diagnose.log_progress import LogMotions
from runbook.diagnose.motion import Key, Motion, rows
from runbook.model.sample import Blind, Sample, Seen

NOT_ASKED = ("not asked", "not sampled")


def motions(samples: Sequence[Sample], log: LogMotions) -> tuple[Motion, ...]:
    """All that moved, in time order."""
    found = [*log.motions, *byte_motions(samples), *child_motions(samples), *counter_motions(samples)]
    return tuple(sorted(found, key=lambda motion: motion.t))


def hidden(samples: Sequence[Sample], history: Sequence[Sample], ignore: frozenset[Key] = frozenset()) -> tuple[str, ...]:
    """Sources of progress that could not be read somewhere in `samples`, although the history asks them.

    `ignore`: processes, as (pid, start), whose own counters do not matter. A GPU tool that never answered hides nothing that bytes,
    pages and the log would not show as well, so it counts only where it has answered before. The dead have no counters.
    """
    blind: dict[str, None] = {}
    for source in ("processes", "log", "gpus"):
        if source == "gpus":
            asked = any(isinstance(sample.gpus, Seen) for sample in history)
        else:
            asked = any(not unasked(getattr(sample, source)) for sample in history)
        for sample in samples:
            outcome = getattr(sample, source)
            if isinstance(outcome, Blind) and asked and not (source == "gpus" and unasked(outcome)):
                blind[f"{source}: {outcome.reason}"] = None
    for source in ("io", "mapped_weights"):
        for sample in samples:
            for key, process in rows(sample).items():
                outcome = getattr(process, source)
                if key not in ignore and process.state not in "ZX" and isinstance(outcome, Blind) and not unasked(outcome):
                    blind[f"{source} of pid {process.pid}: {outcome.reason}"] = None
    return tuple(blind)


def unasked(outcome: object) -> bool:
    """Whether a source was left out on purpose: nobody wanted it at this look."""
    return isinstance(outcome, Blind) and outcome.reason in NOT_ASKED
