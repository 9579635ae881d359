"""Reading one log line: what it means to a profile. Lines are classified once and remembered; the result depends on nothing else."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

import msgspec

from runbook.diagnose.fatal import is_fatal
from runbook.model.profile import Profile
from runbook.model.sample import Sample, Seen

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COUNT = re.compile(r"(?<![\d/.:-])(\d{1,15})(?:/| of )(\d{1,15})(?![\d/.:-])")
PERCENT = re.compile(r"(?<![\d.])(\d{1,3})(?:\.\d+)?%")
MASK = re.compile(
    r"0x[0-9a-fA-F]+|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{8,}\b"
    r"|\b(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{5,}\b|\d+(?:[.:]\d+)*"
)
"""What changes from line to line without saying anything: numbers, times, addresses, ids of letters and digits."""
BAR_DRAWING = re.compile(r"\|[^|]*\|")
KEEP = 50_000
LONGEST = 2_000


class Bar(NamedTuple):
    """A counter that goes towards a total, as `12/22` or `37%`; `name` is the text around it with its numbers masked."""

    name: str
    done: int
    total: int


class Line(NamedTuple):
    """A line after ANSI is stripped. `text` whole, `msg` without the profile's prefix, `rank` the prefix's rank label ("TP0").

    `begins`, `ends`: phases that this line opens or closes; `moves`: phases whose progress line it is; `fatal`: it tells of a fault.
    """

    text: str
    msg: str
    rank: str
    noise: bool
    template: str
    bar: Bar | None
    begins: tuple[str, ...]
    ends: tuple[str, ...]
    moves: tuple[str, ...]
    ready: bool
    fatal: bool


class TimedLine(NamedTuple):
    """A line and the controller time of the sample that brought it."""

    t: float
    line: Line


class _Phase(NamedTuple):
    id: str
    begin: re.Pattern[str] | None
    end: re.Pattern[str] | None
    progress: re.Pattern[str] | None


class Matcher:
    """A profile with its regexes compiled."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.cause = {kind: re.compile(text) for kind, text in profile.cause.items()}
        self.effect = {kind: re.compile(text) for kind, text in profile.effect.items()}
        self._prefix = _compiled(profile.line)
        self._ready = _compiled(profile.ready)
        self._noise = [re.compile(text) for text in profile.noise]
        self._phases = [
            _Phase(phase.id, _compiled(phase.begin or phase.mark), _compiled(phase.end), _compiled(phase.progress))
            for phase in profile.phases
        ]
        self.read = functools.lru_cache(maxsize=KEEP)(self._read)

    def _read(self, raw: str) -> Line:
        text = ANSI.sub("", raw[:LONGEST]).strip("\r\n")
        found = self._prefix.search(text) if self._prefix else None
        groups = found.groupdict() if found else {}
        message = groups.get("msg")
        message = text if message is None else message
        noise = any(pattern.search(text) for pattern in self._noise)
        return Line(
            text=text,
            msg=message,
            rank=(groups.get("rank") or "").strip(),
            noise=noise,
            template=MASK.sub("#", BAR_DRAWING.sub("|", message)).strip(),
            bar=None if noise else _bar(message),
            begins=tuple(phase.id for phase in self._phases if phase.begin and phase.begin.search(text)),
            ends=tuple(phase.id for phase in self._phases if phase.end and phase.end.search(text)),
            moves=() if noise else tuple(phase.id for phase in self._phases if phase.progress and phase.progress.search(text)),
            ready=bool(self._ready and self._ready.search(text)),
            fatal=is_fatal(text) or any(one.search(text) for one in (*self.cause.values(), *self.effect.values())),
        )


def matcher(profile: Profile) -> Matcher:
    """The compiled form of a profile, made once for equal profiles."""
    return _matcher(msgspec.json.encode(profile, enc_hook=float))


@functools.lru_cache(maxsize=16)
def _matcher(encoded: bytes) -> Matcher:
    return Matcher(msgspec.json.decode(encoded, type=Profile, dec_hook=lambda kind, value: kind(value)))


def log_lines(samples: list[Sample], rules: Matcher) -> list[TimedLine]:
    """Every log line of the samples, in order, as the profile reads it. A stretch that is sent again counts once."""
    found: list[TimedLine] = []
    taken: dict[tuple[str, int, int], int] = {}
    for sample in samples:
        if isinstance(sample.log, Seen):
            log = sample.log.value
            if log.rotated:
                taken.clear()
            place = (log.path, log.inode, log.offset)
            known = taken.get(place, 0)
            found.extend(TimedLine(sample.t, rules.read(raw)) for raw in log.lines[known:])
            taken[place] = max(known, len(log.lines))
    return found


def _compiled(text: str) -> re.Pattern[str] | None:
    return re.compile(text) if text else None


def _bar(text: str) -> Bar | None:
    counts = [found for found in COUNT.finditer(text) if max(2, int(found[1])) <= int(found[2])]
    if counts:
        # Of several pairs (a date is one too) the one that a bar's `[elapsed<left` follows; else the last.
        found = next((pair for pair in counts if text[pair.end() :].lstrip().startswith("[")), counts[-1])
        return Bar(_around(text, found), int(found[1]), int(found[2]))
    percent = PERCENT.search(text)
    if percent and int(percent[1]) <= 100:
        return Bar(_around(text, percent), int(percent[1]), 100)
    return None


def _around(text: str, found: re.Match[str]) -> str:
    """What names a bar: the words before its first number. The words behind it hold rates that change."""
    before = PERCENT.split(text[: found.start()])[0]
    return MASK.sub("#", BAR_DRAWING.sub("", before)).strip(" :|([") or "progress"
