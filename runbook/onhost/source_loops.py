"""What a thread's loop does, by its source: whether it can ever do more than it does now.

closed   goes round for ever, and only computes, sleeps and writes to its log
looks    goes round until a plain value in memory changes, and calls nothing that could change by itself: no clock, no file, no queue
open     goes round, and may end or do something else
none     no loop is around the line of its innermost frame
''       its source was not read

A name proves nothing: what is called has to be a logger, random numbers or a lock by the line that made it, or be read itself.
"""

import ast
from typing import Any, Iterator, List, Set

from . import source_names
from .source_locks import Spot
from .source_tree import FUNCTIONS, LOOPS, Source, chain, inside

_BUILTINS = frozenset(
    "abs all any bool dict divmod enumerate float format frozenset hash id int isinstance len list max min print range repr reversed round"
    " set sorted str sum tuple zip".split()
)
_TAKES = frozenset("all any dict enumerate frozenset list max min reversed set sorted sum tuple zip".split())
"""Builtins that take one after the other from what they are given."""
_LOGS = frozenset("debug info warning error exception critical log".split())
_TEXTS = frozenset("join strip split encode format".split())
_TIMES = frozenset("time.sleep time.time time.monotonic time.perf_counter time.strftime time.localtime time.gmtime".split())
_STREAMS = frozenset("sys.stdout.write sys.stderr.write sys.stdout.flush sys.stderr.flush".split())
_CHANCE = frozenset("random randrange randint uniform gauss choice choices".split())
_FAILS = (ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift)
"""What may raise an exception one day, which ends a loop, where its right side is no constant."""
_ACTS = (ast.Global, ast.Nonlocal, ast.Delete, ast.Import, ast.ImportFrom, ast.AsyncFor, ast.AsyncWith, ast.With, ast.Raise, ast.Assert)
_VALUES = ("plain", "chance", "event", "ring")
_DEEP = 5


def read(spots: List[Spot]) -> str:
    """Of one thread, innermost frame first. What stands on a closed loop has to be of its file, which was read: elsewhere a finalizer may
    run, or a handler of logs."""
    for spot in spots:
        if spot.source is not spots[0].source:
            break
        if _closed_at(spot):
            return "closed"
    if not spots or spots[0].source is None:
        return ""
    loops = list(_loops(spots[0]))
    if not loops:
        return "none"
    return "looks" if _looks(loops[0], spots[0].source) else "open"


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
    """Whether it changes nothing that another thread or process could wait for, and does so for ever."""
    counts, given = _counted(node), _given(node)
    for one in inside(node):
        if isinstance(one, _ACTS) or _may_fail(one) or not all(_is_at_hand(each, source) for each in _taken_from(one)):
            return False
        if isinstance(one, (ast.Attribute, ast.Subscript)) and not isinstance(one.ctx, ast.Load):
            return False
        reads = isinstance(one, (ast.Name, ast.Attribute)) and isinstance(one.ctx, ast.Load)
        if reads and not _is_value(one, source) and not (isinstance(one, ast.Name) and one.id in given):
            return False
        if isinstance(one, ast.Call) and (not _tells(one.func, source, deep) or any(word.arg == "file" for word in one.keywords)):
            return False
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and one.id in counts and not _is_told(one, node, source):
            return False
    return not (
        _foreign(node, source) & {one.id for one in inside(node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    )


def _given(node: Any) -> Set[str]:
    """What a function that is called here gets: judged where it is given."""
    return {one.arg for one in node.args.args} if isinstance(node, FUNCTIONS) else set()


def _is_value(node: Any, source: Source) -> bool:
    """Whether to read a name or an attribute runs no code of others, nor does to make a text of it or to count it: a property does, and
    `len`, `str` and `%` of an object of another file may. What is called is judged by itself."""
    names, above = source_names.of(source), source.parents[node]
    if isinstance(above, ast.Attribute) or (isinstance(above, ast.Call) and (above.func is node or chain(above.func) in _TIMES)):
        return True
    kind = names.kind(node)
    module = kind or names.kind(ast.Name(chain(node).partition(".")[0], ast.Load()))
    return kind in _VALUES or module.startswith("module ") or (isinstance(node, ast.Name) and node.id in _BUILTINS)


def _may_fail(one: Any) -> bool:
    if isinstance(one, ast.Subscript):
        return not isinstance(_index(one), (ast.Slice, ast.Constant))
    if isinstance(one, ast.Call) and chain(one.func).rpartition(".")[2] == "sleep":
        return any(isinstance(inner, ast.BinOp) for inner in inside(one))
    if not isinstance(one, ast.BinOp) or not isinstance(one.op, _FAILS):
        return False
    text = isinstance(one.left, ast.JoinedStr) or (isinstance(one.left, ast.Constant) and isinstance(one.left.value, str))
    return not text and not (isinstance(one.right, ast.Constant) and bool(one.right.value))


def _taken_from(one: Any) -> List[Any]:
    """What is gone through."""
    if isinstance(one, (ast.For, ast.comprehension)):
        return [one.iter]
    takes = isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id in _TAKES
    return list(one.args) if takes else []


def _is_at_hand(node: Any, source: Source) -> bool:
    """Whether all of it is there: the next one of anything else may come from afar, or bring something about."""
    if isinstance(node, (ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)):
        return True  # what it goes through is judged by itself
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _TAKES | {"range", "len", "int"}:
        return True  # as are its arguments
    return source_names.of(source).kind(node) == "plain"


def _counted(node: Any) -> Set[str]:
    """Variables that are another value each time."""
    found = {one.target.id for one in inside(node) if isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name)}
    for one in inside(node):
        if isinstance(one, ast.Assign):
            names = {inner.id for target in one.targets for inner in (target, *inside(target)) if isinstance(inner, ast.Name)}
            found |= names & {inner.id for inner in (one.value, *inside(one.value)) if isinstance(inner, ast.Name)}
    return found


def _is_told(name: Any, node: Any, source: Source) -> bool:
    """Whether it only becomes part of a text."""
    while name is not node:
        name = source.parents[name]
        if isinstance(name, ast.JoinedStr) or (isinstance(name, ast.BinOp) and isinstance(name.op, ast.Mod)):
            return True
        if isinstance(name, ast.Call):
            last = chain(name.func).rpartition(".")[2]
            return last in _LOGS or last in ("print", "str", "format")
    return False


def _foreign(node: Any, source: Source) -> Set[str]:
    """Names that its function declares as another's variables; at the top of a module every name is everybody's."""
    above = node
    while not isinstance(above, (*FUNCTIONS, ast.Module)):
        above = source.parents[above]
    if isinstance(above, ast.Module):
        return {one.id for one in inside(above) if isinstance(one, ast.Name)}
    return {name for one in inside(above) if isinstance(one, (ast.Global, ast.Nonlocal)) for name in one.names}


def _tells(function: Any, source: Source, deep: int) -> bool:
    """Whether a call only computes, sleeps or tells. What the same file defines is read: functions, and methods of objects of its classes.
    Those of `self` are not: a subclass elsewhere is what they are there for."""
    names = source_names.of(source)
    if isinstance(function, ast.Name):
        known = names.function(function.id)
        if known is not None:
            return deep > 0 and _harmless(known, source, deep - 1)
        return function.id in _BUILTINS and not names.binds(function.id)
    if not isinstance(function, ast.Attribute):
        return False
    name, text, kind = function.attr, chain(function), names.kind(function.value)
    known = names.method(kind, name)
    if known is not None:
        return deep > 0 and _harmless(known, source, deep - 1)
    if text in _TIMES or text in _STREAMS:
        return _is_module(text.partition(".")[0], names)
    return (
        (name in _LOGS and kind in ("logger", "module logging"))
        or (name in _CHANCE and kind in ("chance", "module random"))
        or (name in _TEXTS and kind == "plain")
    )


def _is_module(name: str, names: source_names.Names) -> bool:
    return names.kind(ast.Name(name, ast.Load())) == "module " + name


def _looks(loop: Any, source: Source) -> bool:
    """Whether nothing in it changes by itself: it computes no value, and all that it looks at are plain values and locks. One that takes
    from a ring may say so there."""
    if not isinstance(loop, ast.While):
        return False
    turns = (ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncWith, ast.AsyncFor, ast.For, ast.AugAssign, ast.NamedExpr, ast.With, ast.Delete)
    nodes = list(inside(loop))
    sets = [one for one in nodes if isinstance(one, (ast.Assign, ast.AnnAssign))]
    if any(isinstance(one, turns) for one in nodes) or any(not isinstance(one.value, ast.Constant) for one in sets):
        return False
    calls = [one for one in nodes if isinstance(one, ast.Call)]
    called = {id(inner) for call in calls for inner in (call.func, *inside(call.func))}
    seen = [one for one in nodes if isinstance(one, (ast.Name, ast.Attribute, ast.Subscript)) and id(one) not in called]
    return all(_is_look(call, source) for call in calls) and all(_is_plain(one, source) for one in seen if isinstance(one.ctx, ast.Load))


def _is_look(call: Any, source: Source) -> bool:
    names = source_names.of(source)
    if chain(call.func) in ("os.sched_yield", "sched_yield"):
        root = chain(call.func).partition(".")[0]
        return names.kind(ast.Name(root, ast.Load())) in ("module os", "module os.sched_yield")
    asks = isinstance(call.func, ast.Attribute) and call.func.attr in ("is_set", "locked")
    return asks and not call.args and names.kind(call.func.value) == "event"


def _is_plain(node: Any, source: Source) -> bool:
    if isinstance(node, ast.Subscript):
        return isinstance(_index(node), ast.Constant) and source_names.of(source).kind(node.value) in ("plain", "ring")
    above = source.parents[node]
    if isinstance(above, ast.Subscript):
        return True  # judged with it
    if isinstance(above, ast.Attribute):
        return isinstance(node, ast.Name)  # as well
    return source_names.of(source).kind(node) in ("plain", "event")


def _index(node: Any) -> Any:
    """What stands in the brackets; Python 3.8 wraps it."""
    return node.slice.value if type(node.slice).__name__ == "Index" else node.slice
