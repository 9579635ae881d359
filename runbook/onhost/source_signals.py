"""Whether a main thread goes on after SIGINT, by its source: the interrupt that ends other programs is what it waits for."""

import ast
import re
import signal
from typing import Any, List

from . import procs
from .source_locks import Spot
from .source_tree import Source, chain, inside, last_line

_COMMAND = re.compile(rb"-[A-Za-z]*c")
_ENDS = ("SIG_IGN", "SIG_DFL", "default_int_handler")


_ENDING = ("/asyncio/runners.py", "/multiprocessing/process.py", "/torch/multiprocessing/spawn.py")
"""What they do with the interrupt of a program ends it. The entry of each of multiprocessing's processes catches all, to say so."""


def interrupts(pid: int, spots: List[Spot]) -> bool:
    """Whether the interrupt reaches it, or that is not known, and its main thread at these frames goes on after it."""
    caught = procs.caught_signals(pid)
    return (caught is None or signal.SIGINT in caught) and (goes_on(spots) or said_in_command(pid))


def goes_on(spots: List[Spot]) -> bool:
    """Whether one of its frames catches KeyboardInterrupt and keeps it, or one of their files sets a handler of its own."""
    read = [(spot.source, spot.line) for spot in spots if spot.source is not None and not spot.source.path.endswith(_ENDING)]
    return any(_catches(source, line) or _handles(source) for source, line in read)


def said_in_command(pid: int) -> bool:
    """Whether it was started as `python -c CODE`, and CODE, whose lines no file has, speaks of signals or of the interrupt."""
    words = (procs.read_bytes("/proc/%d/cmdline" % pid) or b"").split(b"\0")
    at = next((at for at, word in enumerate(words[:-1]) if _COMMAND.fullmatch(word)), -1)
    return at >= 0 and any(word in words[at + 1] for word in (b"KeyboardInterrupt", b"SIGINT", b"signal"))


def _catches(source: Source, line: int) -> bool:
    function = source.function_at(line)
    for one in inside(function) if function is not None else ():
        body = getattr(one, "body", None)
        if isinstance(body, list) and body and body[0].lineno <= line <= last_line(body[-1]) and _keeps(one):
            return True
    return False


def _keeps(node: Any) -> bool:
    if isinstance(node, ast.Try):
        return any(_names(handler.type) and not isinstance(handler.body[-1], ast.Raise) for handler in node.handlers)
    items = node.items if isinstance(node, ast.With) else []
    calls = [item.context_expr for item in items if isinstance(item.context_expr, ast.Call)]
    return any(chain(call.func).endswith("suppress") and any(_names(one) for one in call.args) for call in calls)


def _names(kind: Any) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(one is None or chain(one).endswith(("KeyboardInterrupt", "BaseException")) for one in kinds)


def _handles(source: Source) -> bool:
    """`signal.signal(SIGINT, ...)` with what is neither to ignore it nor to end by it."""
    calls = [one for one in source.parents if isinstance(one, ast.Call) and chain(one.func) in ("signal.signal", "signal")]
    pairs = [one.args for one in calls if len(one.args) == 2]
    return any(chain(number).endswith("SIGINT") and not chain(handler).endswith(_ENDS) for number, handler in pairs)
