"""Statistics of a tensor in one pass, and what its numbers mean when it maps draft tokens to target tokens."""

import math
from typing import Any, Callable, Dict, List, Optional, Sequence

from .tensor_values import Values
from .tensors import Tensor

MOST_ELEMENTS = 4 << 20
"""Of a larger tensor portions at even distances are read, and the answer says how many elements that was."""


class Moments:
    """Running count, mean and sum of squared deviations of finite numbers, portion by portion."""

    def __init__(self) -> None:
        self.count = self.nan = self.inf = self.zero = 0
        self.mean = self.squares = 0.0
        self.least: Any = None
        self.most: Any = None

    def add(self, values: Sequence[Any]) -> None:
        """Take in one portion."""
        total = sum(values)
        if not math.isfinite(total):  # one look tells whether there is anything to sort out; a sum may also overflow
            finite = [value for value in values if math.isfinite(value)]
            nan = sum(1 for value in values if value != value)
            self.nan += nan
            self.inf += len(values) - len(finite) - nan
            values, total = finite, sum(finite)
        if not values:
            return
        self.zero += values.count(0)
        self.least = min(values) if self.least is None else min(self.least, min(values))
        self.most = max(values) if self.most is None else max(self.most, max(values))
        mean = total / len(values)
        squares = sum([(value - mean) * (value - mean) for value in values])
        together, apart = self.count + len(values), mean - self.mean
        self.squares += squares + apart * apart * self.count * len(values) / together
        self.mean += apart * len(values) / together
        self.count = together

    def row(self) -> Dict[str, Any]:
        """min, max, mean, std (of the whole population) of the finite numbers; null where there are none or where they overflow."""
        row = {
            "min": self.least,
            "max": self.most,
            "mean": self.mean if self.count else None,
            "std": math.sqrt(self.squares / self.count) if self.count else None,
        }
        plain = {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()}
        return dict(plain, nan=self.nan, inf=self.inf, zero=self.zero)


def statistics(tensor: Tensor, go_on: Callable[[], bool], most: int = MOST_ELEMENTS) -> Dict[str, Any]:
    """{min, max, mean, std, nan, inf, zero, elements, read}. `read` below `elements`: a sample, or `go_on` said no.

    Raises TensorFileError or OSError when the numbers cannot be read.
    """
    moments, read = Moments(), 0
    with Values(tensor) as values:
        for _, portion in values.portions(most):
            if read and not go_on():
                break
            moments.add(portion)
            read += len(portion)
        return dict(moments.row(), elements=values.count, read=read)


MOST_MAP = 1 << 20


def token_map(tensor: Tensor, vocabulary: Optional[int], taken: Optional[List[int]]) -> Dict[str, Any]:
    """How a one-dimensional integer tensor can be read as a map from draft token to target token.

    `vocabulary`: ids must be below it, if it is known. `taken`: the ids that a mask over the target's vocabulary marks, if there is one.
    A reading holds when every id is in range and none comes twice; increasing ids and the mask speak for it.
    """
    with Values(tensor) as values:
        given = [int(value) for _, portion in values.portions() for value in portion]
    readings = {
        "offsets": _reading([index + value for index, value in enumerate(given)], vocabulary, taken),
        "absolute": _reading(given, vocabulary, taken),
    }
    return {"key": tensor.name, "elements": len(given), "first": given[:8], "reading": _decide(readings), **readings}


def _reading(ids: List[int], vocabulary: Optional[int], taken: Optional[List[int]]) -> Dict[str, Any]:
    least, most = min(ids, default=0), max(ids, default=0)
    unique, in_range = len(set(ids)) == len(ids), least >= 0 and (vocabulary is None or most < vocabulary)
    return {
        "holds": bool(ids) and unique and in_range and (taken is None or sorted(ids) == taken),
        "unique": unique,
        "in_range": in_range,
        "increasing": all(ids[at] < ids[at + 1] for at in range(len(ids) - 1)),
        "matches_mask": None if taken is None else sorted(ids) == taken,
        "min": least,
        "max": most,
    }


def _decide(readings: Dict[str, Dict[str, Any]]) -> str:
    holds = [name for name, found in readings.items() if found["holds"]]
    if len(holds) == 2:
        increasing = [name for name in holds if readings[name]["increasing"]]
        return increasing[0] if len(increasing) == 1 else "either"
    return holds[0] if holds else "neither"
