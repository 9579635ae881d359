"""When a keeper has to act by itself. Pure: times are seconds on any one clock.

a controller renews ──> nothing is due
no renewal for undo_after of a patch           -> undo: stop `at_end: stop` launches, restore every patch
no renewal for suspend_for of a launch         -> lost: stop them; patches wait for their own time
suspended, and the expiry is reached           -> expiry: as undo; until then neither of the two counts
nothing is owed and nobody renewed for idle_s  -> idle: leave
"""

from typing import NamedTuple, Optional, Sequence


class Due(NamedTuple):
    """The next thing to do by itself: undo, lost, expiry or idle, and when."""

    at: float
    why: str


def next_due(
    renewed: float, expires: Optional[float], suspend_for: Sequence[float], undo_after: Sequence[float], idle_s: float, watched: bool
) -> Due:
    """What falls due first.

    suspend_for: of each live `at_end: stop` launch; undo_after: of each open patch that can still be restored; watched: whether any
    launch lives, since only its parent learns how it ended.
    """
    owed = bool(suspend_for or undo_after)
    if expires is not None:
        return Due(expires, "expiry")
    if not owed:
        return Due(renewed + idle_s, "idle") if not watched else Due(float("inf"), "idle")
    lost = renewed + min(suspend_for) if suspend_for else float("inf")
    undo = renewed + min(undo_after) if undo_after else float("inf")
    return Due(undo, "undo") if undo <= lost else Due(lost, "lost")
