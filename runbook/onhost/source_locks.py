"""Which lock a thread waits for and which it holds, as far as the source of its lines says so for certain. Nothing is guessed.

It waits where its innermost line is `with LOCK:` or `LOCK.acquire()`, since a lock of C has no frame of its own. It holds what a `with`
around a line of its stack took, or an `acquire()` that must have been executed before, unless something may have released it since.

A lock has a name that means the same one wherever it stands: a global of a file, a variable of one call that is on a stack, or an
attribute of an object whose address py-spy told. Any other has none. One that is released where it was not taken has no holder.
"""

import ast
from collections import Counter
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from .source_tree import FUNCTIONS, LOOPS, Source, chain, inside, last_line, stored

_GIVES_BACK = ("release", "wait", "wait_for", "__exit__")
_MULTIPLE = ("Semaphore", "BoundedSemaphore", "Condition")


class Spot(NamedTuple):
    """One frame: its source where that was read, its line, and the addresses of its local objects, None where they were not asked."""

    source: Optional[Source]
    line: int
    objects: Optional[Dict[str, int]] = None


class Locks(NamedTuple):
    """`wants`: the lock that it waits for, empty when that is not known; `holds`; `asks`: the addresses of its objects would tell more."""

    wants: str
    holds: Tuple[str, ...]
    asks: bool


class _Frame(NamedTuple):
    source: Source
    line: int
    function: Any
    statement: Any
    objects: Optional[Dict[str, int]]


def read(stacks: List[List[Spot]]) -> List[Locks]:
    """Of each thread of one process, innermost frame first."""
    framed = [[_frame(spot) for spot in spots] for spots in stacks]
    calls = Counter(frame.function for frames in framed for frame in frames if frame is not None)
    return [_thread(frames, calls) for frames in framed]


def _frame(spot: Spot) -> Optional[_Frame]:
    function = spot.source.function_at(spot.line) if spot.source is not None else None
    statement = spot.source.statement_at(function, spot.line) if spot.source is not None and function is not None else None
    return _Frame(spot.source, spot.line, function, statement, spot.objects) if spot.source is not None and statement is not None else None


def _thread(frames: List[Optional[_Frame]], calls: "Counter[Any]") -> Locks:
    first = frames[0] if frames else None
    wanted = _wanted(first.statement, first.line) if first is not None else None
    if first is None or wanted is None:
        return Locks("", (), False)
    held = [(frame, lock) for at, frame in enumerate(frames) if frame is not None and not _let_go(frames[:at]) for lock in _held(frame)]
    names = [_name(frame, lock, calls) for frame, lock in held]
    wants = _name(first, wanted, calls)
    asks = "?" in (wants, *names) and bool(held)
    return Locks(wants.strip("?"), tuple(sorted({name for name in names if name.strip("?")})), asks)


def _wanted(statement: Any, line: int) -> Any:
    """The lock that this statement takes at this line."""
    if isinstance(statement, ast.With):
        here = [item for item in statement.items if item.context_expr.lineno <= line <= last_line(item.context_expr)]
        lock = here[0].context_expr if len(here) == 1 and len(statement.items) == 1 and statement.body[0].lineno > line else None
        return lock if lock is not None and chain(lock) else None
    return _acquired(statement)


def _acquired(statement: Any) -> Any:
    """Of `LOCK.acquire()`, without a limit of time."""
    call: Any = statement.value if isinstance(statement, ast.Expr) else None
    plain = isinstance(call, ast.Call) and not call.args and not call.keywords and isinstance(call.func, ast.Attribute)
    return call.func.value if plain and call.func.attr == "acquire" and chain(call.func.value) else None


def _let_go(inner: List[Optional[_Frame]]) -> bool:
    """Whether a frame that was called from there may have released it, or cannot be read."""
    return any(frame is None or any(last_line(call) <= frame.line for call in _releases(frame.function)) for frame in inner)


def _releases(node: Any) -> Iterator[ast.Call]:
    for one in inside(node):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in _GIVES_BACK:
            yield one


def _held(frame: _Frame) -> Iterator[Any]:
    """The locks that this frame holds at its line."""
    for above, part in frame.source.around(frame.statement, frame.function):
        if isinstance(above, ast.With) and part in above.body:
            locks = [item.context_expr for item in above.items if item.optional_vars is None and chain(item.context_expr)]
            yield from (lock for lock in locks if not _touched(above.body, lock))
        for body in _bodies(above):
            if part in body:
                yield from _taken(body[: body.index(part)], body[body.index(part) :], frame.line)


def _bodies(node: Any) -> Iterator[List[Any]]:
    return (body for body in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")) if isinstance(body, list))


def _taken(before: List[Any], rest: List[Any], line: int) -> Iterator[Any]:
    """What was acquired by the statements before this one and by none of them touched since."""
    for at, statement in enumerate(before):
        lock = _acquired(statement)
        later = [one for one in rest if one.lineno <= line]
        cut = [one for whole in later for one in inside(whole) if getattr(one, "lineno", line) <= line]
        if lock is not None and not _touched(before[at + 1 :], lock) and not _meets(cut, lock):
            yield lock


def _touched(body: List[Any], lock: Any) -> bool:
    return _meets([one for whole in body for one in (whole, *inside(whole))], lock)


def _meets(nodes: List[ast.AST], lock: Any) -> bool:
    """Whether one of these releases the lock, or makes its name another's."""
    text = chain(lock)
    again = stored(iter(nodes))
    names = {".".join(text.split(".")[: at + 1]) for at in range(text.count(".") + 1)}
    calls = [one.func for one in nodes if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)]
    return bool(names & again) or any(call.attr in _GIVES_BACK and chain(call.value) == text for call in calls)


def _name(frame: _Frame, lock: Any, calls: "Counter[Any]") -> str:
    """Its name in the whole process; `?` where the address of an object is missing, empty where it has none."""
    text = chain(lock)
    base, _, path = text.partition(".")
    binder = _binder(frame, base)
    if binder is None or _handed_over(frame.source, text.rpartition(".")[2]):
        return ""
    file = frame.source.path
    if binder is frame.source.tree:
        return "%s (%s)" % (text, file) if _bound_once(binder, base, frame.source) else ""
    if binder is not frame.function or _is_captured(binder, base):
        once = calls[binder] == 1 and _bound_once(binder, base, frame.source)
        return "%s (%s:%d)" % (text, file, binder.lineno) if once else ""
    if frame.objects is None:
        return "?"
    address = frame.objects.get(base)
    return "%s0x%x" % (path + " of " if path else "", address) if address else ""


def _binder(frame: _Frame, base: str) -> Any:
    """The function, or module, whose variable this name is."""
    outer = frame.source.outer(frame.function)
    for function in outer[:-1]:
        if any(isinstance(one, ast.Global) and base in one.names for one in inside(function)):
            return outer[-1]
        foreign = any(isinstance(one, ast.Nonlocal) and base in one.names for one in inside(function))
        if not foreign and (base in _arguments(function) or base in stored(inside(function))):
            return function
    return outer[-1] if base in stored(inside(outer[-1])) else None


def _arguments(function: Any) -> Set[str]:
    known = function.args
    extra = [one for one in (known.vararg, known.kwarg) if one is not None]
    return {one.arg for one in (*known.posonlyargs, *known.args, *known.kwonlyargs, *extra)}


def _is_captured(function: Any, base: str) -> bool:
    inner = [one for one in ast.walk(function) if isinstance(one, FUNCTIONS) and one is not function]
    return any(isinstance(one, ast.Name) and one.id == base for function in inner for one in ast.walk(function))


def _bound_once(binder: Any, base: str, source: Source) -> bool:
    """Whether the variable never meant another object: one binding, outside of any loop."""
    names = [one for one in ast.walk(binder) if isinstance(one, ast.Name) and one.id == base and not isinstance(one.ctx, ast.Load)]
    if not isinstance(binder, ast.Module) and base in _arguments(binder):
        return not names
    looped = any(isinstance(above, LOOPS) for one in names for above, _ in source.around(one, binder))
    imported = not names and base in stored(inside(binder))
    return (len(names) == 1 and not looped) or imported


def _handed_over(source: Source, name: str) -> bool:
    """Whether some function releases a lock of that name which it has not taken, it is none that only one thread can hold, or the
    attribute is set more than once."""
    if sum(isinstance(one, ast.Attribute) and one.attr == name and isinstance(one.ctx, ast.Store) for one in source.parents) > 1:
        return True
    for function in (source.tree, *source.functions):
        calls = [one.func for one in inside(function) if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)]
        used = {kind for kind in ("acquire", "release") for one in calls if one.attr == kind and _last(one.value) == name}
        if used == {"release"}:
            return True
    made = [one for one in ast.walk(source.tree) if isinstance(one, (ast.Assign, ast.AnnAssign)) and isinstance(one.value, ast.Call)]
    for one in made:
        targets = one.targets if isinstance(one, ast.Assign) else [one.target]
        makes = _last(one.value.func) if isinstance(one.value, ast.Call) else ""
        if makes in _MULTIPLE and any(_last(target) == name for target in targets):
            return True
    return False


def _last(node: Any) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
