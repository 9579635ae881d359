"""What changed between two looks, as plain data, and back. Both ends of a channel use this file, and so does the journal.

value:  anything that is no mapping stands for itself, {"=": value} for any value
mapping: {"~": {key: change}, "-": [key, …]}
list:    {"~": [[index, {key: change}], …], "-": [index, …], "+": [value, …]}, indices of the old list, for lists of things with a name
"""

from typing import Any, Dict, List, Optional, Sequence, Tuple

NAMED = {
    "processes": ("pid", "start"),
    "peers": ("pid", "start"),
    "threads": ("tid",),
    "files": ("path",),
    "pipes": ("fd",),
    "sockets": ("pid", "local", "peer"),
    "locks": ("path", "kind"),
    "folders": ("path",),
    "disks": ("path",),
    "gpus": ("index",),
}
"""What tells the things of a list apart, by the list's key; a list below `value` goes by the key above that."""


def between(old: Any, new: Any, name: str = "") -> Any:
    """The change that makes `new` of `old`."""
    if isinstance(old, dict) and isinstance(new, dict) and old.get("type") == new.get("type"):
        found: Dict[str, Any] = {"~": _fields(old, new, name)}
        gone = [key for key in old if key not in new]
        return dict(found, **{"-": gone}) if gone else found
    if isinstance(old, list) and isinstance(new, list) and name in NAMED:
        change = _list(old, new, NAMED[name])
        if change is not None:
            return change
    return {"=": new} if isinstance(new, dict) else new


def _fields(old: Dict[str, Any], new: Dict[str, Any], name: str) -> Dict[str, Any]:
    found = {}
    for key, value in new.items():
        if key not in old:
            found[key] = {"=": value}
        elif old[key] is not value and old[key] != value:
            found[key] = between(old[key], value, name if key == "value" else key)
    return found


def _list(old: List[Any], new: List[Any], names: Sequence[str]) -> Optional[Dict[str, Any]]:
    """None where the things cannot be told apart, or stand in another order than what stays followed by what is new."""
    if len(old) == len(new):
        pairs = [(index, before, new[index]) for index, before in enumerate(old) if before is not new[index]]
        if all(_alike(before, after, names) for _, before, after in pairs):
            return _moved(pairs)
    olds, news = _keys(old, names), _keys(new, names)
    if olds is None or news is None:
        return None
    stay = [key for key in olds if key in news]
    if list(news)[: len(stay)] != stay:
        return None
    pairs = [(olds[key], old[olds[key]], new[news[key]]) for key in stay]
    if any(before.keys() != after.keys() for _, before, after in pairs):
        return None
    gone, more = [index for key, index in olds.items() if key not in news], new[len(stay) :]
    return dict(_moved(pairs), **{mark: part for mark, part in (("-", gone), ("+", more)) if part})


def _moved(pairs: Sequence[Tuple[int, Dict[str, Any], Dict[str, Any]]]) -> Dict[str, Any]:
    found = [[index, _fields(before, after, "")] for index, before, after in pairs if before != after]
    return {"~": found} if found else {}


def _alike(before: Any, after: Any, names: Sequence[str]) -> bool:
    """Whether both are the same thing, with the same fields."""
    if not isinstance(before, dict) or not isinstance(after, dict) or before.keys() != after.keys():
        return False
    return all(name in after and before[name] == after[name] for name in names)


def _keys(things: List[Any], names: Sequence[str]) -> Optional[Dict[Any, int]]:
    try:
        keys = {tuple([thing[name] for name in names]): index for index, thing in enumerate(things)}
    except (TypeError, KeyError):
        return None
    return keys if len(keys) == len(things) else None


def applied(old: Any, change: Any) -> Any:
    """`old` with the change; `old` itself stays as it is. Raises ValueError for a change that was not made from it."""
    try:
        return _applied(old, change)
    except (LookupError, TypeError, AttributeError) as problem:
        raise ValueError("the change does not fit what it was made from: %r" % problem) from problem


def _applied(old: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    if "=" in change:
        return change["="]
    if isinstance(old, dict):
        gone = set(change.get("-", ()))
        new = {key: value for key, value in old.items() if key not in gone}
        for key, part in change["~"].items():
            new[key] = _applied(old.get(key), part)
        return new
    things = list(old)
    for index, fields in change.get("~", ()):
        things[index] = _applied(things[index], {"~": fields})
    gone = set(change.get("-", ()))
    return [thing for index, thing in enumerate(things) if index not in gone] + list(change.get("+", ()))
