"""Sets up the engines of the tests marked `real`: python -m tests.real.setup [NAME …] [--without NAME …]. `make test-real` does it first.

Everything goes into $REAL_DIR (.cache/real). A part is built once; a part that was cut off is taken up where it stopped; one whose
recipe changed is built again. Takes minutes and a few GB the first time: docs/contributing.md has the figures.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.real import parts
from tests.real.place import real_dir, stamp, stamp_path


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what is asked for; 1 when a part could not be built (the others are tried all the same)."""
    options = _options(arguments)
    failed: list[str] = []
    for name in wanted(options.names or [name for name, part in parts.PARTS.items() if not part.asked], options.without):
        part = parts.PARTS[name]
        if behind := [need for need in part.needs if need in failed]:
            _say(f"{name}: left out, {behind[0]} failed")
            failed.append(name)
        elif not ready(name) and not _build(name):
            failed.append(name)
    for name in parts.PARTS:
        _say(f"{name:<13} {_told(name)}")
    return 1 if failed else 0


def wanted(names: Sequence[str], without: Sequence[str] = ()) -> list[str]:
    """The parts and what they need, each once, needs first. A part that needs one of `without` is left out with it."""
    order: list[str] = []

    def add(name: str) -> bool:
        if name in without or not all([add(need) for need in parts.PARTS[name].needs]):
            return False
        if name not in order:
            order.append(name)
        return True

    for name in names:
        add(name)
    return order


def recipe(name: str) -> str:
    """A hash of what the part is made from, and of what it needs."""
    part = parts.PARTS[name]
    told = [*part.pins, *(path.read_text(encoding="utf-8") for path in part.sources), *map(recipe, part.needs)]
    return hashlib.sha256("\0".join(told).encode()).hexdigest()[:16]


def ready(name: str) -> bool:
    """Whether it is whole and made by the recipe of now."""
    return stamp(name).get("recipe") == recipe(name)


def _build(name: str) -> bool:
    _say(f"{name}: {parts.PARTS[name].says}")
    begun = time.monotonic()
    stamp_path(name).unlink(missing_ok=True)
    try:
        version = parts.PARTS[name].build()
    except (subprocess.CalledProcessError, OSError) as error:
        _say(f"{name}: {error}")
        return False
    stamp_path(name).parent.mkdir(parents=True, exist_ok=True)
    told = {"recipe": recipe(name), "version": version, "seconds": round(time.monotonic() - begun)}
    stamp_path(name).write_text(json.dumps(told) + "\n")
    return True


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _told(name: str) -> str:
    found = stamp(name)
    if not found:
        return "not set up"
    return f"{found['version']}, built in {found['seconds']} s" + ("" if ready(name) else " (by an older recipe)")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="python -m tests.real.setup", description=f"Real engines for tests, in {real_dir()}.")
    options.add_argument(
        "names",
        nargs="*",
        choices=[*parts.PARTS, []],
        metavar="NAME",
        help=f"of {', '.join(parts.PARTS)}; all but those that need root, a compiler or a GPU by default",
    )
    options.add_argument("--without", action="append", default=[], choices=list(parts.PARTS), help="leave out a part and what needs it")
    return options.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
