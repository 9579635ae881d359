"""Two sets of tensors compared number by number, with the standard library alone: for `runbook tensors` and the function `tensor_diff`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from operator import mul, sub
from pathlib import Path
from typing import Any

from runbook.lang.functions import Problem
from runbook.lang.values import Unknown
from runbook.onhost.checkpoint_files import SHARD, read_checkpoint
from runbook.onhost.errors import OpError
from runbook.onhost.tensor_values import PORTION, Values, numbers
from runbook.onhost.tensors import BLIND, DAMAGED, Tensor, TensorFileError, elements

MOST_IN_EXPRESSION = 4 << 20
"""Elements that one expression compares; more take longer than an expression may."""
MOST_ROWS = 1000


class Unreadable(Exception):
    """A file, folder or tensor that cannot be compared, and why."""


def load(path: str) -> dict[str, Tensor]:
    """The tensors of a file or folder by name. In a folder of files that are no shards of one model the name begins with the file's.

    Raises Unreadable, also for one that is damaged in part.
    """
    try:
        found = read_checkpoint(path)
    except OpError as problem:
        raise Unreadable(problem.message) from problem
    apart = len(found.sizes) > 1 and not _is_sharded(path, found.sizes)
    faults = [one for one in found.faults if one.kind in DAMAGED | BLIND and not (apart and one.kind == "twice")]
    if faults:
        raise Unreadable(f"{path}: " + "; ".join(f"{one.file}: {one.text}" if one.file else one.text for one in faults[:3]))
    return {f"{os.path.basename(one.file)}:{one.name}" if apart else one.name: one for one in found.tensors}


def _is_sharded(folder: str, names: Mapping[str, int]) -> bool:
    return all(map(SHARD.fullmatch, names)) or any(name.endswith(".index.json") for name in os.listdir(folder))


def compare(a: Mapping[str, Tensor], b: Mapping[str, Tensor], *, atol: float = 0.0, rtol: float = 0.0) -> dict[str, Any]:
    """{equal, count, different, only_a, only_b, max_abs, max_rel, min_cosine, tensors: {name: row}}. Raises Unreadable.

    Two numbers are equal when they differ by no more than atol + rtol · the larger magnitude, when both are NaN, or the same infinity.
    """
    rows = {name: _row(a[name], b[name], atol, rtol) for name in a if name in b}
    only_a, only_b = [name for name in a if name not in b], [name for name in b if name not in a]
    different = [name for name, row in rows.items() if not row["equal"]]
    cosines = [row["cosine"] for row in rows.values() if row["cosine"] is not None]
    return {
        "equal": not (different or only_a or only_b),
        "count": len(rows),
        "different": different,
        "only_a": only_a,
        "only_b": only_b,
        "max_abs": max((row["max_abs"] for row in rows.values() if row["max_abs"] is not None), default=None),
        "max_rel": max((row["max_rel"] for row in rows.values() if row["max_rel"] is not None), default=None),
        "min_cosine": min(cosines, default=None),
        "tensors": rows,
    }


def _row(a: Tensor, b: Tensor, atol: float, rtol: float) -> dict[str, Any]:
    """One tensor on both sides. Values decide; another type alone is no difference."""
    row: dict[str, Any] = {
        "equal": False,
        "shape": [list(a.shape), list(b.shape)],
        "dtype": [a.dtype, b.dtype],
        "elements": elements(a.shape),
        **dict.fromkeys(("max_abs", "max_rel", "cosine", "beyond", "nan", "first")),
    }
    if a.shape != b.shape:
        return row
    difference = Difference(atol, rtol)
    try:
        with Values(a) as here, Values(b) as there:
            for begin in range(0, here.count, PORTION):
                count = min(PORTION, here.count - begin)
                raw_a, raw_b = here.raw(begin, count), there.raw(begin, count)
                values = numbers(a.dtype, raw_a)
                same = raw_a == raw_b and a.dtype == b.dtype
                difference.add(begin, values, values if same else numbers(b.dtype, raw_b))
    except (TensorFileError, OSError) as problem:
        raise Unreadable(f"`{a.name}` of {a.file} and {b.file} cannot be compared: {problem}") from problem
    return {**row, **difference.row(a.shape)}


class Difference:
    """How two tensors of one shape differ, taken in by portions. Errors and cosine are those of the places finite on both sides."""

    def __init__(self, atol: float, rtol: float) -> None:
        self.atol, self.rtol = atol, rtol
        self.max_abs = self.max_rel = 0.0
        self.dot = self.square_a = self.square_b = 0.0
        self.beyond = 0
        self.nan = [0, 0]
        self.first: tuple[int, Any, Any] | None = None

    def add(self, begin: int, a: Sequence[Any], b: Sequence[Any]) -> None:
        """The numbers from number `begin` on; `b is a` when they are known to be the same."""
        if not math.isfinite(sum(a)) or (b is not a and not math.isfinite(sum(b))):
            a, b = self._finite(begin, a, b)
        square = sum(map(mul, a, a))
        self.square_a += square
        if b is a:
            self.square_b += square
            self.dot += square
            return
        self.square_b += sum(map(mul, b, b))
        self.dot += sum(map(mul, a, b))
        apart = list(map(abs, map(sub, a, b)))
        worst = max(apart, default=0)
        if worst == 0:
            return
        larger = [x if x > y else y for x, y in zip(map(abs, a), map(abs, b), strict=True)]
        self.max_abs = max(self.max_abs, worst)
        self.max_rel = max(self.max_rel, max(x / y for x, y in zip(apart, larger, strict=True) if x))
        bounds = [self.atol + self.rtol * y for y in larger] if self.rtol else [self.atol] * len(larger)
        over = [at for at, (x, y) in enumerate(zip(apart, bounds, strict=True)) if x > y]
        if over:
            self.beyond += len(over)
            self._note(begin + over[0], a[over[0]], b[over[0]])

    def _finite(self, begin: int, a: Sequence[Any], b: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Count what is not finite, and put zeros in its place on both sides."""
        left, right = list(a), list(b)
        for at, (x, y) in enumerate(zip(a, b, strict=True)):
            if math.isfinite(x) and math.isfinite(y):
                continue
            self.nan[0] += x != x
            self.nan[1] += y != y
            if x != y and not (x != x and y != y):
                self.beyond += 1
                self._note(begin + at, x, y)
            left[at] = right[at] = 0
        return left, left if left == right else right

    def _note(self, at: int, x: Any, y: Any) -> None:
        if self.first is None or at < self.first[0]:
            self.first = (at, x, y)

    def row(self, shape: Sequence[int]) -> dict[str, Any]:
        """The result; numbers that JSON has no form for as text."""
        norm = math.sqrt(self.square_a) * math.sqrt(self.square_b)
        cosine = max(-1.0, min(1.0, self.dot / norm)) if norm and math.isfinite(norm) else None
        first = self.first
        return {
            "equal": not self.beyond,
            "max_abs": plain(self.max_abs),
            "max_rel": plain(self.max_rel),
            "cosine": cosine,
            "beyond": self.beyond,
            "nan": self.nan,
            "first": None if first is None else {"index": place(first[0], shape), "a": shown(first[1]), "b": shown(first[2])},
        }


def plain(value: Any) -> Any:
    """A number that JSON can hold: the largest float for what overflowed."""
    return value if math.isfinite(value) else float("1.7976931348623157e308")


def shown(value: Any) -> Any:
    """A number, or its name where JSON has no form for it: nan, inf, -inf."""
    return value if math.isfinite(value) else str(value)


def place(at: int, shape: Sequence[int]) -> list[int]:
    """The index of element number `at`, row by row."""
    index = []
    for size in reversed(shape):
        at, one = divmod(at, size)
        index.append(one)
    return index[::-1]


def in_run_folder(folder: Path, a: str, b: str, atol: float, rtol: float) -> Any:
    """For expressions: compare two files below a run's folder, which `a` and `b` are relative to.

    Unknown when one cannot be read or is too large; raises Problem for a path that leads elsewhere.
    """
    try:
        here, there = (load(_inside(folder, path)) for path in (a, b))
        size = sum(elements(tensor.shape) for name, tensor in here.items() if name in there)
        if size > MOST_IN_EXPRESSION:
            return Unknown(f"tensor_diff: {size:,} elements are more than {MOST_IN_EXPRESSION:,}: compare them with `runbook tensors`")
        found = compare(here, there, atol=atol, rtol=rtol)
    except Unreadable as problem:
        return Unknown(f"tensor_diff: {problem}")
    return {**found, "tensors": dict(list(found["tensors"].items())[:MOST_ROWS])}


def _inside(folder: Path, path: str) -> str:
    root = folder.resolve()
    full = (root / path).resolve()
    if "\0" in path or not full.is_relative_to(root):
        raise Problem(f"`tensor_diff` reads only below the run's folder, as in `steps.x.files[0].file`, not `{path}`")
    return str(full)
