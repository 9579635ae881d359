"""Where main threads stand: by their stacks where they were taken, else by the kernel's wait channel."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

from runbook.diagnose.execution import Run, execution
from runbook.diagnose.motion import Key
from runbook.diagnose.stall import stall
from runbook.diagnose.view import View
from runbook.diagnose.wait_lexicon import BLOCKED, FRAMES, TRIVIAL, WAITING_WORDS, WCHAN
from runbook.model.sample import Seen
from runbook.model.waits import StackSample

LINE = re.compile(r":\d+\)$")
ADDRESS = re.compile(r"0x[0-9a-fA-F]+|\+\d+$")
LOOP_LINES = 3
"""A loop that looks at a flag has hardly more lines. One that computes has, as a rule, or calls what has."""
WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_WCHAN = tuple((kind, re.compile(pattern)) for kind, pattern in WCHAN)
_FRAMES = tuple((kind, re.compile(pattern)) for kind, pattern in FRAMES)


class Place(NamedTuple):
    """`kind` of the wait lexicon, empty when unknown; `same` when two looks agree, `looks`: how many of the newest do, `tight`: how many do
    to the line, but for the few lines of a loop that only waits; `varied` when any two differ. Frames normalised."""

    kind: str
    text: str
    source: str
    same: bool
    looks: int
    varied: bool
    frames: tuple[str, ...]
    tight: int = 0

    @property
    def blocked(self) -> bool:
        """Whether it waits, at the same place twice, for something that must come from elsewhere."""
        return self.same and self.kind in BLOCKED


NOWHERE = Place("", "", "", False, 0, False, ())


def places(view: View) -> dict[Key, Place]:
    """The place of each process's main thread."""
    taken = view.once(main_stacks)
    return {run.key: _place(run, taken.get(run.process.pid, [])) for run in view.once(execution).runs}


def main_stacks(view: View) -> dict[int, list[StackSample]]:
    """Main-thread stacks taken since the last strong progress, oldest first, by pid. Wait channels alone are no stacks."""
    since = view.once(stall).since
    found: dict[int, dict[tuple[float, int], StackSample]] = {}
    for sample in view.samples:
        if sample.t >= since and isinstance(sample.stacks, Seen):
            for stack in sample.stacks.value:
                if stack.main and stack.source != "wchan" and stack.frames:
                    found.setdefault(stack.pid, {})[sample.t, stack.look] = stack
    return {pid: [looks[when] for when in sorted(looks)] for pid, looks in found.items()}


def python_threads(view: View, pid: int) -> frozenset[int]:
    """Threads of a process that run Python, as far as a look at its stacks since the last strong progress told."""
    since = view.once(stall).since
    taken = [sample.stacks.value for sample in view.samples if sample.t >= since and isinstance(sample.stacks, Seen)]
    return frozenset(one.tid for stacks in taken for one in stacks if one.pid == pid and one.source != "wchan")


def _place(run: Run, stacks: Sequence[StackSample]) -> Place:
    kernel = wchan_kind(run.wchan)
    if not stacks:
        return Place(kernel, run.wchan, "wchan", run.steady or (run.frozen and bool(run.wchan)), 0, False, ())
    looks = [normalised(stack.frames) for stack in stacks]
    agree = next((count for count, one in enumerate(reversed(looks)) if one != looks[-1]), len(looks))
    words = frame_kind(stacks[-1].frames)
    # What the kernel says is sure, but for a loop or a lock it says less than the frames: a collective waits in one as well. One long
    # sleep stays a sleep, whatever the function around it is called; short ones belong to whatever is polled.
    vague = kernel in ("", "loop", "lock", "recv") or (kernel == "timer" and not run.frozen)
    kind = words if words and (vague or words == "idle") else kernel
    if kind == "waits" and kernel:
        kind = kernel
    tight = _tight([stack.frames for stack in stacks])
    return Place(kind, stacks[-1].frames[0], stacks[-1].source, agree >= 2, agree, len(set(looks)) >= 2, looks[-1], tight)


def _tight(looks: Sequence[Sequence[str]]) -> int:
    """How many of the newest looks find the same callers at the same lines, and the innermost frame within a few lines of one function."""
    lines: list[int] = []
    for frames in reversed(looks):
        found = LINE.search(frames[0])
        same = frames[1:] == looks[-1][1:] and normalised(frames[:1]) == normalised(looks[-1][:1])
        if found is None or not same or max([*lines, int(found[0][1:-1])]) - min([*lines, int(found[0][1:-1])]) > LOOP_LINES:
            break
        lines.append(int(found[0][1:-1]))
    return len(lines)


@functools.lru_cache(maxsize=4096)
def wchan_kind(channel: str) -> str:
    """What a wait channel waits for; empty for none, or one that is not known."""
    if channel in ("", "0"):
        return ""
    return next((kind for kind, pattern in _WCHAN if pattern.search(channel)), "")


def frame_kind(frames: Sequence[str]) -> str:
    """What the innermost frame waits for; where it says nothing, its caller counts. Empty: it may work."""
    for frame in frames[:3]:
        kind = _one_frame(frame)
        if kind:
            return kind
        if frame.split(" ")[0].rsplit(".", 1)[-1] not in TRIVIAL:
            return ""
    return ""


@functools.lru_cache(maxsize=4096)
def _one_frame(frame: str) -> str:
    name, space, place = frame.partition(" ")
    function = name.rsplit(".", 1)[-1]
    kind = next((kind for kind, pattern in _FRAMES if pattern.search(function + space + place)), None)
    if kind is not None:
        return kind
    if "posixpath" in frame or "genericpath" in frame:
        return ""
    return "waits" if {word.lower() for word in WORDS.findall(function)} & WAITING_WORDS else ""


def normalised(frames: Sequence[str]) -> tuple[str, ...]:
    """Frames without line numbers and addresses: function and file."""
    return tuple(ADDRESS.sub("", LINE.sub(")", frame)) for frame in frames)
