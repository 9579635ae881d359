"""How long it usually takes here: phases and silences of earlier starts of the same command, shown beside the one that is watched.

It is never a proof: it tells `late` from `on_track` in a verdict that is slow anyway, and no other rule reads it.
"""

from __future__ import annotations

import re
import shlex
import statistics
from collections.abc import Iterator, Sequence

from runbook.diagnose.view import View
from runbook.model.units import format_duration
from runbook.model.usual import Kin, MeasuredStart, PhaseTime, Range, Usual
from runbook.model.verdict import Evidence

VARIES = re.compile(r"(^|[-_])(ports?|host|addr|address|url|log|logs|log[-_]\w+|\w+[-_]log|key|token|uuid|seed)$", re.IGNORECASE)
"""Flags that say where a server listens and writes, not how long it loads."""
MOST_WORDS, LONGEST_WORD = 200, 200


def kin(host: str, gpus: Sequence[str], profile: str, argv: Sequence[str]) -> Kin:
    """Who a start is comparable with; `gpus`: the name of each GPU."""
    kinds = [f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus)]
    return Kin(host=host, gpus=", ".join(kinds), profile=profile, words=words(argv))


def words(argv: Sequence[str]) -> tuple[str, ...]:
    """The program and its arguments in their order, then its flags sorted, each with its value; without those that only vary."""
    plain, flags = [], []
    for name, value in _arguments(_unwrapped(argv)):
        if not name:
            plain.append(value)
        elif not VARIES.search(name.lstrip("-")):
            flags.append(f"{name}={value}" if value else name)
    return tuple(word[:LONGEST_WORD] for word in (*plain, *sorted(flags)))[:MOST_WORDS]


def related(one: Kin, other: Kin) -> bool:
    """Whether the two are the same kind of start: command, engine, and host or, where both are known, GPUs."""
    if (one.profile, one.words) != (other.profile, other.words):
        return False
    return one.gpus == other.gpus if one.gpus and other.gpus else one.host == other.host


def usual(starts: Sequence[MeasuredStart], age_s: float) -> Usual | None:
    """What these starts say together; None without one."""
    if not starts:
        return None
    seen: dict[str, list[PhaseTime]] = {}
    for start in starts:
        for phase in start.phases:
            seen.setdefault(phase.name, []).append(phase)
    ready = [PhaseTime(name="ready", seconds=start.ready_s) for start in starts]
    return Usual(age_s=age_s, ready=_range(ready), phases=tuple(map(_range, seen.values())))


def longest_each(rows: Sequence[PhaseTime]) -> tuple[PhaseTime, ...]:
    """One row a phase: a start may enter it more than once, as for the draft model after the target model."""
    found: dict[str, PhaseTime] = {}
    for row in rows:
        if row.name not in found or row.seconds > found[row.name].seconds:
            found[row.name] = row
    return tuple(found.values())


def spoken(one: Range) -> str:
    """As "4m–6m here (5 runs)"."""
    low, high = format_duration(one.shortest_s), format_duration(one.longest_s)
    return f"{low if low == high else f'{low}–{high}'} here ({one.runs} run{'' if one.runs == 1 else 's'})"


def usually(view: View) -> str:
    """What the phase that it is in usually takes, else the whole start; empty when that is not known, or it is ready."""
    known = view.question.usual
    if known is None or view.course.ready_at is not None:
        return ""
    phase = _phase(view)
    return f"usually {spoken(phase)}" if phase is not None else f"usually ready after {spoken(known.ready)}"


def late(view: View) -> str:
    """In which way it takes longer than any earlier start did, for people; empty when it does not, or none is known."""
    known = view.question.usual
    if known is None or view.course.ready_at is not None:
        return ""
    up_s, phase = known.age_s + view.elapsed_s, _phase(view)
    if up_s > known.ready.longest_s:
        return f"{format_duration(up_s)} after its start, and it is usually ready after {spoken(known.ready)}"
    in_phase_s = view.now - entered(view)
    if phase is not None and in_phase_s > phase.longest_s:
        return f"{format_duration(in_phase_s)} in this phase, which usually takes {spoken(phase)}"
    return ""


def evidence(view: View) -> tuple[Evidence, ...]:
    """What earlier starts took and how long they were silent, to be read beside what was seen."""
    text, phase = usually(view), _phase(view)
    if not text:
        return ()
    rows = [Evidence(signal="usual_time", value=text, points_to="slow" if late(view) else "nothing")]
    if phase is not None and phase.quiet_s is not None:
        rows.append(Evidence(signal="usual_silence", value=round(phase.quiet_s, 3), unit="s"))
    return tuple(rows)


def _phase(view: View) -> Range | None:
    known = view.question.usual
    return next((one for one in known.phases if one.name == view.course.current), None) if known is not None else None


def entered(view: View) -> float:
    """When the phase that it is in was entered by the first of the ranks that are in it."""
    current = view.course.current
    began = view.now
    for entry in reversed(view.course.reached):
        if entry.phase != current:
            break
        began = min(began, entry.began)
    return began


def _range(rows: Sequence[PhaseTime]) -> Range:
    times = [row.seconds for row in rows]
    silences = [row.quiet_s for row in rows if row.quiet_s is not None]
    return Range(
        name=rows[0].name,
        runs=len(rows),
        shortest_s=min(times),
        median_s=round(statistics.median(times), 3),
        longest_s=max(times),
        quiet_s=max(silences) if silences else None,
    )


def _unwrapped(argv: Sequence[str]) -> list[str]:
    """The command itself: the text of a shell line as words, the program without its folder."""
    found = list(argv)
    if len(found) == 3 and found[1] == "-c" and found[0].rsplit("/", 1)[-1] in ("sh", "bash"):
        try:
            found = shlex.split(found[2])
        except ValueError:
            found = found[2].split()  # an open quote
    return [found[0].rsplit("/", 1)[-1], *found[1:]] if found else []


def _arguments(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(flag, value), value empty where none follows; ("", word) for an argument without a flag."""
    place = 0
    while place < len(argv):
        word, place = argv[place], place + 1
        if not word.startswith("--"):
            yield "", word
        elif "=" in word:
            name, _, value = word.partition("=")
            yield name, value
        elif place < len(argv) and not argv[place].startswith("-"):
            yield word, argv[place]
            place += 1
        else:
            yield word, ""
