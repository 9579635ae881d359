"""The texts of a playbook: expressions, regexes, references to other steps, profiles, shell text, Python for the server."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection
from typing import Any

import msgspec.inspect as mi

from runbook.lang.parse import Parsed, ParseProblem, parse
from runbook.lang.regex import compiled
from runbook.lang.tokens import find_expressions, is_whole
from runbook.lang.yaml_loader import Document
from runbook.playbook.drafts import StepDraft
from runbook.playbook.names import Names, Place
from runbook.playbook.near import suggestion
from runbook.playbook.problems import Path, Problems, Where
from runbook.playbook.shape import Leaf, Shape, kind_of, type_of
from runbook.playbook.sites import Site, only_var

_OTHER_BRACES = re.compile(r"(?<![$\{])(?:\{\{|\$\{(?!\{))(\s*(?:vars|steps|secrets)\.[^{}]*)\}\}?")
REFERENCES = ("ref", "forward_ref")
"""Kinds of text that name a step."""
ARGV_KEYS = frozenset({"command", "argv"})
"""Keys whose texts every user of the host can read in the process list."""


class Texts:
    """Checks text values; `names` says what their names mean."""

    def __init__(self, problems: Problems, names: Names, profiles: Collection[str], site: Site) -> None:
        self.problems = problems
        self.names = names
        self.profiles = profiles
        self.site = site

    def leaf(self, leaf: Leaf, where: Path, place: Place, step: StepDraft) -> None:
        """Check one text of a step's body by its kind."""
        kind = leaf.extra.get("kind")
        if kind == "expression":
            self.bare(leaf.text, where, place, boolean=True)
        elif kind == "python":
            self._python(leaf.text, where)
        else:
            found = self.template(leaf.text, where, place, self.problems.document)
            if kind == "shell" or leaf.path[0] in ARGV_KEYS:
                self._secrets_in_argv(leaf.text, found, where)
            if kind == "shell" and found:
                self._shell(leaf.text, where, found)
            elif "${{" not in leaf.text:
                self._plain(leaf, where, step)
            elif kind in REFERENCES:
                self._given_reference(leaf, where)

    def bound(self, leaf: Leaf) -> str:
        """A text as the run needs it: a step is named by its id in the run, also where an input of the type `step` names it."""
        if leaf.extra.get("kind") not in REFERENCES or (leaf.text == leaf.default and "${{" not in leaf.text):
            return leaf.text
        given = self.site.steps.get(only_var(leaf.text) or "")
        if given is not None:
            return given.id
        return leaf.text if "${{" in leaf.text else self.site.prefix + leaf.text

    def nested(self, value: Any, base: Path, place: Place) -> None:
        """Check every text of some data that stands at `base`."""
        for leaf in Shape().visit(mi.AnyType(), value).leaves:
            self.template(leaf.text, (*base, *leaf.path), place, self.problems.document)

    def variable(self, name: str, value: Any, document: Document | None, base: Path) -> None:
        """Check a top-level variable, which stands at `base`, and note what it refers to. No document: it comes from the command line."""
        found = self.names.var_references.setdefault(name, [])
        self.names.values[name] = value
        for leaf in Shape().visit(mi.AnyType(), value).leaves:
            for parsed in self.template(leaf.text, (*base, *leaf.path), Place(in_vars=True), document):
                found += parsed.references

    def forward_reference(self, step: StepDraft) -> None:
        """A step that belongs to a launch: the only one is implied; none, or several, must be named."""
        wanted = _forward_key(step.cls)
        if wanted is None or wanted[0] in step.body or "file" in step.body:
            return
        launches = [one for one in self.names.all_steps if one.type == wanted[1]]
        if len(launches) != 1:
            summary = f"`{step.type}` does not say for which launch: the playbook has {len(launches) or 'none'}"
            hint = suggestion("", [one.id for one in launches if one.named]) or "give the file itself: `file: /path/of/the/module.py`"
            self.problems.add("missing-key", summary, (*step.path, step.type), hint, at_key=True)

    def template(self, text: str, where: Path, place: Place, document: Document | None) -> list[Parsed]:
        """Check the `${{ … }}` in a text; answers those that parse. No document: it comes from the command line."""
        good = []
        if "{" in text:
            self._other_braces(text, where, document)
        for found in find_expressions(text) if "${{" in text else ():
            if not found.closed:
                hint = "close it with `}}`, or write `$${{` for the text itself"
                self.problems.at("expression", "this `${{` has no `}}`", part_of(document, where, found.start, 3), hint)
                continue
            parsed = parse(found.source)
            place_of = functools.partial(_inside, document, where, found.offset)
            if isinstance(parsed, ParseProblem):
                self.problems.at("expression", parsed.summary, place_of(parsed.offset, parsed.length), parsed.hint)
                continue
            good.append(parsed)
            self.names.check(parsed, place, place_of)
        return good

    def _other_braces(self, text: str, where: Path, document: Document | None) -> None:
        """`{{ vars.x }}` and `${vars.x}`: other tools write it so, and it would go out as it stands."""
        for found in _OTHER_BRACES.finditer(text):
            summary = f"`{found[0]}` is no expression here, and would stay as it is"
            place = part_of(document, where, found.start(), len(found[0]))
            self.problems.at("other-braces", summary, place, f"write `${{{{ {found[1].strip()} }}}}`")

    def bare(self, text: str, where: Path, place: Place, *, boolean: bool = False) -> None:
        """Check an expression that stands without `${{ }}`."""
        if is_whole(text) or "${{" in text:
            hint = f"write `{text.strip()[3:-2].strip()}`" if is_whole(text) else "drop the `${{` and `}}`"
            summary = f"`{leaf_key(where)}` is an expression already: no `${{{{ }}}}` around it"
            self.problems.add("bare-expression", summary, where, hint)
            return
        if (braces := _OTHER_BRACES.search(text)) is not None:
            plain = _OTHER_BRACES.sub(lambda found: found[1].strip(), text).strip()
            span = part_of(self.problems.document, where, braces.start(), len(braces[0]))
            summary = f"`{leaf_key(where)}` is an expression already: no braces around its names"
            self.problems.at("bare-expression", summary, span, f"write `{plain[:60]}`")
            return
        parsed = parse(text)
        place_of = functools.partial(_inside, self.problems.document, where, 0)
        if isinstance(parsed, ParseProblem):
            self.problems.at("expression", parsed.summary, place_of(parsed.offset, parsed.length), parsed.hint)
            return
        self.names.check(parsed, place, place_of)
        what = not_boolean(parsed) if boolean else None
        if what:
            self.problems.add("not-boolean", f"this gives {what}, not true or false", where, "compare it with something, as in `… == 0`")

    def _secrets_in_argv(self, text: str, expressions: list[Parsed], where: Path) -> None:
        tainted = self.names.secret_vars()
        for reference in (reference for parsed in expressions for reference in parsed.references):
            direct = reference.root == "secrets"
            if direct or (reference.root == "vars" and reference.path and reference.path[0] in tainted):
                word = f"{reference.root}.{reference.path[0]}" if reference.path else reference.root
                what = f"`{word}`" if direct else f"`{word}`, which holds a secret,"
                summary = f"{what} would stand in a command line that every user of the host can read"
                hint = "pass it by `env: {TOKEN: ${{ … }}}` and write `$TOKEN` in shell text"
                place = part_of(self.problems.document, where, max(0, text.find(word)), len(word))
                self.problems.at("secret-in-argv", summary, place, hint)

    def _shell(self, text: str, where: Path, expressions: list[Parsed]) -> None:
        from runbook.lang.shell_text import shell_problems  # brings the evaluator, which few playbooks need to be checked

        for problem in shell_problems(text):
            if problem.code != "secret-in-shell":  # reported above, for argv as well
                self.problems.at(
                    problem.code,
                    problem.summary,
                    part_of(self.problems.document, where, problem.start, problem.end - problem.start),
                    problem.hint,
                )
        if is_whole(text) and len(expressions) == 1 and (name := _only_var(expressions[0])) is not None:
            value = self.names.values.get(name)
            if isinstance(value, str) and not is_whole(value):
                hint = f"make the variable a list, or write `${{{{ raw(vars.{name}) }}}}`"
                self.problems.add("one-word", f"`vars.{name}` is text: quoted, it is one word and no command line", where, hint)

    def _plain(self, leaf: Leaf, where: Path, step: StepDraft) -> None:
        kind, text = leaf.extra.get("kind"), leaf.text
        if kind == "regex":
            self._regex(text, where)
        elif kind == "profile" and text not in self.profiles:
            self.problems.add("unknown-profile", f"no engine profile is called `{text}`", where, suggestion(text, self.profiles))
        elif kind in REFERENCES and text != leaf.default:
            self._reference(text, leaf.extra, where, step)

    def _regex(self, text: str, where: Path) -> None:
        _, fault = compiled(text)
        if fault:
            glob = text.startswith("*") or "multiple repeat" in fault
            hint = f"`*` repeats what stands before it: write `{text.replace('*', '.*')[:60]}`" if glob else None
            self.problems.add("regex", fault, where, hint or "put `\\` before a sign that is meant as itself")

    def _python(self, text: str, where: Path) -> None:
        try:
            ast.parse(text.strip())
        except SyntaxError as error:
            hint = "it is read by the server's Python" + (", so `${{ }}` has no meaning here" if "${{" in text else "")
            self.problems.add("python", f"`{text.strip()[:60]}` is not Python: {error.msg}", where, hint)
        except (ValueError, RecursionError, MemoryError):
            self.problems.add("python", "this is not Python: it has control characters or too many nested parts", where)

    def _reference(self, id: str, extra: dict[str, Any], where: Path, step: StepDraft) -> None:
        wanted = extra["to"]
        known = {**self.names.steps, **self.names.inner}
        fitting = {name: draft for name, draft in known.items() if wanted == "any" or draft.type in (wanted, extra.get("or"))}
        if id in self.names.broken:
            return
        target = known.get(id)
        word = "step" if wanted == "any" else f"`{wanted}` step"
        if target is None:
            hint = suggestion(id, fitting) or f"give the {word} an `id:`"
            self.problems.add("unknown-step-id", f"no {word} has the id `{id}`", where, hint)
        elif id not in fitting:
            self.problems.add(
                "wrong-step", f"`{id}` is a `{target.type}` step; `{leaf_key(where)}` needs a {word}", where, suggestion(id, fitting)
            )
        elif extra["kind"] == "ref" and target.order >= step.order:
            line = self.problems.document.span(target.path).line
            self.problems.add(
                "later-step",
                f"`{id}` (line {line}) comes later than this step",
                where,
                f"move this step below `{id}`, or refer to one that has run",
            )

    def _given_reference(self, leaf: Leaf, where: Path) -> None:
        """A step that an expression names: in an included file only an input can, since only its place knows the id."""
        name, wanted = only_var(leaf.text), leaf.extra["to"]
        given = self.site.steps.get(name or "")
        if given is None:
            if self.site.prefix and name not in self.site.given and name not in self.site.missing:
                hint = f"declare `inputs: {{{leaf_key(where)}: {{type: step}}}}` and write `${{{{ vars.{leaf_key(where)} }}}}`"
                self.problems.add("type", "an included playbook names a step by its id, or by an input of the type `step`", where, hint)
        elif wanted not in ("any", given.draft.type) and given.draft.type != leaf.extra.get("or"):
            summary = f"`{given.id}` is a `{given.draft.type}` step; the input `{name}` needs a `{wanted}` step"
            self.problems.at("wrong-step", summary, given.span)
        elif given.later and leaf.extra["kind"] == "ref":
            self.problems.at("later-step", f"`{given.id}` comes later than this include", given.span, "name a step that has run")


@functools.cache
def _forward_key(cls: type) -> tuple[str, str] | None:
    """The key of a step type that names a step which may come later, and the type of that step."""
    kinds = {field.encode_name: kind_of(field.type) for field in type_of(cls).fields}
    return next(((name, extra["to"]) for name, extra in kinds.items() if extra.get("kind") == "forward_ref"), None)


def part_of(document: Document | None, where: Path, offset: int, length: int) -> Where:
    """The place of a part of the text value at `where`, worked out when it is needed."""
    return functools.partial(document.within, where, offset, length) if document is not None else None


def _inside(document: Document | None, where: Path, begins: int, offset: int, length: int) -> Where:
    """The place of a part of an expression that begins at `begins` in its text."""
    return part_of(document, where, begins + offset, length)


def _only_var(parsed: Parsed) -> str | None:
    """The variable that an expression is, and nothing else."""
    tree = parsed.tree
    if isinstance(tree, ast.Attribute) and isinstance(tree.value, ast.Name) and tree.value.id == "vars":
        return tree.attr
    return None


def leaf_key(where: Path) -> str:
    """The key that a value stands under."""
    return str(next(part for part in reversed(where) if isinstance(part, str)))


def not_boolean(parsed: Parsed) -> str | None:
    """What an expression gives when that can never be true or false; None when it may be."""
    tree = parsed.tree
    if isinstance(tree, ast.Constant) and not isinstance(tree.value, bool):
        return "text" if isinstance(tree.value, str) else "null" if tree.value is None else "a number"
    if isinstance(tree, ast.BinOp):
        return "a number or text"
    if isinstance(tree, (ast.List, ast.Tuple, ast.ListComp)):
        return "a list"
    if isinstance(tree, ast.Dict):
        return "a mapping"
    if (
        isinstance(tree, ast.Call)
        and isinstance(tree.func, ast.Name)
        and tree.func.id in ("len", "sum", "round", "abs", "sorted", "lines", "basename", "quote")
    ):
        return f"what `{tree.func.id}` gives"
    return None
