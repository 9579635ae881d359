"""What a patch adds to a file beside its probes: the block at the top, the last line, and how both are known again.

    # runbook probes MARKER …          the block: behind the docstring and the `from __future__` imports
    def _rb_4f2a91c0_arm(config): …
    …
    _rb_4f2a91c0.loaded(0)             the last line: the import came to its end

The block stands at the top, not at the end, although that moves the lines below it: a script whose last statement is `main()`
never reaches its end, functions may be called while the module is still being imported, and an import that fails half way must
have been seen. It binds one name with one leading underscore, so that `import *` skips it, names in a class are not mangled, and
whoever collects the classes of a module finds none of ours.
"""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runbook.probes import describing, fallback, payload, saving, standing
from runbook.probes.anchors import blocks, is_docstring
from runbook.probes.reading import head
from runbook.probes.source import Insertion, Source
from runbook.probes.spec import Probe, is_plain

BANNER = "# runbook probes "
END = BANNER + "end"
_TELLS = b": for debugging"


def support(name: str, probes: Sequence[Probe], marker: str, side_file: str, run: str, total: int) -> list[str]:
    """The lines of the block."""
    parts: dict[str, Callable[..., Any]] = {
        "fallback": fallback.fallback,
        "arm": payload.arm,
        "describer": describing.describer,
        "standing": standing.standing,
    }
    if any(probe.save for probe in probes):
        parts["saver"] = saving.saver
    config = {
        "marker": marker,
        "side": side_file,
        "total": total,
        "probes": [_config(probe) for probe in probes],
        "alive": constructed(probes),
    }
    given = ", ".join(["home=globals()", *(f"{part}={name}_{part}" for part in parts if part not in ("arm", "fallback"))])
    return [
        f"{BANNER}{marker}{_TELLS.decode()}, taken out by `runbook restore {run}`",
        *(line for part, function in parts.items() for line in _text_of(function, f"{name}_{part}")),
        "try:",
        f"    {name} = {name}_arm(dict({config!a}, {given}))",
        f"except Exception as {name}_error:",
        f"    {name} = {name}_fallback({name}_error, {side_file!a}, {head(marker)!a}, {len(probes)})",
        f"del {', '.join(f'{name}_{part}' for part in parts)}",
        END,
    ]


def constructed(probes: Sequence[Probe]) -> list[str]:
    """The classes that probes name as `alive`, each once."""
    return list(dict.fromkeys(probe.alive for probe in probes if probe.alive))


@functools.cache
def _text_of(function: Callable[..., Any], name: str) -> tuple[str, ...]:
    return tuple(inspect.getsource(function).replace(f"def {function.__name__}(", f"def {name}(", 1).splitlines())


def _config(probe: Probe) -> dict[str, object]:
    shown, saved = probe.shown(), probe.saved()
    config: dict[str, object] = {
        "at": probe.at.replace(".<locals>", ""),
        "hits": probe.hits.per_window,
        "per": probe.hits.window_s,
        "plain": _those(is_plain, shown),
        "when_plain": not probe.when or is_plain(probe.when),
    }
    if saved:
        config["save_plain"] = _those(is_plain, saved)
    if probe.where == "exit":
        config["of_result"] = _those(_reads_result, {**shown, **saved})
    return config


def _those(test: Callable[[str], bool], texts: Mapping[str, str]) -> list[str]:
    return [key for key, text in texts.items() if test(text)]


def _reads_result(text: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "result" for node in ast.walk(ast.parse(text.strip(), mode="eval")))


def first_place(source: Source, lines: list[str]) -> Insertion:
    """The block, behind docstring and `from __future__` imports, before everything else."""
    text = source.eol.join(lines) + source.eol
    body = source.tree.body
    first = 1 if body and is_docstring(body[0]) else 0
    while first < len(body) and isinstance(node := body[first], ast.ImportFrom) and node.module == "__future__":
        first += 1
    if first == len(body):
        end = len(source.text)
        return Insertion(end, 0, -1, text if not source.text or source.text.endswith(("\n", "\r")) else source.eol + text)
    start = source.start(body[first])
    if source.begins_line(start):
        return Insertion(source.line_start(start), 0, -1, text)
    return Insertion(start, 0, -1, source.eol + text)


def last_line(text: str, eol: str, name: str) -> str:
    """The text with its last line: reached when the import has come to its end."""
    gap = "" if not text or text.endswith(("\n", "\r")) else eol
    return f"{text}{gap}{name}.loaded(0){eol}"


def patched_by(data: bytes) -> str | None:
    """The marker of the patch that a file carries; None when it carries none."""
    for line in data.splitlines():
        if line.startswith(BANNER.encode()) and _TELLS in line:
            return line[len(BANNER) :].decode("utf-8", "replace").split(_TELLS.decode())[0]
    return None


def diff(before: str, after: str, path: str) -> str:
    """A unified diff for people: the inside of the block, the same in every patch, is folded into one line."""
    lines = list(difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), f"a{path}", f"b{path}"))
    first = next((n for n, line in enumerate(lines) if line.startswith("+" + BANNER) and not line.startswith("+" + END)), None)
    if first is not None:
        last = next(n for n in range(first, len(lines)) if lines[n].startswith("+" + END))
        lines[first + 1 : last] = [f"+# … {last - first - 1} lines that write down what the probes see\n"]
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def strip(tree: ast.Module, name: str) -> ast.Module:
    """The tree, changed in place, without what a patch put in: whatever is reached through our name."""
    _strip(tree, name)
    return tree


def _strip(node: ast.AST, name: str) -> None:
    for block in blocks(node):
        block[:] = [kept for statement in block for kept in _kept(statement, name)]
        for statement in block:
            _strip(statement, name)


def _kept(statement: ast.stmt, name: str) -> list[ast.stmt]:
    """What stays of a statement: nothing of our own, the body of a `try` that an exit probe put around it."""
    if isinstance(statement, ast.Expr) and _is_ours(statement.value, name):
        return []
    if isinstance(statement, ast.FunctionDef) and statement.name.startswith(f"{name}_"):
        return []
    if isinstance(statement, ast.Delete) and isinstance(first := statement.targets[0], ast.Name) and first.id.startswith(f"{name}_"):
        return []
    if isinstance(statement, ast.Try):
        head = statement.body[0]
        if isinstance(head, ast.Assign) and _is_ours(head.targets[0], name):
            return []
        if len(statement.finalbody) == 1 and _leaves(statement.finalbody[0], name):
            return [kept for inner in statement.body for kept in _kept(inner, name)]
    while isinstance(statement, ast.Return) and isinstance(statement.value, ast.Call) and _is_ours(statement.value, name):
        statement.value = statement.value.args[0]
    return [statement]


def _leaves(node: ast.stmt, name: str) -> bool:
    """Whether it is the last statement of an exit probe."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.BoolOp) or not _is_ours(node.value, name):
        return False
    first = node.value.values[0]
    return isinstance(first, ast.Call) and isinstance(first.func, ast.Attribute) and first.func.attr == "left"


def _is_ours(node: ast.expr, name: str) -> bool:
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.BoolOp):
            node = node.values[0]
        elif isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        else:
            return False
    return node.id == name


def same(one: object, other: object) -> bool:
    """Whether two trees say the same, places aside."""
    todo = [(one, other)]
    while todo:
        left, right = todo.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, ast.AST):
            todo += [(getattr(left, key, None), getattr(right, key, None)) for key in left._fields]
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return False
            todo += zip(left, right, strict=True)
        elif left is not right and (left != right or repr(left) != repr(right)):
            return False
    return True
