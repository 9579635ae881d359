"""What a thread's loop does, by its source: whether it can ever do more than it does now.

closed   goes round for ever, and only computes, sleeps and writes to its log
looks    goes round until a value in memory changes, and calls nothing that could change by itself: no clock, no file, no queue
polls    goes round until a file or a child changes, sleeps and logs in between, and neither counts nor asks for the time
open     goes round, and may end or do something else
none     no loop is around the line of its innermost frame
''       its source was not read
"""

import ast
from typing import Any, Callable, Iterator, List, Set

from .source_locks import Spot
from .source_tree import FUNCTIONS, LOOPS, Source, inside

_BUILTINS = frozenset(
    "abs all any bool dict divmod enumerate filter float format frozenset hash id int isinstance len list map max min pow print range repr"
    " reversed round set sorted str sum tuple zip".split()
)
_TELLS = frozenset("say log debug info warning format join strip split encode decode strftime".split())
"""Methods of loggers and texts."""
_TIMES = frozenset("time.sleep time.time time.monotonic time.perf_counter time.strftime time.localtime time.gmtime".split())
_STREAMS = frozenset("sys.stdout.write sys.stderr.write sys.stdout.flush sys.stderr.flush".split())
_CHANCE = frozenset("random randrange randint uniform gauss choice choices sample shuffle".split())
_LOOKS = frozenset("sched_yield is_set done locked ready is_ready is_done".split())
_POLLS = frozenset("exists is_file is_dir isfile isdir lexists poll is_alive".split())
_ACTS = (ast.Global, ast.Nonlocal, ast.Delete, ast.Import, ast.ImportFrom, ast.AsyncFor, ast.AsyncWith, ast.With, ast.Raise, ast.Assert)
_DEEP = 5


def read(spots: List[Spot]) -> str:
    """Of one thread, innermost frame first."""
    if any(_closed_at(spot) for spot in spots):
        return "closed"
    if not spots or spots[0].source is None:
        return ""
    loops = list(_loops(spots[0]))
    if not loops:
        return "none"
    return next((kind for kind, calls in (("looks", _looks), ("polls", _polls)) if _goes_on(loops[0], spots[0].source, calls)), "open")


def _loops(spot: Spot) -> Iterator[Any]:
    """The loops around its line, innermost first."""
    source = spot.source
    function = source.function_at(spot.line) if source is not None else None
    if source is None or function is None:
        return
    around = [one for one in inside(function) if isinstance(one, LOOPS) and one.lineno <= spot.line <= (one.end_lineno or one.lineno)]
    yield from sorted(around, key=lambda one: -one.lineno)


def _closed_at(spot: Spot) -> bool:
    source = spot.source
    return source is not None and any(_is_endless(loop) and _harmless(loop, source, _DEEP) for loop in _loops(spot))


def _is_endless(loop: Any) -> bool:
    """`while True` that nothing leaves."""
    if not isinstance(loop, ast.While) or not isinstance(loop.test, ast.Constant) or not loop.test.value:
        return False
    leaves = (ast.Break, ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Await)
    return not any(isinstance(one, leaves) for one in inside(loop))


def _harmless(node: Any, source: Source, deep: int) -> bool:
    """Whether it changes nothing that another thread or process could wait for."""
    for one in inside(node):
        if isinstance(one, _ACTS):
            return False
        if isinstance(one, (ast.Attribute, ast.Subscript)) and not isinstance(one.ctx, ast.Load):
            return False
        if isinstance(one, ast.Call) and (not _tells(one.func, source, deep) or any(word.arg == "file" for word in one.keywords)):
            return False
    return not (
        _foreign(node, source) & {one.id for one in inside(node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    )


def _foreign(node: Any, source: Source) -> Set[str]:
    """Names that its function declares as another's variables; at the top of a module every name is everybody's."""
    above = node
    while not isinstance(above, (*FUNCTIONS, ast.Module)):
        above = source.parents[above]
    if isinstance(above, ast.Module):
        return {one.id for one in inside(above) if isinstance(one, ast.Name)}
    return {name for one in inside(above) if isinstance(one, (ast.Global, ast.Nonlocal)) for name in one.names}


def _tells(function: Any, source: Source, deep: int) -> bool:
    """Whether a call only computes, sleeps or tells. A function of the same file is read; no name says what it does elsewhere."""
    name = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    known = source.named(name)
    if known:
        return deep > 0 and all(_harmless(one, source, deep - 1) for one in known)
    if isinstance(function, ast.Name):
        return name in _BUILTINS
    text = _dotted(function)
    return text in _TIMES or text in _STREAMS or name in _TELLS or name in _CHANCE


def _dotted(node: Any) -> str:
    if isinstance(node, ast.Attribute):
        return "%s.%s" % (_dotted(node.value), node.attr)
    return node.id if isinstance(node, ast.Name) else "?"


def _goes_on(loop: Any, source: Source, calls: Callable[[Any, Source], bool]) -> bool:
    """Whether nothing in it changes by itself: it computes no value, and all that it calls are looks. One that sleeps in between sets
    nothing either; one that takes from a ring may say so there."""
    if not isinstance(loop, ast.While):
        return False
    turns = (ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncWith, ast.AsyncFor, ast.For, ast.AugAssign, ast.NamedExpr, ast.With, ast.Delete)
    nodes = list(inside(loop))
    sets = [one for one in nodes if isinstance(one, (ast.Assign, ast.AnnAssign))]
    if any(isinstance(one, turns) for one in nodes) or any(calls is _polls or not isinstance(one.value, ast.Constant) for one in sets):
        return False
    found = [one for one in nodes if isinstance(one, ast.Call)]
    return all(calls(one.func, source) and not any(word.arg == "file" for word in one.keywords) for one in found)


def _looks(function: Any, source: Source) -> bool:
    name = _dotted(function).rpartition(".")[2]
    return name in _LOOKS and not source.named(name)


def _polls(function: Any, source: Source) -> bool:
    text, name = _dotted(function), _dotted(function).rpartition(".")[2]
    asks = (name in _POLLS or name in _LOOKS) and not source.named(name)
    tells = _tells(function, source, _DEEP) and not (text in _TIMES and text != "time.sleep")
    return asks or (tells and not source.named(name))
