"""A program's Python source, as it was when its process began: parsed, bounded, kept while the file stays the same.

Functions are found by line alone, since what a stack calls them is not always what the source does.
"""

import ast
import errno
import os
import stat
import threading
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from . import careful, procs
from .rights import read_file

MOST_BYTES = 512 << 10
MOST_KEPT = 64
MOST_LINKS = 40  # as the kernel's own limit
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.While, ast.For, ast.AsyncFor)
_lock = threading.Lock()
_kept: "Dict[Tuple[str, int, int, int], Optional[Source]]" = {}


class Source:
    """One file: its functions, and what each line stands in. `names`: source_names."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.path, self.tree = path, tree
        self.parents: Dict[ast.AST, ast.AST] = {child: one for one in ast.walk(tree) for child in ast.iter_child_nodes(one)}
        self.functions = [one for one in self.parents if isinstance(one, FUNCTIONS)]
        self.names: Any = None

    def function_at(self, line: int) -> Any:
        """The innermost function around a line, the module outside of all; None where two are on that line."""
        around = [one for one in self.functions if one.lineno <= line <= last_line(one)]
        least = min((last_line(one) - one.lineno for one in around), default=0)
        inner = [one for one in around if last_line(one) - one.lineno == least]
        return (inner[0] if len(inner) == 1 else None) if around else self.tree

    def statement_at(self, function: Any, line: int) -> Any:
        """The innermost statement of a function that this line belongs to; None where several do, or none."""
        here = [one for one in inside(function) if isinstance(one, ast.stmt) and one.lineno <= line <= last_line(one)]
        least = min((last_line(one) - one.lineno for one in here), default=0)
        inner = [one for one in here if last_line(one) - one.lineno == least]
        return inner[0] if len(inner) == 1 else None

    def around(self, node: ast.AST, function: Any) -> Iterator[Tuple[ast.AST, ast.AST]]:
        """(what encloses it, its part on the way to `node`), innermost first, up to the function."""
        while node is not function:
            above = self.parents[node]
            yield above, node
            node = above

    def outer(self, function: Any) -> List[Any]:
        """The function and those around it, innermost first, then the module."""
        found = [function]
        while found[-1] is not self.tree:
            above = self.parents[found[-1]]
            while not isinstance(above, (*FUNCTIONS, ast.Module)):
                above = self.parents[above]
            found.append(above)
        return found

    def named(self, name: str) -> List[Any]:
        """Functions of that name, methods among them."""
        return [one for one in self.functions if not isinstance(one, ast.Lambda) and one.name == name]


def last_line(node: Any) -> int:
    """Where it ends."""
    return int(node.end_lineno or node.lineno)


def inside(node: Any) -> Iterator[ast.AST]:
    """All that is executed with it: what it holds, but for the bodies of functions and classes defined there."""
    queue = list(ast.iter_child_nodes(node))
    while queue:
        one = queue.pop()
        yield one
        if not isinstance(one, (*FUNCTIONS, ast.ClassDef)):
            queue += ast.iter_child_nodes(one)


def stored(nodes: Iterator[ast.AST]) -> Set[str]:
    """Texts of what is assigned, deleted or imported among them."""
    found = set()
    for one in nodes:
        if isinstance(one, (ast.Name, ast.Attribute, ast.Subscript)) and not isinstance(one.ctx, ast.Load):
            found.add(chain(one))
        elif isinstance(one, ast.alias):
            found.add((one.asname or one.name).split(".")[0])
        elif isinstance(one, (ast.ExceptHandler, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(one.name or "")
    return found


def chain(node: Any) -> str:
    """`a.b.c` of names and attributes; empty for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    above = chain(node.value) if isinstance(node, ast.Attribute) else ""
    return "%s.%s" % (above, node.attr) if above else ""


def read(pid: int, path: str) -> Optional[Source]:
    """The source of a file that a process runs; None where it cannot be read, or may have changed since the process began: it, or a link
    or a folder on the way to it."""
    try:
        return careful.read(("source", path), lambda: _read(pid, path))
    except (OSError, careful.Stuck):
        return None


def _read(pid: int, path: str) -> Optional[Source]:
    if not os.path.isabs(path):
        return None
    since = procs.code_since(pid)
    place = _settled("/proc/%d/root" % pid, path, since)
    info = os.lstat(place)
    if not stat.S_ISREG(info.st_mode) or max(info.st_mtime, info.st_ctime) > since or info.st_size > MOST_BYTES:
        return None
    key = (path, info.st_dev, info.st_ino, info.st_mtime_ns)
    with _lock:
        if key in _kept:
            return _kept[key]
    source = _parsed(path, read_file(place, MOST_BYTES))
    with _lock:
        _kept[key] = source
        while len(_kept) > MOST_KEPT:
            del _kept[next(iter(_kept))]
    return source


def _settled(root: str, path: str, since: float) -> str:
    """Where the file lies without any link. Raises OSError where a link or a folder was made, moved or renamed since then.

    What is added to a folder changes both of its times; what is done to the folder itself only ctime.
    """
    names, done, links = path.split("/")[::-1], "", 0
    while names:
        name = names.pop()
        if name == "..":
            done = os.path.dirname(done)
        if name in ("", ".", ".."):
            continue
        info = os.lstat("%s%s/%s" % (root, done, name))
        moved = info.st_ctime > since and (stat.S_ISLNK(info.st_mode) or (stat.S_ISDIR(info.st_mode) and info.st_ctime != info.st_mtime))
        if moved or links > MOST_LINKS:
            raise OSError(errno.ESTALE, "the way to it has changed")
        if stat.S_ISLNK(info.st_mode):
            target, links = os.readlink("%s%s/%s" % (root, done, name)), links + 1
            done = "" if target.startswith("/") else done
            names += target.split("/")[::-1]
        else:
            done = "%s/%s" % (done, name)
    return root + done


def _parsed(path: str, raw: bytes) -> Optional[Source]:
    try:
        return Source(path, ast.parse(raw))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # of another Python than ours
