"""Stale bytecode of a source file. A .pyc is valid by whole seconds of mtime and size, or without any check at all."""

import os
from typing import List


def compiled_files(source: str) -> List[str]:
    """Every .pyc that an interpreter could take for this source: all versions and optimisation levels, and the legacy place."""
    folder, name = os.path.split(source)
    stem, extension = os.path.splitext(name)
    if extension != ".py":
        return []
    cache = os.path.join(folder, "__pycache__")
    try:
        names = os.listdir(cache)
    except (FileNotFoundError, NotADirectoryError):
        names = []
    found = [os.path.join(cache, item) for item in names if item.startswith(stem + ".") and item.endswith(".pyc")]
    legacy = source + "c"
    return sorted(found) + ([legacy] if os.path.exists(legacy) else [])


def remove_compiled(source: str) -> List[str]:
    """Remove the stale bytecode. Answers what could not be removed, as `PATH: why`."""
    left = []
    for path in compiled_files(source):
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass  # an interpreter that is starting replaced it at this moment
        except OSError as error:
            left.append("%s: %s" % (path, error.strerror))
    return left


def fresh_mtime_ns(before_ns: int, now_ns: int) -> int:
    """A time for changed source whose whole second differs from the original's, so that its bytecode counts as stale."""
    second = 10**9
    return now_ns if now_ns // second != before_ns // second else (before_ns // second + 1) * second
