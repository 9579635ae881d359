"""What the records of a patch say about a window: fired, not_reached, not_armed or unseen. Pure.

a hit in the window                                  -> fired
nothing could be read                                -> unseen
no process of the run loaded these bytes             -> not_armed
loaded, no hit, another explanation is left          -> unseen
loaded, no hit, every other explanation is excluded  -> not_reached
"""

from __future__ import annotations

import msgspec

from runbook.model.sample import Blind
from runbook.probes.explanations import explanations, not_armed, swallowed
from runbook.probes.reading import Armed, Channel, Hit
from runbook.probes.view import View


class Excluded(msgspec.Struct, frozen=True):
    """Another explanation of the silence, and what excludes it."""

    explanation: str
    by: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """`left` are the explanations that nothing excludes; `reason` is for people. `missing`: of `fired`, why there may be more hits."""

    outcome: str
    reason: str
    hits: tuple[Hit, ...] = ()
    imports: tuple[Armed, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    left: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def judge(view: View) -> Outcome:
    """The first row of the table above that holds."""
    hits = tuple(hit for hit in view.channel.hits if view.since - view.error_s <= hit.time <= view.until + view.error_s)
    imports = tuple(armed for armed in view.channel.armed if armed.sha256 == view.sha256)
    if hits:
        pids = sorted({hit.pid for hit in hits})
        reason = f"{len(hits)} hit{'s' if len(hits) > 1 else ''} in the window, from pid {', '.join(map(str, pids))}"
        missing = tuple(f"{name}: {why}" for name, _, why in swallowed(view) if why)
        return Outcome(outcome="fired", reason=reason, hits=hits, imports=imports, missing=missing)
    if isinstance(view.side, Blind) and isinstance(view.log, Blind):
        return Outcome(outcome="unseen", reason=f"no record could be read: {view.side.reason}; {view.log.reason}", left=(view.side.reason,))
    if not imports:
        outcome, why = not_armed(view)
        said = "was not loaded" if outcome == "not_armed" else "has sent no report, but that proves nothing"
        return Outcome(outcome=outcome, reason=f"the patched file {view.path} {said}: {why}", left=(why,))
    rows = list(explanations(view, imports))
    excluded = tuple(Excluded(explanation, by) for explanation, by, holds in rows if not holds)
    left = tuple(f"{explanation}: {holds}" for explanation, _, holds in rows if holds)
    if left:
        reason = f"no hit in the window, but that proves nothing: {left[0]}"
        return Outcome(outcome="unseen", reason=reason, imports=imports, excluded=excluded, left=left)
    alive = frozenset() if isinstance(view.alive, Blind) else view.alive.value
    pids = sorted({armed.pid for armed in imports if (armed.pid, armed.start) in alive})
    reason = f"pid {', '.join(map(str, pids))} loaded the patched file and did not reach a probe in the window"
    return Outcome(outcome="not_reached", reason=reason, imports=imports, excluded=excluded)


def by_process(view: View) -> tuple[tuple[Armed, Outcome], ...]:
    """The same judgement of each process that loaded the patched bytes, on its own records."""
    found = {(armed.pid, armed.start): armed for armed in view.channel.armed if armed.sha256 == view.sha256}
    return tuple((armed, judge(msgspec.structs.replace(view, channel=_of(view.channel, armed)))) for armed in found.values())


def _of(channel: Channel, armed: Armed) -> Channel:
    """The records of one process. What its ancestors reported of the import and of classes counts for it too."""
    mine = (armed.pid, armed.start)
    return msgspec.structs.replace(
        channel,
        armed=tuple(one if (one.pid, one.start) == mine else msgspec.structs.replace(one, sha256="") for one in channel.armed),
        hits=tuple(one for one in channel.hits if (one.pid, one.start) == mine),
        silences=tuple(one for one in channel.silences if (one.pid, one.start) == mine),
    )
