"""Where the process begins: a shell that asks what may follow is answered before anything else is imported, else the command line runs."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the part that is in the interpreter: a Ctrl-C would meet the loading of the rest
import gc
import os

COMPLETE = "_RUNBOOK_COMPLETE"
"""Set by the shell that asks."""


def quit_at_once(*_: object) -> None:
    """Ctrl-C while nothing has begun: no traceback from the middle of an import."""
    os._exit(130)


def main() -> None:
    """Entry point of the command `runbook`."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else somebody wants it ignored
        _signal.signal(_signal.SIGINT, quit_at_once)
    if COMPLETE in os.environ:
        from runbook.cli.complete import answer

        print(answer(os.environ[COMPLETE], os.environ))
        return
    gc.disable()  # until a command is loaded: what imports make stays, and the collector would walk it again and again
    from runbook.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
