"""Names, shapes and types of two sets of tensors: what has no counterpart, and which rename would explain it. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

MOST_CANDIDATES = 32
"""Keys of equal shape and ending that are tried for one key: more say nothing."""
MOST_NAMED = 1000


class Entry(msgspec.Struct, frozen=True):
    """Type and shape of one tensor. `dtype` is empty where it says nothing (a class decides it only when it loads)."""

    dtype: str
    shape: tuple[int, ...]

    def agrees(self, other: Entry) -> bool:
        """Whether one could be loaded as the other."""
        return self.shape == other.shape and (self.dtype == other.dtype or not self.dtype or not other.dtype)


Entries = Mapping[str, Entry]

_TYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "half": "float16", "float": "float32", "double": "float64",
    "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8", "long": "int64", "int": "int32",
    "f8_e4m3": "float8_e4m3fn", "f8_e5m2": "float8_e5m2", "fp16": "float16", "fp32": "float32",
}  # fmt: skip


def type_name(text: str) -> str:
    """A type as torch calls it: `BF16` and `torch.bfloat16` are `bfloat16`."""
    name = text.strip().lower().removeprefix("torch.")
    return _TYPES.get(name, name)


def matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Whether a key is meant by one of these; `*` stands for any text, `?` for one character."""
    parts = ["".join(".*" if char == "*" else "." if char == "?" else re.escape(char) for char in pattern) for pattern in patterns]
    whole = re.compile("|".join(f"(?:{part})" for part in parts) or "(?!)", re.DOTALL)
    return lambda name: whole.fullmatch(name) is not None


def near(wanted: str, keys: Iterable[str]) -> str:
    """Where a missing key may be: the one with the longest common ending, whole parts of it only; else how keys begin."""
    last, names = wanted.split("."), list(keys)
    best = max(names, key=lambda key: common_end(last, key.split(".")), default="")
    if best and common_end(last, best.split(".")):
        return f"; there is `{best}`"
    begins = list(dict.fromkeys(re.split(r"\.(?!\d+\.)", name)[0] for name in names))
    return f"; keys begin with {', '.join(f'`{one}`' for one in begins[:6])}" + (", …" if len(begins) > 6 else "") if begins else ""


def common_end(a: Sequence[str], b: Sequence[str]) -> int:
    """How many parts at the end are equal."""
    count = 0
    while count < min(len(a), len(b)) and a[-1 - count] == b[-1 - count]:
        count += 1
    return count


def unmatched(here: Entries, there: Entries) -> dict[str, Any]:
    """What a loader by name would drop or leave unset: {only_here, only_there, shapes, dtypes, renames}, lists cut at MOST_NAMED."""
    both = [key for key in here if key in there]
    only_here = {key: entry for key, entry in here.items() if key not in there}
    only_there = {key: entry for key, entry in there.items() if key not in here}
    shapes = [key for key in both if here[key].shape != there[key].shape]
    dtypes = [key for key in both if here[key].shape == there[key].shape and not here[key].agrees(there[key])]
    return {
        "count": len(only_here) + len(only_there) + len(shapes) + len(dtypes),
        "only_here": list(only_here)[:MOST_NAMED],
        "only_there": list(only_there)[:MOST_NAMED],
        "shapes": [{"key": key, "here": list(here[key].shape), "there": list(there[key].shape)} for key in shapes[:MOST_NAMED]],
        "dtypes": [{"key": key, "here": here[key].dtype, "there": there[key].dtype} for key in dtypes[:MOST_NAMED]],
        "renames": renames(only_here, only_there),
    }


class Pair(msgspec.Struct, frozen=True):
    """Two keys that may name one tensor: the part that differs, and what is common before and behind it."""

    here: str
    there: str
    change: tuple[tuple[str, ...], tuple[str, ...]]
    before: tuple[str, ...]
    behind: tuple[str, ...]


def renames(here: Entries, there: Entries) -> list[dict[str, Any]]:
    """Changes of a part of the key that pair tensors of equal type and shape, the one with the most pairs first.

    A change counts when it pairs at least two keys, or the only ones of their shape on both sides. Each: {here, there, pairs}.
    """
    pairs = _candidates(here, there)
    support = Counter(pair.change for pair in pairs)
    by_change: dict[Any, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_change[pair.change].append(pair)
    used: set[str] = set()
    found = []
    for change in sorted(support, key=lambda one: (-support[one], len(one[0]) + len(one[1]), one)):
        left = [pair for pair in by_change[change] if f"<{pair.here}" not in used and f">{pair.there}" not in used]
        if len(left) < 2 and not (left and _only_ones(left[0], here, there)):
            continue
        used.update(name for pair in left for name in (f"<{pair.here}", f">{pair.there}"))
        found.append({"here": _pattern(left, 0), "there": _pattern(left, 1), "pairs": len(left)})
    return sorted(found, key=lambda one: -one["pairs"])


def _candidates(here: Entries, there: Entries) -> list[Pair]:
    """For each key here those there that agree in type and shape and share the longest ending that any shares."""
    by_end: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for key in there:
        parts = tuple(key.split("."))
        for at in range(len(parts)):
            by_end[parts[at:]].append(key)
    found = []
    for key, entry in here.items():
        parts = tuple(key.split("."))
        for at in range(len(parts)):
            fitting = [other for other in by_end.get(parts[at:], ())[: MOST_CANDIDATES * 4] if entry.agrees(there[other])]
            if fitting:
                found += [_pair(key, other) for other in fitting[:MOST_CANDIDATES]]
                break
    return found


def _pair(here: str, there: str) -> Pair:
    a, b = tuple(here.split(".")), tuple(there.split("."))
    behind = common_end(a, b)
    a_rest, b_rest = a[: len(a) - behind], b[: len(b) - behind]
    before = common_end(a_rest[::-1], b_rest[::-1])
    return Pair(here, there, (a_rest[before:], b_rest[before:]), a[:before], a[len(a) - behind :])


def _only_ones(pair: Pair, here: Entries, there: Entries) -> bool:
    entry = here[pair.here]
    return sum(map(entry.agrees, here.values())) == 1 and sum(map(entry.agrees, there.values())) == 1


def _pattern(pairs: Sequence[Pair], side: int) -> str:
    """One side of a change, as people write it: `layers.0.*`."""
    first = pairs[0]
    before = first.before if all(pair.before == first.before for pair in pairs) else ("*",)
    behind = first.behind if all(pair.behind == first.behind for pair in pairs) else ("*",)
    return ".".join((*before, *first.change[side], *behind))
