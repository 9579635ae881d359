"""What a tensor file holds: the entry of one tensor, the types of numbers, and what can be wrong with a file."""

from typing import Dict, List, NamedTuple, Optional, Tuple

MOST_HEADER = 100_000_000  # bytes; the limit of the safetensors format itself
MOST_FAULTS = 8  # told of one file; the first ones say what happened

BITS: Dict[str, int] = {
    "bool": 8, "uint8": 8, "int8": 8, "uint16": 16, "int16": 16, "uint32": 32, "int32": 32, "uint64": 64, "int64": 64,
    "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64, "complex64": 64, "complex128": 128,
    "float8_e5m2": 8, "float8_e4m3fn": 8, "float8_e8m0fnu": 8, "float8_e5m2fnuz": 8, "float8_e4m3fnuz": 8,
    "float6_e2m3": 6, "float6_e3m2": 6, "float4_e2m1": 4,
}  # fmt: skip
"""Bits of one element, by the name that torch has for it."""


class Tensor(NamedTuple):
    """One tensor and where its bytes lie. `note` says why its values cannot be read where they lie; then `offset` means nothing."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    file: str
    offset: int
    size: int
    note: str = ""


class Fault(NamedTuple):
    """Something wrong with a file. `kind`:

    truncated, damaged, pointer, missing, twice, index   what is there contradicts itself
    unreadable, unsupported                               could not look
    unlisted, unfinished, ignored                         noticed beside it
    """

    kind: str
    file: str
    text: str


DAMAGED = frozenset("truncated damaged pointer missing twice index".split())
BLIND = frozenset(("unreadable", "unsupported"))


class Listing(NamedTuple):
    """The tensors of one file or folder, as far as they could be read, and everything wrong with it."""

    tensors: List[Tensor]
    faults: List[Fault]


class TensorFileError(Exception):
    """A file that cannot be listed at all."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


def elements(shape: Tuple[int, ...]) -> int:
    """How many numbers a tensor of this shape has; 1 for a scalar."""
    count = 1
    for size in shape:
        count *= size
    return count


def bytes_of(dtype: str, shape: Tuple[int, ...]) -> Optional[int]:
    """How many bytes a dense tensor takes; None for a type that we do not know."""
    bits = BITS.get(dtype)
    return None if bits is None else (elements(shape) * bits + 7) // 8


def numbered(count: int) -> str:
    """A byte count as people compare it: 1,234,567."""
    return "{:,}".format(count)
