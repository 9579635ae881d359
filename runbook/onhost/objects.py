"""Python objects of another process, read in its memory: of what class one is, and which objects its attributes are.

Layouts of CPython 3.8 to 3.13 on 64-bit machines (Include/object.h, cpython/dictobject.h, cpython/unicodeobject.h). Nothing is stopped,
so what is read may change meanwhile: all that does not look as it should raises ValueError.
"""

import os
import re
import struct
from typing import List, Optional, Tuple

from . import procs

VERSIONS = range(8, 14)
MOST_ATTRIBUTES = 128
MOST_TEXT = 4096
_NAMED = re.compile(rb"/(?:lib)?python3\.(\d+)")
_TYPE = 8
_TYPE_NAME, _TYPE_SIZE, _TYPE_FLAGS, _TYPE_DICT = 24, 32, 168, 288
_MANAGED = 1 << 4  # Py_TPFLAGS_MANAGED_DICT, since 3.11
_INLINE = 1 << 2  # Py_TPFLAGS_INLINE_VALUES, since 3.13
_UNICODE = 1 << 28  # Py_TPFLAGS_UNICODE_SUBCLASS


class Memory:
    """The memory of one process and its Python's minor version. Raises OSError where it may not be read, ValueError for another Python."""

    def __init__(self, pid: int) -> None:
        minor = minor_version(pid)
        if minor not in VERSIONS or struct.calcsize("P") != 8:
            raise ValueError("the objects of its Python are not known here")
        self.minor = minor or 0
        self._fd = os.open("/proc/%d/mem" % pid, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """It is not read any more."""
        os.close(self._fd)

    def bytes_at(self, at: int, size: int) -> bytes:
        """So many bytes."""
        if not 0 < at < 1 << 47:
            raise ValueError("no address")
        try:
            raw = os.pread(self._fd, size, at)
        except OSError as problem:
            raise ValueError(problem.strerror) from problem
        if len(raw) != size:
            raise ValueError("a part of it is not there")
        return raw

    def words(self, at: int, count: int) -> Tuple[int, ...]:
        """So many words."""
        return struct.unpack("=%dQ" % count, self.bytes_at(at, 8 * count))

    def class_of(self, at: int) -> str:
        """The name of its class."""
        (name,) = self.words(self.words(at + _TYPE, 1)[0] + _TYPE_NAME, 1)
        raw = self.bytes_at(name, 64)
        return raw[: raw.index(b"\0")].decode("ascii").rpartition(".")[2]

    def text(self, at: int) -> Optional[str]:
        """Of a string of plain ASCII; None for any other object."""
        (flags,) = self.words(self.words(at + _TYPE, 1)[0] + _TYPE_FLAGS, 1)
        if not flags & _UNICODE:
            return None
        (length,) = self.words(at + 16, 1)
        if length > MOST_TEXT:
            return None
        raw = self.bytes_at(at + (40 if self.minor >= 12 else 48), length + 1)
        plain = raw[length] == 0 and all(32 <= byte < 127 for byte in raw[:length])
        return raw[:length].decode("ascii") if plain else None

    def parts(self, at: int) -> List[int]:
        """Addresses of what its slots and its attributes are."""
        (kind,) = self.words(at + _TYPE, 1)
        size, flags = self.words(kind + _TYPE_SIZE, 1)[0], self.words(kind + _TYPE_FLAGS, 1)[0]
        if not 16 <= size <= 16 + 8 * MOST_ATTRIBUTES:
            return []
        slots = list(self.words(at + 16, (size - 16) // 8)) if size >= 24 else []
        return [one for one in slots + self._attributes(at, kind, size, flags) if one]

    def _attributes(self, at: int, kind: int, size: int, flags: int) -> List[int]:
        if self.minor < 11:
            (offset,) = self.words(kind + _TYPE_DICT, 1)
            return self._values_of(self.words(at + offset, 1)[0]) if 16 <= offset < size else []
        if not flags & _MANAGED:
            return []
        values, known = self.words(at - 32, 2)
        if self.minor == 11:
            return self._split(values) if values else self._values_of(known)
        if self.minor == 12:
            return self._split(known + 1) if known & 1 else self._values_of(known)
        return self._values_of(known) if known or not flags & _INLINE else self._split(at + size)

    def _split(self, at: int) -> List[int]:
        """The values that an object of a class with known attributes has. Before 3.13 the places that are in use stand in front of them."""
        if self.minor >= 13:
            return self._some(at + 8, self.bytes_at(at, 1)[0])
        used = self.bytes_at(at - 2, 1)[0]
        places = self.bytes_at(at - 2 - used, used) if used else b""
        return [self.words(at + 8 * place, 1)[0] for place in places]

    def _some(self, at: int, count: int) -> List[int]:
        if count > MOST_ATTRIBUTES:
            raise ValueError("too many attributes")
        return list(self.words(at, count)) if count else []

    def _values_of(self, at: int) -> List[int]:
        """The values of a dictionary."""
        if not at:
            return []
        used, _, keys, values = self.words(at + 16, 4)
        if values:
            return self._some(values, used) if self.minor < 11 else self._split(values)
        if self.minor < 11:
            _, slots, _, _, entries = self.words(keys, 5)
            first, width = keys + 40 + slots * (1 if slots <= 0xFF else 2), 3
        else:
            index_bytes, plain = self.bytes_at(keys + 9, 2)
            (entries,) = self.words(keys + 24, 1)
            first, width = keys + 32 + (1 << index_bytes), 2 if plain else 3
        return self._some(first, entries * width)[width - 1 :: width]


def minor_version(pid: int) -> Optional[int]:
    """Of its Python 3, by its files; None where they name none, or several."""
    maps = procs.read_bytes("/proc/%d/maps" % pid, 16 << 20) or b""
    program = (procs.read_link("/proc/%d/exe" % pid) or "").encode("utf-8", "replace")
    found = set(_NAMED.findall(program)) or set(_NAMED.findall(maps))
    return int(found.pop()) if len(found) == 1 else None
