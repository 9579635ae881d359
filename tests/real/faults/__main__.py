"""Plays the faults and says how each ended: python -m tests.real.faults ENGINE [START …] [--write]

A start is named by its first fault. Recordings stay in $REAL_DIR/faults: `runbook judge FOLDER --rules` says how a verdict came. `--write`
puts all that is known into the documentation. The exit status is 1 when an outcome is not right.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.real.faults import known
from tests.real.faults.playing import Ended, play
from tests.real.faults.table import STARTS
from tests.zoo.lab import lab


def main(argv: Sequence[str] | None = None) -> int:
    """A line for each."""
    options = argparse.ArgumentParser(prog="python -m tests.real.faults")
    options.add_argument("engine", choices=sorted(STARTS))
    options.add_argument("starts", nargs="*", help="by name; all by default")
    options.add_argument("--write", action="store_true", help="put the table into the documentation")
    told = options.parse_args(argv)
    ended: list[Ended] = []
    for start in STARTS[told.engine]:
        if not told.starts or start.name in told.starts:
            with lab() as state:
                new = play(state, told.engine, start)
            known.keep(told.engine, new)
            ended += new
            sys.stdout.writelines(f"{'right' if one.right else 'WRONG':<6}{'  '.join(known.row(one))}: {one.reason[:200]}\n" for one in new)
            sys.stdout.flush()
    if told.write:
        known.write()
    return 0 if all(one.right for one in ended) else 1


if __name__ == "__main__":
    sys.exit(main())
