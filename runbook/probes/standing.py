"""Whether a call of a name still runs the function of the patched file. Copied into that file: it must run alone, on Python ≥ 3.8."""

# Python 3.8 reads this source too; it is one function because it is embedded as one.
# ruff: noqa: UP031
# mypy: ignore-errors
from __future__ import annotations


def standing(owner, path, file, at):
    """What runs in place of the function: "" when it runs, None when the name cannot be followed (a nested function).

    owner: a module's names, a class or an object; path: attribute names below it; file: `co_filename` of the patched code; at: the
    function's qualified name. Looks through decorators without calling anything: `__wrapped__`, the cells of closures, and the
    attributes of what wraps it.
    """
    found = owner
    for part in path:
        if hasattr(found, "__code__"):
            return None
        if isinstance(found, dict):
            places = [found]
        elif isinstance(found, type):
            places = [vars(base) for base in found.__mro__]
        else:
            places = [getattr(found, "__dict__", {})] + [vars(base) for base in type(found).__mro__]
        found = next((place[part] for place in places if part in place), None)
        if found is None:
            return "there is no %s" % part
    first, seen, todo = found, [], [(found, "")]
    while todo and len(seen) < 60:
        one, how = todo.pop(0)
        if any(one is other for other in seen):
            continue
        seen.append(one)
        code, kind = getattr(one, "__code__", None), type(one)
        if kind.__name__ == "_lru_cache_wrapper":
            how = "a cache answers for it (functools.lru_cache)"
        mine = str(getattr(one, "__qualname__", "")).replace("<locals>.", "") == at
        if mine and hasattr(code, "co_filename") and code.co_filename == file and code.co_name == at.split(".")[-1]:
            return how
        parts = list(getattr(one, "__dict__", {}).values()) if not isinstance(one, type) else []
        if kind.__module__ in ("builtins", "functools"):
            parts += [getattr(one, key, None) for key in ("__func__", "fget", "func")]
        for cell in getattr(one, "__closure__", None) or ():
            try:
                parts.append(cell.cell_contents)
            except ValueError:  # not bound yet
                continue
        todo += [(part, how) for part in parts if callable(part) or hasattr(part, "__func__") or hasattr(part, "fget")]
    where = getattr(getattr(first, "__code__", None), "co_filename", getattr(first, "__module__", ""))
    return "%s %s from %s" % (type(first).__name__, getattr(first, "__qualname__", ""), where)
