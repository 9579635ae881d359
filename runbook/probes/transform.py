"""Source with probes put in: by syntax tree position, every other byte as it was, checked before it is given out.

A patched file gets the block and the last line of block.py, and a statement a probe:

    _rb_4f2a91c0(0) and _rb_4f2a91c0.hit(0, {'hidden': lambda: hidden_states})

The statement evaluates lambdas, not `locals()`: they see what the code at that place sees, and cost nothing while the bucket is
empty. An exit probe wraps the body of its function as well (exits.py).
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Sequence
from typing import Union

import msgspec

from runbook.model.diagnostic import Diagnostic, Span
from runbook.probes import anchors, exits
from runbook.probes.alive import constructors
from runbook.probes.block import diff, first_place, last_line, same, strip, support
from runbook.probes.edits import edit
from runbook.probes.source import SAME_LINE, Insertion, Source, after_line, line_rank, parse, read_text
from runbook.probes.spec import TOTAL, Edit, Probe, expression_problems


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """Where a probe went: `line` counts in the file before the patch, `line_after` in the patched one."""

    index: int
    at: str
    line: int
    line_after: int
    show: tuple[str, ...]
    save: tuple[str, ...] = ()
    alive: str = ""


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
    built = constructors(source, probes, name, path)
    problems = [item for item in (*found, *built) if isinstance(item, Diagnostic)]
    if problems:
        return problems
    spots = [item for item in found if isinstance(item, _Spot)]
    inserted = [spot.insertion for spot in spots if spot.insertion] + [item for item in built if isinstance(item, Insertion)]
    block = first_place(source, support(name, probes, marker, side_file, run, total))
    result = _with_exits(source.insert(inserted), source, probes, spots, name, path)
    if isinstance(result, Diagnostic):
        return [result]
    result = result[: block.offset] + block.text + result[block.offset :]  # nothing was put in before it: probes are in functions
    result = last_line(result, source.eol, name)
    patched = _checked(source, result, name, path)
    if isinstance(patched, Diagnostic):
        return [patched]
    return Transformed(data=patched, diff=diff(text, result, path), placed=_placed(name, result, probes, spots))


def call(name: str, index: int, probe: Probe) -> str:
    """The statement of a probe, one line."""
    given = "lambda result, error" if probe.where == "exit" else "lambda"
    asks = f"{name}.left({index})" if probe.where == "exit" else f"{name}({index})"
    shown, saved = (
        "{" + ", ".join(f"{key!a}: {given}: {_one_line(text)}" for key, text in texts.items()) + "}"
        for texts in (probe.shown(), probe.saved())
    )
    when = f"{given}: {_one_line(probe.when)}" if probe.when else "None"
    more = f", {when}, {saved}" if probe.save else f", {when}" if probe.when else ""
    return f"{asks} and {name}.hit({index}, {shown}{more})"


def _with_exits(text: str, source: Source, probes: Sequence[Probe], spots: Sequence[_Spot], name: str, path: str) -> str | Diagnostic:
    """The text with the bodies of exit probes wrapped: as many at once as do not meet, each round on a tree of its own."""
    outs = [(number, spot) for number, spot in enumerate(spots) if not spot.insertion]
    wanted = [exits.Exit(spot.function, number, call(name, number, probes[number])) for number, spot in outs]
    for group in exits.rounds(wanted):
        read = parse(text, source.encoding, source.bom, path)
        if isinstance(read, Diagnostic):
            return read
        index = anchors.Index(read.tree, path)
        here: list[exits.Exit] = []
        for one in group:
            place = index.find(probes[one.number].at, "", "exit")
            if isinstance(place, Diagnostic):
                return place
            here.append(msgspec.structs.replace(one, function=place.function))
        text = exits.wrap(read, here, name)
    return text


def _one_line(text: str) -> str:
    return ast.unparse(ast.parse(text.strip(), mode="eval"))


def _expressions(probes: Sequence[Probe]) -> list[str]:
    return [text for probe in probes for text in (*probe.shown().values(), *probe.saved().values(), probe.when) if text]


class _Spot(msgspec.Struct, frozen=True):
    """The function and line that a probe belongs to, and what goes in where; nothing yet for an exit probe."""

    function: anchors.Function
    line: int
    insertion: Insertion | None = None


def _locate(source: Source, index: anchors.Index, probe: Probe, number: int, text: str) -> _Spot | Diagnostic:
    side = "after" if probe.after else "before" if probe.before else probe.where or "entry"
    place = index.find(probe.at, probe.after or probe.before, side)
    if isinstance(place, Diagnostic):
        return place
    if side == "exit":
        return _Spot(place.function, place.function.lineno)
    insertion = _insertion(source, place, text, index.path)
    if isinstance(insertion, Diagnostic):
        return insertion
    return _Spot(place.function, source.line_of(source.start(place.statement)), msgspec.structs.replace(insertion, order=number))


def _insertion(source: Source, place: anchors.Place, text: str, path: str) -> Insertion | Diagnostic:
    """A line of its own where the statement has one; else in the same line, behind a semicolon."""
    statement = place.statement
    start, end = source.start(statement), source.end(statement)
    simple = not hasattr(statement, "body") and not isinstance(statement, ast.Match)
    if source.text.startswith("elif", start) and isinstance(statement, ast.If):
        hint = "choose the `if` that it belongs to, or a statement inside its block"
        return _problem("no-place", path, statement.lineno, "there is no place beside an `elif`", hint)
    if place.after:
        if source.begins_line(start) and source.ends_line(end):
            return after_line(source, source.line_stop(end), source.indent(start), text, 0)
        return Insertion(end, SAME_LINE, 0, f"; {text}") if simple else _no_place(path, statement)
    if source.begins_line(start):
        indent = source.indent(start)
        return Insertion(source.line_start(start), line_rank(indent), 0, indent + text + source.eol)
    return Insertion(start, SAME_LINE, 0, f"{text}; ") if simple else _no_place(path, statement)


def _no_place(path: str, statement: ast.stmt) -> Diagnostic:
    return _problem(
        "no-place",
        path,
        statement.lineno,
        f"line {statement.lineno} is laid out so that nothing can be put beside it",
        "choose another statement",
    )


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
    if not same(strip(tree, name), source.tree):
        return _problem("not-the-same", path, 1, "the patched file would differ in more than its probes", "choose another place")
    return data


def _placed(name: str, result: str, probes: Sequence[Probe], spots: Sequence[_Spot]) -> tuple[Placed, ...]:
    ours = re.compile(re.escape(name) + r"(?:\.left)?\((\d+)\) and ")
    lines = {int(number): at for at, line in enumerate(re.split(r"\r\n|\n|\r", result), 1) for number in ours.findall(line)}
    return tuple(
        Placed(
            index=number,
            at=probe.at,
            line=spot.line,
            line_after=lines[number],
            show=tuple(probe.shown()),
            save=tuple(probe.saved()),
            alive=probe.alive,
        )
        for number, (probe, spot) in enumerate(zip(probes, spots, strict=True))
    )


def _problem(code: str, path: str, line: int, summary: str, hint: str) -> Diagnostic:
    return Diagnostic(code=code, summary=summary, span=Span(path, line, 1), hint=hint)
