"""Durations and sizes. Text carries a unit ("10m", "1GiB"); inside, seconds are floats and sizes are bytes."""

from __future__ import annotations

import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
LONGEST_S = 100 * 365 * 86400.0
"""A hundred years. Clocks and locks take no time of any length, and a longer one is a slip of the keyboard."""
LONGEST = 40
"""Characters; no real duration or size is longer, and a number of hundreds of digits would overflow."""
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_RUNG = re.compile(r"(?:SIG)?([A-Z][A-Z0-9]*)\s+(\S+)")
_RATE = re.compile(r"(\d+)\s+per\s+(\S+)")


_SPOKEN_TIMES = {
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
}
_SPOKEN_SIZES = {
    **dict.fromkeys(("b", "byte", "bytes"), "B"),
    **dict.fromkeys(("k", "ki", "kib"), "KiB"),
    **dict.fromkeys(("m", "mi", "mib", "meg", "megs"), "MiB"),
    **dict.fromkeys(("g", "gi", "gib", "gig", "gigs"), "GiB"),
    **dict.fromkeys(("t", "ti", "tib"), "TiB"),
    **{unit: unit[0].upper() + "B" if unit != "kb" else "kB" for unit in ("kb", "mb", "gb", "tb")},
}
"""Units as people say them, in small letters."""
_SIGNALS = tuple(
    "TERM KILL INT HUP QUIT ABRT USR1 USR2 STOP CONT PIPE ALRM SEGV BUS FPE ILL TRAP TSTP TTIN TTOU WINCH VTALRM PROF XCPU XFSZ SYS URG"
    " IO PWR CHLD".split()
)


class UnitError(ValueError):
    """A duration, size, rate or ladder rung that cannot be read; `hint` says what to type instead."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Duration(float):
    """Seconds. Written "90s", "1h30m", "1.5s", "200ms"."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> Duration:
        """Read a duration; raises UnitError for a bare number or an unknown unit."""
        if isinstance(value, Duration):
            return value
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise UnitError(f"a duration is text with a unit, not {value!r}", "write for example `90s` or `10m`")
        if not isinstance(value, str):
            raise UnitError(f"the duration `{value}` has no unit", f"write `{value}s` for seconds or `{value}m` for minutes")
        text = value.strip()
        if re.fullmatch(r"\d+(\.\d+)?", text):
            raise UnitError(f"the duration `{text}` has no unit", f"write `{text}s` for seconds or `{text}m` for minutes")
        total, position = 0.0, 0
        for part in _DURATION_PART.finditer(text):
            if part.start() != position:
                break
            total += float(part[1]) * _SECONDS[part[2]]
            position = part.end()
        if not text or position != len(text) or len(text) > LONGEST:
            hint = _spoken(text, _SPOKEN_TIMES) or "units are ms, s, m, h, d, as in `1h30m` or `1.5s`"
            raise UnitError(f"`{text[:LONGEST]}` is not a duration", hint)
        if total > LONGEST_S:
            raise UnitError(f"the duration `{text}` is longer than a hundred years", "write what is meant, as in `8h`")
        return cls(total)

    def __str__(self) -> str:
        return format_duration(self)


class TimeBox(Duration):
    """A duration in which something can happen: longer than nothing."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> TimeBox:
        """Read a time box; raises UnitError also for zero."""
        found = Duration.parse(value)
        if found <= 0:
            raise UnitError(
                f"in a time of `{value}` nothing can happen", "write a longer one, as in `30s`, or leave it out for the default"
            )
        return cls(found)


class Size(int):
    """Bytes. Written "1GiB", "500MB", "64KiB"."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> Size:
        """Read a size; raises UnitError for a bare number or an unknown unit."""
        if isinstance(value, Size):
            return value
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise UnitError(f"a size is text with a unit, not {value!r}", "write for example `1GiB`")
        if not isinstance(value, str) or re.fullmatch(r"\d+(\.\d+)?", value.strip()):
            raise UnitError(f"the size `{value}` has no unit", f"write `{value}MiB`, `{value}GiB`, or `{value}B` for bytes")
        found = _SIZE.fullmatch(value.strip())
        if found is None or found[2] not in _BYTES or len(value) > LONGEST:
            hint = _spoken(value, _SPOKEN_SIZES) or "units are B, KiB, MiB, GiB, TiB, kB, MB, GB, TB"
            raise UnitError(f"`{value[:LONGEST]}` is not a size", hint)
        number = float(found[1]) if "." in found[1] else int(found[1])
        return cls(int(number * _BYTES[found[2]]))

    def __str__(self) -> str:
        return format_size(self)


class Rung(str):
    """One rung of a kill ladder: a signal and how long to wait for it to work, as in "TERM 15s"."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> Rung:
        """Check a rung; raises UnitError when it is not `SIGNAL DURATION`."""
        found = _RUNG.fullmatch(str(value).strip())
        if not isinstance(value, str) or found is None:
            raise UnitError(f"`{value}` is not a rung of a ladder", "write a signal and a wait, as in `TERM 15s`")
        if found[1] not in _SIGNALS:
            near = next((name for name in _SIGNALS if set(found[1]) <= set(name) and name[0] == found[1][0]), "TERM")
            raise UnitError(f"there is no signal `{found[1]}`", f"write for example `{near} {found[2]}`")
        Duration.parse(found[2])
        return cls(f"{found[1]} {found[2]}")

    @property
    def signal(self) -> str:
        """Signal name without SIG, as in "TERM"."""
        return self.split()[0]

    @property
    def wait_s(self) -> float:
        """Seconds to wait for the process to be gone."""
        return float(Duration.parse(self.split()[1]))


class Rate(str):
    """A refilling bucket: "20 per 10s"."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> Rate:
        """Check a rate; raises UnitError when it is not `N per DURATION`."""
        found = _RATE.fullmatch(str(value).strip())
        if not isinstance(value, str) or found is None:
            raise UnitError(f"`{value}` is not a rate", "write a count and a time, as in `20 per 10s`")
        if int(found[1]) < 1 or Duration.parse(found[2]) <= 0:
            raise UnitError(f"the rate `{value}` lets nothing through", "write at least `1 per 1s`")
        return cls(f"{found[1]} per {found[2]}")

    @property
    def per_window(self) -> int:
        """Hits per window."""
        return int(self.split()[0])

    @property
    def window_s(self) -> float:
        """Seconds in which the bucket refills."""
        return float(Duration.parse(self.split()[2]))


def _spoken(text: str, units: dict[str, str]) -> str | None:
    """What was meant by `5 mins` or `1 gig`, as a hint."""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)[\s,]*", text)
    if not parts or any(unit.lower() not in units for _, unit in parts) or not re.fullmatch(r"(\d+(\.\d+)?\s*[A-Za-z]+[\s,]*)+", text):
        return None
    return "write `" + "".join(number + units[unit.lower()] for number, unit in parts) + "`"


UNIT_TYPES = (Duration, TimeBox, Size, Rung, Rate)


def enc_hook(value: object) -> str:
    """msgspec's hook: text that `dec_hook` reads back, durations to the nanosecond."""
    if isinstance(value, Duration):
        return f"{float(value):.9f}s"
    if isinstance(value, Size):
        return f"{int(value)}B"
    raise NotImplementedError(type(value))


def dec_hook(kind: type, value: object) -> object:
    """msgspec's hook: durations, sizes, rungs and rates from text; raises UnitError."""
    if kind in UNIT_TYPES:
        return kind.parse(value)  # type: ignore[attr-defined]
    raise NotImplementedError(kind)


def format_duration(seconds: float) -> str:
    """Short text for people: 0.25 -> "250ms", 95 -> "1m35s", 7200 -> "2h"."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    if seconds < 60:
        return f"{seconds:.1f}".rstrip("0").rstrip(".") + "s"
    whole = round(seconds)
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])


def format_size(count: float) -> str:
    """Short text for people: 1536 -> "1.5KiB"."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.1f}".rstrip("0").rstrip(".") + unit
        size /= 1024
    return f"{size:.1f}".rstrip("0").rstrip(".") + "TiB"
