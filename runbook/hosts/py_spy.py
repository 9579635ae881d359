"""The py-spy of this machine's environment (the extra `pyspy`), as bytes for a host that has none."""

from __future__ import annotations

import functools
import zlib
from importlib import metadata
from pathlib import Path

MACHINES = {62: "x86_64", 183: "aarch64", 40: "armv7l", 3: "i686", 21: "ppc64le"}
"""e_machine of an ELF header, as `uname -m` says it."""


def machine_of(program: bytes) -> str | None:
    """Which machine an ELF program is for; None for what is none."""
    if program[:4] != b"\x7fELF" or len(program) < 20:
        return None
    return MACHINES.get(int.from_bytes(program[18:20], "little" if program[5] == 1 else "big"))


def installed() -> Path | None:
    """Where the package's program lies; None when the package is not there."""
    try:
        files = metadata.files("py-spy") or []
    except metadata.PackageNotFoundError:
        return None
    paths = [Path(str(file.locate())).resolve() for file in files if file.name == "py-spy"]
    return next((path for path in paths if path.is_file()), None)


@functools.cache
def packed(machine: str) -> bytes | None:
    """The program, zlib-compressed, when there is one for that machine."""
    path = installed()
    program = path.read_bytes() if path is not None else b""
    return zlib.compress(program, 6) if machine_of(program) == machine else None
