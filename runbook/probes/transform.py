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
import functools
import hashlib
import inspect
import re
from collections.abc import Sequence
from typing import Union

import msgspec

from runbook.model.diagnostic import Diagnostic, Span
from runbook.probes import anchors, payload
from runbook.probes.edits import edit
from runbook.probes.source import Insertion, Source, parse, read_text
from runbook.probes.spec import TOTAL, Edit, Probe, expression_problems, is_plain

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
    unfit = [_problem("expression", path, 1, summary, hint) for text in _expressions(probes) for summary, hint in expression_problems(text)]
    decoded = read_text(data, path)
    if isinstance(decoded, Diagnostic) or unfit:
        return [*unfit, *([decoded] if isinstance(decoded, Diagnostic) else [])]
    text, encoding, bom = decoded
    edited = edit(text, edits, path)
    if isinstance(edited, list):
        return edited
    source = parse(edited, encoding, bom, path)
    if isinstance(source, Diagnostic):
        return [source]
    name = "_rb_" + hashlib.sha256(marker.encode()).hexdigest()[:8]
    index = anchors.Index(source.tree, path)
    found = [_locate(source, index, probe, number, call(name, number, probe)) for number, probe in enumerate(probes)]
    problems = [item for item in found if isinstance(item, Diagnostic)]
    if problems:
        return problems
    spots = [item for item in found if isinstance(item, _Spot)]
    block = _block(source, support(name, probes, marker, side_file, run, total))
    result = source.insert([block, *(spot.insertion for spot in spots)])
    patched = _checked(source, result, name, path)
    if isinstance(patched, Diagnostic):
        return [patched]
    return Transformed(data=patched, diff=diff(text, result, path), placed=_placed(name, result, probes, spots))


def call(name: str, index: int, probe: Probe) -> str:
    """The statement of a probe, one line."""
    shown = ", ".join(f"{key!a}: lambda: {_one_line(text)}" for key, text in probe.shown().items())
    when = f", lambda: {_one_line(probe.when)}" if probe.when else ""
    return f"{name}({index}) and {name}.hit({index}, {{{shown}}}{when})"


def support(name: str, probes: Sequence[Probe], marker: str, side_file: str, run: str, total: int) -> list[str]:
    """The lines of the block."""
    code = _arm_source().replace("def arm(", f"def {name}_arm(", 1).splitlines()
    config = {"marker": marker, "side": side_file, "total": total, "probes": [_probe_config(probe) for probe in probes]}
    return [
        f"{BANNER}{marker}{_TELLS.decode()}, taken out by `runbook restore {run}`",
        *code,
        "try:",
        f"    {name} = {name}_arm(dict({config!a}, home=globals()))",
        "except Exception:",
        f"    {name} = lambda probe: False",
        f"del {name}_arm",
        END,
    ]


@functools.cache
def _arm_source() -> str:
    return inspect.getsource(payload.arm)


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


def _one_line(text: str) -> str:
    return ast.unparse(ast.parse(text.strip(), mode="eval"))


def _probe_config(probe: Probe) -> dict[str, object]:
    plain = [key for key, text in probe.shown().items() if is_plain(text)]
    return {"hits": probe.hits.per_window, "per": probe.hits.window_s, "plain": plain, "when_plain": not probe.when or is_plain(probe.when)}


def _expressions(probes: Sequence[Probe]) -> list[str]:
    return [text for probe in probes for text in (*probe.shown().values(), probe.when) if text]


class _Spot(msgspec.Struct, frozen=True):
    """The line that a probe belongs to, and what goes in where."""

    line: int
    insertion: Insertion


def _locate(source: Source, index: anchors.Index, probe: Probe, number: int, text: str) -> _Spot | Diagnostic:
    side = "after" if probe.after else "before" if probe.before else "entry"
    place = index.find(probe.at, probe.after or probe.before, side)
    if isinstance(place, Diagnostic):
        return place
    insertion = _insertion(source, place, text, index.path)
    if isinstance(insertion, Diagnostic):
        return insertion
    return _Spot(source.line_of(source.start(place.statement)), msgspec.structs.replace(insertion, order=number))


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


def _checked(source: Source, result: str, name: str, path: str) -> bytes | Diagnostic:
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


def _placed(name: str, result: str, probes: Sequence[Probe], spots: Sequence[_Spot]) -> tuple[Placed, ...]:
    ours = re.compile(re.escape(name) + r"\((\d+)\) and ")
    lines = {int(number): at for at, line in enumerate(re.split(r"\r\n|\n|\r", result), 1) for number in ours.findall(line)}
    return tuple(
        Placed(index=number, at=probe.at, line=spot.line, line_after=lines[number], show=tuple(probe.shown()))
        for number, (probe, spot) in enumerate(zip(probes, spots, strict=True))
    )


def _problem(code: str, path: str, line: int, summary: str, hint: str) -> Diagnostic:
    return Diagnostic(code=code, summary=summary, span=Span(path, line, 1), hint=hint)
