"""Numbers of a tensor from its bytes, in portions, with the standard library alone."""

import array
import os
import struct
import sys
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from .tensors import BITS, Tensor, TensorFileError, elements

PORTION = 1 << 16  # elements at a time: a few MiB as Python numbers

_ARRAYS = {
    "float32": "f", "float64": "d", "int8": "b", "uint8": "B", "bool": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "int64": "q", "uint64": "Q",
}  # fmt: skip


def is_readable(dtype: str) -> bool:
    """Whether numbers of this type can be read here."""
    return dtype in _ARRAYS or dtype in ("float16", "bfloat16") or dtype in _SMALL


def numbers(dtype: str, data: bytes) -> Sequence[Any]:
    """All numbers in some bytes."""
    if dtype == "float16":
        return struct.unpack("<%de" % (len(data) // 2), data)
    if dtype == "bfloat16":
        return _floats("f", _widened(data))
    if dtype in _SMALL:
        return list(map(_SMALL[dtype].__getitem__, data))
    return _floats(_ARRAYS[dtype], data)


def _floats(code: str, data: bytes) -> Sequence[Any]:
    values: Any = array.array(code)
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values  # type: ignore[no-any-return]


def _widened(data: bytes) -> bytes:
    """bfloat16 is the upper half of a float32."""
    wide = bytearray(2 * len(data))
    wide[2::4] = data[0::2]
    wide[3::4] = data[1::2]
    return bytes(wide)


def _small_float(exponent_bits: int, bias: int, finite: bool) -> List[float]:
    """The 256 values of an eight-bit float. `finite`: no infinities, all ones is NaN (the "fn" types); else as IEEE."""
    mantissa_bits = 7 - exponent_bits
    table = []
    for byte in range(256):
        exponent, mantissa = (byte >> mantissa_bits) & ((1 << exponent_bits) - 1), byte & ((1 << mantissa_bits) - 1)
        if exponent == 0:
            value = mantissa * 2.0 ** (1 - bias - mantissa_bits)
        else:
            value = (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)
        if exponent == (1 << exponent_bits) - 1:
            if finite:
                value = float("nan") if mantissa == (1 << mantissa_bits) - 1 else value
            else:
                value = float("nan") if mantissa else float("inf")
        table.append(-value if byte & 0x80 else value)
    return table


_SMALL: Dict[str, List[float]] = {
    "float8_e4m3fn": _small_float(4, 7, True),
    "float8_e5m2": _small_float(5, 15, False),
    "float8_e8m0fnu": [2.0 ** (byte - 127) for byte in range(255)] + [float("nan")],
}


class Values:
    """The numbers of one tensor, read by portions from its file. Raises TensorFileError for what cannot be read, OSError too."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.count = elements(tensor.shape)
        if tensor.note:
            raise TensorFileError("unsupported", tensor.note)
        if not is_readable(tensor.dtype):
            raise TensorFileError("unsupported", "numbers of type %s are not read" % tensor.dtype)
        self._bytes = BITS[tensor.dtype] // 8
        if self.count * self._bytes != tensor.size:
            raise TensorFileError("damaged", "its shape and its bytes do not agree")
        self._fd = os.open(tensor.file, os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> "Values":
        return self

    def __exit__(self, *_: Any) -> None:
        os.close(self._fd)

    def raw(self, begin: int, count: int) -> bytes:
        """The bytes of `count` elements from number `begin` on."""
        wanted = count * self._bytes
        data = os.pread(self._fd, wanted, self.tensor.offset + begin * self._bytes)
        if len(data) < wanted:
            raise TensorFileError("truncated", "the file ends within it")
        return data

    def portions(self, most: int = 0) -> Iterator[Tuple[int, Sequence[Any]]]:
        """(number of the first, numbers) of each portion. With `most`, of more elements portions at even distances are read."""
        for begin in starts(self.count, most):
            yield begin, numbers(self.tensor.dtype, self.raw(begin, min(PORTION, self.count - begin)))


def starts(count: int, most: int) -> List[int]:
    """Where the portions begin that are read of `count` elements."""
    if not most or count <= most:
        return list(range(0, count, PORTION))
    wanted = max(1, most // PORTION)
    last = count - PORTION
    return sorted({last * number // max(1, wanted - 1) for number in range(wanted)}) if wanted > 1 else [0]
