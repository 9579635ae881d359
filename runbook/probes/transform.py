"""Source with probes put in: by syntax tree position, every other byte as it was, checked before it is given out.

A patched file gets one block and one statement a probe:

    # runbook probes MARKER …          the block: behind the docstring and the `from __future__` imports
    def _rb_4f2a91c0_arm(config): …
    …
    _rb_4f2a91c0(0) and _rb_4f2a91c0.hit(0, {'hidden': lambda: hidden_states})

The block stands at the top, not at the end, although that moves the lines below it: a script whose last statement is `main()`
never reaches its end, functions may be called while the module is still being imported, and an import that fails half way must
have been seen. It binds one name with one leading underscore, so that `import *` skips it, names in a class are not mangled, and
whoever collects the classes of a module finds none of ours. The statement evaluates lambdas, not `locals()`: they see what the
code at that place sees, and cost nothing while the bucket is empty.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import inspect
from collections.abc import Sequence
from typing import Union

import msgspec

from runbook.model.diagnostic import Diagnostic, Span
from runbook.probes import anchors, payload
from runbook.probes.source import Insertion, Source, parse, read_text
from runbook.probes.spec import TOTAL, Edit, Probe, is_plain

BANNER = "# runbook probes "
END = BANNER + "end"
_TELLS = b": for debugging"


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """Where a probe went: `line` counts in the file before the patch, `line_after` in the patched one."""

    index: int
    at: str
    line: int
    line_after: int
    show: tuple[str, ...]


class Transformed(msgspec.Struct, frozen=True, kw_only=True):
    """A patched file that compiles, its difference for people, and where the probes went."""

    data: bytes
    diff: str
    placed: tuple[Placed, ...]


def transform(
    data: bytes,
    probes: Sequence[Probe],
    edits: Sequence[Edit] = (),
    *,
    marker: str,
    side_file: str,
    path: str,
    run: str,
    total: int = TOTAL,
) -> Union[Transformed, list[Diagnostic]]:
    """The file with edits made and probes put in, or all the problems that stand against it.

    marker: unique to run and patch; the probes' lines carry it. side_file: path on the host that the probes append to. Lines in
    problems are those of the file; where edits change the number of lines, those of the edited text.
    """
    decoded = read_text(data, path)
    if isinstance(decoded, Diagnostic):
        return [decoded]
    text, encoding, bom = decoded
    edited = edit(text, edits, path)
    if isinstance(edited, list):
        return edited
    source = parse(edited, encoding, bom, path)
    if isinstance(source, Diagnostic):
        return [source]
    name = "_rb_" + hashlib.sha256(marker.encode()).hexdigest()[:8]
    found = [anchors.find(source.tree, probe.at, probe.after or probe.before, _side(probe), path) for probe in probes]
    calls = [call(name, index, probe) for index, probe in enumerate(probes)]
    spots = [_insertion(source, place, text, path) for place, text in zip(found, calls) if isinstance(place, anchors.Place)]
    problems = [item for item in (*found, *spots) if isinstance(item, Diagnostic)]
    if problems:
        return problems
    block = _block(source, support(name, probes, marker, side_file, run, total))
    insertions = [block, *(msgspec.structs.replace(spot, order=n) for n, spot in enumerate(spots) if isinstance(spot, Insertion))]
    result = source.insert(insertions)
    wrong = _unsound(source, result, name, path)
    if isinstance(wrong, Diagnostic):
        return [wrong]
    placed = tuple(
        _placed(source, result, n, probe, place, calls[n])
        for n, (probe, place) in enumerate(zip(probes, found))
        if isinstance(place, anchors.Place)
    )
    return Transformed(data=wrong, diff=diff(text, result, path), placed=placed)


def edit(text: str, edits: Sequence[Edit], path: str) -> str | list[Diagnostic]:
    """The text after all replacements, each made on the result of the one before; line ends follow the file's."""
    problems = []
    for number, change in enumerate(edits):
        eol = "\r\n" if "\r\n" in text else "\n"
        find, to = (part.replace("\r\n", "\n").replace("\n", eol) for part in (change.find, change.with_))
        seen = text.count(find) if find else 0
        if seen != change.count:
            problems.append(_edit_problem(text, find, seen, change.count, number, path))
        text = text.replace(find, to) if find else text
    return problems or text


def call(name: str, index: int, probe: Probe) -> str:
    """The statement of a probe, one line."""
    shown = ", ".join(f"{key!r}: lambda: {_one_line(text)}" for key, text in probe.shown().items())
    when = f", lambda: {_one_line(probe.when)}" if probe.when else ""
    return f"{name}({index}) and {name}.hit({index}, {{{shown}}}{when})"


def support(name: str, probes: Sequence[Probe], marker: str, side_file: str, run: str, total: int) -> list[str]:
    """The lines of the block."""
    code = inspect.getsource(payload.arm).replace("def arm(", f"def {name}_arm(", 1).splitlines()
    config = {"marker": marker, "side": side_file, "total": total, "probes": [_probe_config(probe) for probe in probes]}
    return [
        f"{BANNER}{marker}{_TELLS.decode()}, taken out by `runbook restore {run}`",
        *code,
        "try:",
        f"    {name} = {name}_arm(dict({ascii(config)}, file=__import__('os').path.abspath(globals().get('__file__', '')), module=__name__))",
        "except Exception:",
        f"    {name} = lambda probe: False",
        f"del {name}_arm",
        END,
    ]


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


def _side(probe: Probe) -> str:
    return "after" if probe.after else "before" if probe.before else "entry"


def _one_line(text: str) -> str:
    return ast.unparse(ast.parse(text.strip(), mode="eval"))


def _probe_config(probe: Probe) -> dict[str, object]:
    plain = [key for key, text in probe.shown().items() if is_plain(text)]
    return {"hits": probe.hits.count, "per": probe.hits.window_s, "plain": plain, "when_plain": not probe.when or is_plain(probe.when)}


def _insertion(source: Source, place: anchors.Place, text: str, path: str) -> Insertion | Diagnostic:
    """A line of its own where the statement has one; else in the same line, behind a semicolon."""
    statement, eol = place.statement, source.eol
    start, end = source.start(statement), source.end(statement)
    simple = not hasattr(statement, "body") and not isinstance(statement, ast.Match)
    if source.text.startswith("elif", start) and isinstance(statement, ast.If):
        hint = "choose the `if` that it belongs to, or a statement inside its block"
        return _problem("no-place", path, statement.lineno, "there is no place beside an `elif`", hint)
    if place.after:
        if source.begins_line(start) and source.ends_line(end):
            stop, line = source.line_stop(end), source.indent(start) + text
            return Insertion(stop, 0, line + eol if source.text[:stop].endswith(("\n", "\r")) else eol + line)
        return Insertion(end, 0, f"; {text}") if simple else _no_place(path, statement)
    if source.begins_line(start):
        return Insertion(source.line_start(start), 0, source.indent(start) + text + eol)
    return Insertion(start, 0, f"{text}; ") if simple else _no_place(path, statement)


def _no_place(path: str, statement: ast.stmt) -> Diagnostic:
    return _problem(
        "no-place",
        path,
        statement.lineno,
        f"line {statement.lineno} is laid out so that nothing can be put beside it",
        "choose another statement",
    )


def _block(source: Source, lines: list[str]) -> Insertion:
    """Behind docstring and `from __future__` imports, before everything else."""
    text = source.eol.join(lines) + source.eol
    body = source.tree.body
    first = 1 if body and anchors.is_docstring(body[0]) else 0
    while first < len(body) and isinstance(node := body[first], ast.ImportFrom) and node.module == "__future__":
        first += 1
    if first == len(body):
        end = len(source.text)
        return Insertion(end, -1, text if not source.text or source.text.endswith(("\n", "\r")) else source.eol + text)
    start = source.start(body[first])
    if source.begins_line(start):
        return Insertion(source.line_start(start), -1, text)
    return Insertion(start, -1, source.eol + text)


def _unsound(source: Source, result: str, name: str, path: str) -> bytes | Diagnostic:
    """The bytes of a result that compiles and is the source once our nodes are out; else what is wrong with it."""
    try:
        data = source.encode(result)
        compile(data, path, "exec", dont_inherit=True)
        tree = ast.parse(result, path)
    except (SyntaxError, ValueError, RecursionError) as error:
        return _problem(
            "does-not-compile", path, 1, f"the patched file would not compile: {error}", "choose another place or another expression"
        )
    if ast.dump(_Strip(name).visit(tree)) != ast.dump(source.tree):
        return _problem("not-the-same", path, 1, "the patched file would differ in more than its probes", "choose another place")
    return data


class _Strip(ast.NodeTransformer):
    """Takes out what was put in: each statement of our name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        value = node.value
        mine = isinstance(value, ast.BoolOp) and isinstance(value.values[0], ast.Call) and self._is_ours(value.values[0].func)
        return None if mine else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        return None if node.name == f"{self._name}_arm" else self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> ast.AST | None:
        first = node.body[0]
        return None if isinstance(first, ast.Assign) and self._is_ours(first.targets[0]) else self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> ast.Delete | None:
        target = node.targets[0]
        return None if isinstance(target, ast.Name) and target.id == f"{self._name}_arm" else node

    def _is_ours(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id == self._name


def _placed(source: Source, result: str, index: int, probe: Probe, place: anchors.Place, text: str) -> Placed:
    line_after = result[: result.index(text)].replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    return Placed(
        index=index, at=probe.at, line=source.line_of(source.start(place.statement)), line_after=line_after, show=tuple(probe.shown())
    )


def _edit_problem(text: str, find: str, seen: int, count: int, number: int, path: str) -> Diagnostic:
    if not find:
        return _problem("edit-empty", path, 1, f"replace {number + 1} looks for an empty text", "write the text that is to be replaced")
    lines = [text.count("\n", 0, position) + 1 for position in _positions(text, find)]
    if seen:
        return _problem(
            "not-unique",
            path,
            lines[0],
            f"`{find}` is there {seen} times, not {count}: lines {', '.join(map(str, lines[:10]))}",
            f"write `count: {seen}`, or more of the text",
        )
    rows = text.splitlines()
    near = difflib.get_close_matches(find.strip().splitlines()[0] if find.strip() else find, [row.strip() for row in rows], n=3, cutoff=0.5)
    listed = "; ".join(f"line {1 + [row.strip() for row in rows].index(row)}: `{row}`" for row in near)
    return _problem(
        "anchor-missing",
        path,
        1,
        f"`{find}` is not in the file" + (f"; nearest: {listed}" if listed else ""),
        "copy the text from the file",
    )


def _positions(text: str, find: str) -> list[int]:
    found, position = [], text.find(find)
    while position >= 0:
        found.append(position)
        position = text.find(find, position + len(find))
    return found


def _problem(code: str, path: str, line: int, summary: str, hint: str) -> Diagnostic:
    return Diagnostic(code=code, summary=summary, span=Span(path, line, 1), hint=hint)
