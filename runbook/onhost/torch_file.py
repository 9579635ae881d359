"""A checkpoint that torch saved: a zip archive of a pickle and one uncompressed record a storage.

Only the directory of the archive and the pickle are read. A file that was cut has no directory, which stands at its end.
"""

import io
import struct
import zipfile
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .tensors import BITS, MOST_FAULTS, MOST_HEADER, Fault, Listing, Tensor, TensorFileError, bytes_of, elements, numbered
from .torch_pickle import Storage, View, read_pickle

ARCHIVE = b"PK\x03\x04"
MOST_LEAVES = 1_000_000
MOST_DEPTH = 20
_LOCAL_HEADER = 30  # bytes before a record's name; the lengths of name and extra field are its last four


def read_torch(stream: Any, size: int, file: str) -> Listing:
    """The tensors of an open archive, nested dictionaries joined by dots. Raises TensorFileError."""
    start = stream.read(8)
    if start[:4] != ARCHIVE:
        raise _no_archive(start, size)
    try:
        archive = zipfile.ZipFile(_Bounded(stream))
        records = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        tree = read_pickle(_pickle(archive, records))
    except (zipfile.BadZipFile, EOFError) as error:
        said = "it has %s bytes and no zip directory at its end: it was cut, or is still being written (%s)" % (numbered(size), error)
        raise TensorFileError("truncated", said) from error
    except (struct.error, ValueError, NotImplementedError, RuntimeError, OverflowError, KeyError, zipfile.LargeZipFile) as error:
        raise TensorFileError("damaged", "its zip directory cannot be read: %s" % error) from error
    if b"big" in _text(archive, records, "byteorder"):
        raise TensorFileError("unsupported", "its numbers are big endian")
    return _listing(tree, records, stream, file)


class _Bounded(io.RawIOBase):
    """The file as `zipfile` reads it, in portions that are no larger than a header may be."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def read(self, size: int = -1) -> bytes:
        if size > MOST_HEADER:
            raise ValueError("a directory of %s bytes" % numbered(size))
        return bytes(self._stream.read(min(size, MOST_HEADER) if size >= 0 else MOST_HEADER))


def _no_archive(start: bytes, size: int) -> TensorFileError:
    if not start.strip(b"\0"):
        what = "it is empty" if not size else "it begins with zeros: the space was reserved and not written yet"
        return TensorFileError("damaged", what)
    if start == b"version ":
        return TensorFileError("pointer", "it is a Git LFS pointer of %d bytes, not the weights: run `git lfs pull` there" % size)
    if start[:1] == b"\x80":
        return TensorFileError(
            "unsupported", "it is a plain pickle, as torch wrote before 1.6: load it where it is trusted and save it again as safetensors"
        )
    return TensorFileError("unsupported", "it is neither a safetensors file nor an archive of torch")


def _pickle(archive: zipfile.ZipFile, records: Dict[str, zipfile.ZipInfo]) -> bytes:
    info = records.get("data.pkl")
    if info is None:
        what = "it is a TorchScript program" if "constants.pkl" in records else "it is a zip archive without `data.pkl`"
        raise TensorFileError("unsupported", "%s, not a checkpoint of torch" % what)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > MOST_HEADER:
        raise TensorFileError("unsupported", "its `data.pkl` is compressed or has %s bytes" % numbered(info.file_size))
    return archive.read(info)


def _text(archive: zipfile.ZipFile, records: Dict[str, zipfile.ZipInfo], name: str) -> bytes:
    info = records.get(name)
    try:
        return b"" if info is None or info.file_size > 100 else archive.read(info)
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError, struct.error) as error:
        raise TensorFileError("damaged", "its record `%s` cannot be read: %s" % (name, error)) from error


def _listing(tree: Any, records: Dict[str, zipfile.ZipInfo], stream: Any, file: str) -> Listing:
    tensors: List[Tensor] = []
    faults: List[Fault] = []
    places: Dict[str, Optional[int]] = {}
    for name, view in _leaves(tree):
        problem = _storage_problem(view.storage, records)
        if problem:
            faults.append(Fault("damaged", file, "`%s`: %s" % (name, problem)))
        key = view.storage.key
        if key not in places:
            places[key] = None if problem else _begin_of(records["data/" + key], stream)
        tensors.append(_tensor(name, view, places[key], file))
    if not tensors:
        faults.append(Fault("unsupported", file, "it holds no tensors that can be named: its top is a %s" % type(tree).__name__))
    return Listing(tensors, faults[:MOST_FAULTS])


def _leaves(tree: Any) -> Iterator[Tuple[str, View]]:
    """Every tensor with its dotted place. Bounded, since a few bytes can describe a tree of any size."""
    open_items: List[Tuple[str, Any, int]] = [("", tree, 0)]
    seen = 0
    while open_items:
        place, value, depth = open_items.pop()
        seen += 1
        if seen > MOST_LEAVES or depth > MOST_DEPTH:
            raise TensorFileError("unsupported", "its dictionaries are nested too deep or have more than %d entries" % MOST_LEAVES)
        if isinstance(value, View):
            yield place or "tensor", value
            continue
        if isinstance(value, (tuple, list)) and not isinstance(value, Storage):
            value = dict(enumerate(value))
        if isinstance(value, dict):
            dot = "." if place else ""
            open_items += [("%s%s%s" % (place, dot, key), item, depth + 1) for key, item in reversed(list(value.items()))]


def _storage_problem(storage: Storage, records: Dict[str, zipfile.ZipInfo]) -> str:
    info = records.get("data/" + storage.key)
    if info is None:
        return "its record `data/%s` is not in the archive" % storage.key[:80]
    wanted = bytes_of(storage.dtype or "uint8", (storage.elements,))
    if wanted is not None and info.file_size < wanted:
        return "its record `data/%s` has %s of %s bytes" % (storage.key[:80], numbered(info.file_size), numbered(wanted))
    return ""


def _begin_of(info: zipfile.ZipInfo, stream: Any) -> Optional[int]:
    """Where a record's bytes begin; None when it is compressed."""
    if info.compress_type != zipfile.ZIP_STORED:
        return None
    stream.seek(info.header_offset)
    header = stream.read(_LOCAL_HEADER)
    if len(header) < _LOCAL_HEADER:
        return None
    name, extra = struct.unpack("<HH", header[26:])
    return int(info.header_offset + _LOCAL_HEADER + name + extra)


def _tensor(name: str, view: View, begin: Optional[int], file: str) -> Tensor:
    dtype = view.dtype or "unknown"
    bits = BITS.get(dtype, 0)
    size = bytes_of(dtype, view.shape) or 0
    note = ""
    if begin is None:
        note = "its bytes are compressed or missing"
    elif not bits:
        note = "the type of its numbers is not known"
    elif not _is_dense(view):
        note = "its numbers do not lie side by side (a view with strides)"
    elif (view.offset + elements(view.shape)) * bits > view.storage.elements * BITS[view.storage.dtype or "uint8"]:
        note = "it reaches beyond its storage"
    return Tensor(name, dtype, view.shape, file, (begin or 0) + view.offset * bits // 8, size, note)


def _is_dense(view: View) -> bool:
    """Whether its elements lie side by side, the last dimension innermost."""
    step = 1
    for at in range(len(view.shape) - 1, -1, -1):
        if view.shape[at] != 1 and view.stride[at] != step:
            return False
        step *= view.shape[at]
    return True
