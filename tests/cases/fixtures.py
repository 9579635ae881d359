"""A case's log excerpt as a log reader gets it: lines at the times that they carry, other sources beside it, nothing else visible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from runbook.diagnose.lines import Matcher
from runbook.model.profile import Profile
from runbook.model.question import Question
from runbook.model.sample import Blind, LogSample, Sample, Seen
from tests.cases.telling import KNOWN, T0, Told

CLOCK = re.compile(r"(?<![\d:.])([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?![\d:])")
KERNEL = re.compile(r"^\[\s*\d+\.\d+\] ")
APART_S = 10.0
LATER_S = 300.0
SILENT_S = 600.0
"""Judged once a second after the last line, and again after such a silence."""
UNSEEN = Blind("there is only a log")


class Part(NamedTuple):
    """A stretch of one source; `title` is its separator line, empty for the first."""

    title: str
    text: str

    @property
    def source(self) -> str:
        """log, next_log (of another life), kernel, or other: a table or a second file, which a log reader does not have."""
        if re.search(r"kernel", self.title) or (self.text.strip() and all(KERNEL.match(line) for line in self.text.strip().splitlines())):
            return "kernel"
        if re.match(r"life \d", self.title):
            return "next_log"
        return "other" if self.title else "log"


def parts(fixture: str) -> list[Part]:
    """The fixture at its separators."""
    found, title, lines = [], "", []
    for line in [*fixture.split("\n"), "---"]:
        if line.startswith("---"):
            found += [Part(title, "\n".join(lines))] if "".join(lines).strip() else []
            title, lines = line.strip("- "), []
        else:
            lines.append(line)
    return found


def timed(text: str, second: float) -> Iterator[tuple[float, str]]:
    """Lines with the second at which they came: as they say themselves, else ten seconds after the one before."""
    origin: float | None = None
    for line in re.split(r"\r|\n", text):
        if not line.strip():
            continue
        found = CLOCK.search(line)
        if found:
            said = float(found[1]) * 3600 + float(found[2]) * 60 + float(found[3])
            origin = said - second - APART_S if origin is None else origin
            second = max(second, said - origin)
        else:
            second += APART_S
        yield second, line


def read(case: dict[str, Any], silent_s: float = 1.0) -> Told:
    """What a reader of that log has, so long after its last line."""
    samples, second, life, offset = [], 0.0, 0, 0
    for part in parts(case["fixture"]):
        if re.search(r"later", part.title):
            second += LATER_S
        if part.source == "next_log":
            life, offset = life + 1, 0
        for when, line in timed(part.text, second):
            second = when
            sources: dict[str, Any] = {"processes": UNSEEN, "exit": UNSEEN}
            if part.source == "kernel":
                sources |= {"kernel": Seen((line,)), "log": Blind("not asked")}
            elif part.source == "other":
                continue
            else:
                end = offset + len(line) + 1
                sources["log"] = Seen(
                    LogSample(
                        path="/tmp/s.log", inode=7 + life, size=end, offset=offset, end=end, lines=(line,), rotated=offset == 0 and life > 1
                    )
                )
                offset = end
            samples.append(Sample(t=T0 + second, host="gpu", host_t=T0 + second, boot_id="b", server="server", **sources))
    box = second + silent_s
    samples.append(Sample(t=T0 + box, host="gpu", host_t=T0 + box, boot_id="b", server="server", processes=UNSEEN, exit=UNSEEN))
    return Told(samples, guess(case["fixture"]), Question(about="healthy", since=T0, box_s=box, final=True))


def guess(text: str) -> Profile:
    """The profile whose marks most lines hold; `generic` when none does, or when two hold as many."""
    lines = [line for line in re.split(r"\r|\n", text) if line.strip()]
    scores = {name: _score(KNOWN.read(name), lines) for name in KNOWN.names() if name not in ("generic", "lab")}
    best = sorted(scores, key=lambda name: -scores[name])
    clear = scores[best[0]] > scores[best[1]]
    return KNOWN.read(best[0] if clear else "generic")


def _score(profile: Profile, lines: list[str]) -> int:
    """Marks count, and a prefix of the engine's own shape; access lines, which all web servers print, do not."""
    rules = Matcher(profile)
    shape = re.compile(profile.line)
    found = 0
    for raw in lines:
        line = rules.read(raw)
        fatal = any(pattern.search(raw) for pattern in (*rules.cause.values(), *rules.effect.values()))
        prefix = shape.search(raw)
        shaped = prefix is not None and any(prefix.groupdict().get(group) for group in ("ts", "rank"))
        found += 2 * bool(line.begins or line.ends or line.moves or line.ready or fatal) + shaped
        found += bool(line.noise and '"' not in raw)
    return found
