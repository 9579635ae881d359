"""Where the process begins: a shell that asks what may follow is answered before anything else is imported, else the command line runs."""

from __future__ import annotations

import gc
import os

COMPLETE = "_RUNBOOK_COMPLETE"
"""Set by the shell that asks."""


def main() -> None:
    """Entry point of the command `runbook`."""
    if COMPLETE in os.environ:
        from runbook.cli.complete import answer

        print(answer(os.environ[COMPLETE], os.environ))
        return
    gc.disable()  # until a command is loaded: what imports make stays, and the collector would walk it again and again
    from runbook.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
