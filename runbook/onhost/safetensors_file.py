"""The header of a safetensors file, read without its data, and checked against the file's real size.

    uint64 header length (little endian) | JSON header | data

Each tensor names its type, shape and the two ends of its bytes in the data; together they fill the data without gap or overlap.
What the header promises and the file does not hold is what an interrupted download or copy looks like.
"""

import json
from typing import Any, Callable, Dict, List, Optional, Tuple

from .tensors import MOST_FAULTS, MOST_HEADER, Fault, Listing, Tensor, TensorFileError, bytes_of, numbered

Read = Callable[[int, int], bytes]
"""(offset, length) to at most that many bytes, fewer only at the file's end."""

DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32", "U64": "uint64",
    "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64",
    "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F6_E2M3": "float6_e2m3", "F6_E3M2": "float6_e3m2", "F4": "float4_e2m1",
}  # fmt: skip
LFS_POINTER = b"version https://git-lfs"
_LONGEST_NUMBER = 19  # digits of 2^63; longer ones take quadratic time to read


def read_safetensors(read: Read, size: int, file: str) -> Listing:
    """The tensors of a file of `size` bytes. Raises TensorFileError where there is no header to speak of; the rest are faults."""
    header, begin = _header(read, size)
    tensors: List[Tensor] = []
    faults: List[Fault] = []
    for name, entry in header.items():
        if name != "__metadata__":
            tensors.append(_tensor(name, entry, file, begin))
    tensors.sort(key=lambda one: (one.offset, one.size))
    faults += _misfits(tensors, begin, size, file)
    return Listing(tensors, faults[:MOST_FAULTS])


def _header(read: Read, size: int) -> Tuple[Dict[str, Any], int]:
    start = read(0, 8)
    if len(start) < 8:
        raise TensorFileError("truncated", "it has %d bytes, and the length of its header alone takes 8" % size)
    if LFS_POINTER.startswith(start):
        raise TensorFileError("pointer", "it is a Git LFS pointer of %d bytes, not the weights: run `git lfs pull` there" % size)
    length = int.from_bytes(start, "little")
    if length == 0:
        raise TensorFileError("damaged", "its first 8 bytes are zero: the space was reserved and not written yet")
    if length > MOST_HEADER:
        raise TensorFileError("damaged", "it is no safetensors file: its header would have %s bytes" % numbered(length))
    if length > size - 8:
        raise TensorFileError(
            "truncated", "it has %s bytes and ends inside its header, which has %s" % (numbered(size), numbered(length + 8))
        )
    raw = read(8, length)
    if len(raw) < length:
        raise TensorFileError("truncated", "it became shorter while it was read")
    return _json(raw), length + 8


def _json(raw: bytes) -> Dict[str, Any]:
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_once, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        what = "it is all zeros: the space was reserved and not written yet" if not raw.strip(b"\0") else str(error) or type(error).__name__
        raise TensorFileError("damaged", "its header of %s bytes cannot be read: %s" % (numbered(len(raw)), what[:200])) from error
    if not isinstance(header, dict):
        raise TensorFileError("damaged", "its header is not a mapping")
    return header


def _once(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError("`%s` is there twice" % next(name for name in names if names.count(name) > 1))
    return found


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise ValueError("a number of %d digits" % len(digits))
    return int(digits)


def _sizes(value: Any) -> Optional[Tuple[int, ...]]:
    """A list of whole numbers from 0 on; None for anything else."""
    good = isinstance(value, list) and all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in value)
    return tuple(value) if good else None


def _tensor(name: str, entry: Any, file: str, begin: int) -> Tensor:
    said = entry if isinstance(entry, dict) else {}
    shape, ends, kind = _sizes(said.get("shape")), _sizes(said.get("data_offsets")), said.get("dtype")
    if shape is None or ends is None or len(ends) != 2 or ends[0] > ends[1] or not isinstance(kind, str):
        raise TensorFileError("damaged", "the entry of `%s` in its header is malformed: %s" % (name[:200], json.dumps(entry)[:200]))
    dtype = DTYPES.get(kind, kind[:40])
    return Tensor(name, dtype, shape, file, begin + ends[0], ends[1] - ends[0])


def _misfits(tensors: List[Tensor], begin: int, size: int, file: str) -> List[Fault]:
    """Faults between neighbours, of sizes, and of the file's end. `tensors` are in the order of their bytes."""
    found: List[Fault] = []
    cut = [one for one in tensors if one.offset + one.size > size]
    if cut:
        end = max(one.offset + one.size for one in cut)
        text = "it has %s of the %s bytes that its header promises: %s" % (numbered(size), numbered(end), _names("cut", cut))
        found.append(Fault("truncated", file, text))
    at, before = begin, ""
    for one in tensors:
        if one.offset > at:
            found.append(Fault("damaged", file, "%s bytes belong to no tensor before `%s`" % (numbered(one.offset - at), one.name)))
        elif one.offset < at and one.size:
            found.append(Fault("damaged", file, "`%s` and `%s` overlap by %s bytes" % (before, one.name, numbered(at - one.offset))))
        wanted = bytes_of(one.dtype, one.shape)
        if wanted is not None and wanted != one.size:
            what = "%s of shape %s takes %s bytes, not %s" % (one.dtype, list(one.shape), numbered(wanted), numbered(one.size))
            found.append(Fault("damaged", file, "`%s`: %s" % (one.name, what)))
        if one.offset + one.size >= at:
            at, before = one.offset + one.size, one.name
    if at < size:
        found.append(Fault("damaged", file, "%s bytes follow the last tensor: the header belongs to a shorter file" % numbered(size - at)))
    return found


def _names(what: str, tensors: List[Tensor]) -> str:
    more = " and %d more" % (len(tensors) - 1) if len(tensors) > 1 else ""
    return "`%s`%s %s" % (tensors[0].name, more, "are " + what if more else "is " + what)
