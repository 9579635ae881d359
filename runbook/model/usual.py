"""How long a start takes here: what one run measured, and what several of them say together. All times are seconds."""

from __future__ import annotations

import msgspec


class Kin(msgspec.Struct, frozen=True, kw_only=True):
    """What two starts must share before one says anything about the other.

    `gpus`: model and number, as "8 x NVIDIA H200"; empty where nobody saw them. `words`: the command without what differs from run to
    run, as ports and paths of logs.
    """

    host: str
    profile: str
    words: tuple[str, ...]
    gpus: str = ""


class PhaseTime(msgspec.Struct, frozen=True, kw_only=True):
    """How long a start was in a phase, and the longest time in it without progress (null: nobody watched)."""

    name: str
    seconds: float
    quiet_s: float | None = None


class MeasuredStart(msgspec.Struct, frozen=True, kw_only=True):
    """One start that came to its end: from the launch to the first good answer. Without phases where it was watched from too late on."""

    kin: Kin
    ready_s: float
    phases: tuple[PhaseTime, ...] = ()


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """What `runs` starts took. `quiet_s`: the longest time without progress in any of them."""

    name: str
    runs: int
    shortest_s: float
    median_s: float
    longest_s: float
    quiet_s: float | None = None


class Usual(msgspec.Struct, frozen=True, kw_only=True):
    """What earlier starts of the same kin took; `age_s`: how long ago this one was launched when its wait began."""

    age_s: float
    ready: Range
    phases: tuple[Range, ...] = ()
