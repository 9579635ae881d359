"""What names mean where: variables, steps that ran before, secrets, roles. Checks each reference of each expression.

A variable is evaluated where it is used, so what it refers to is checked there as well, through other variables too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runbook.lang.parse import Parsed, Reference
from runbook.playbook.drafts import StepDraft
from runbook.playbook.near import nearest, suggestion
from runbook.playbook.problems import Problems, Where

INCLUDE = "include"
"""The step type that stands for the steps of another file."""
ROOTS = ("vars", "steps", "secrets", "item", "index", "host", "hosts", "run")
LITERALS = {
    **dict.fromkeys(("none", "nil", "undefined"), "write `null`"),
    **dict.fromkeys(("yes", "on"), "write `true`"),
    **dict.fromkeys(("no", "off"), "write `false`"),
    "true": "write `true`",
    "false": "write `false`",
}
"""What others call the words of the language."""
HOST_FIELDS = ("name", "address", "index")
RUN_FIELDS = ("id", "dir", "verdict", "failed_step")
ALWAYS_THERE = ("status", "verdict", "seconds", "host", "diagnosis", "reason", "attempts", "items", "hosts")
"""What every step's result has besides its type's own fields."""


@dataclass(frozen=True)
class Place:
    """Where an expression stands: which steps ran before, which local variables there are, is there a loop."""

    order: int = 0
    local_vars: frozenset[str] = frozenset()
    loop: bool = False
    own: str | None = None
    """The step's own id where its own result may be read: in `retry.until`."""
    in_vars: bool = False
    """In a top-level variable: order and loop are those of its uses, and are checked there."""


@dataclass
class Names:
    """All that a playbook declares."""

    problems: Problems
    steps: dict[str, StepDraft] = field(default_factory=dict)
    """Steps that have an id of their own."""
    broken: set[str] = field(default_factory=set)
    """Ids of steps that are reported as broken; references to them are no second mistake."""
    all_steps: list[StepDraft] = field(default_factory=list)
    """Those of included files too, under their dotted ids."""
    inner: dict[str, StepDraft] = field(default_factory=dict)
    """Steps of included files by dotted id: keys that name a step may say them, expressions may not."""
    outputs: dict[str, frozenset[str] | None] = field(default_factory=dict)
    """Id of an include to what it gives; None when its file cannot be read."""
    tainted: frozenset[str] = frozenset()
    """Inputs that the including file fills from a secret."""
    vars: set[str] = field(default_factory=set)
    set_by: dict[str, int] = field(default_factory=dict)
    """Names that only `set` steps give, with the order of the first."""
    secrets: set[str] = field(default_factory=set)
    roles: dict[str, int] = field(default_factory=dict)
    """Role to its number of targets."""
    targets_of: dict[str, int] = field(default_factory=dict)
    """Step id to the number of targets it runs on."""
    values: dict[str, Any] = field(default_factory=dict)
    """Top-level variables as they stand, with what `-e` says."""
    var_references: dict[str, list[Reference]] = field(default_factory=dict)
    """What the default of each top-level variable refers to."""

    def check(self, parsed: Parsed, place: Place, place_of: Callable[[int, int], Where]) -> None:
        """Check every reference. `place_of(offset, length)` gives the place of a part of the expression."""
        for reference in parsed.references:
            self.check_reference(reference, place, place_of(reference.offset, reference.length))

    def check_reference(self, reference: Reference, place: Place, span: Where) -> None:
        """Check one reference."""
        checks = {
            "vars": self._vars,
            "steps": self._steps,
            "secrets": self._secrets,
            "hosts": self._hosts,
            "host": lambda path, place, span: self._field("host", HOST_FIELDS, path, span),
            "run": lambda path, place, span: self._field("run", RUN_FIELDS, path, span),
            "item": self._loop("item"),
            "index": self._loop("index"),
        }
        check = checks.get(reference.root)
        if check is None:
            self._root(reference.root, place, span)
        else:
            check(reference.path, place, span)

    def _root(self, word: str, place: Place, span: Where) -> None:
        if word in self.vars or word in place.local_vars or word in self.set_by:
            hint: str | None = f"did you mean `vars.{word}`?"
        elif word in self.steps:
            hint = f"did you mean `steps.{word}`?"
        elif word in self.roles:
            hint = f"did you mean `hosts.{word}`?"
        else:
            hint = LITERALS.get(word.lower()) or suggestion(word, ROOTS)
        self.problems.at("undefined-name", f"`{word}` is not defined", span, hint)

    def _vars(self, path: tuple[Any, ...], place: Place, span: Where) -> None:
        if not path:
            return
        name = str(path[0])
        if name in place.local_vars:
            return
        if name in self.vars:
            self._through(name, place, span, {name})
        elif name not in self.set_by:
            known = self.vars | place.local_vars | set(self.set_by)
            hint = suggestion(name, known, "vars.") or "declare it under `vars:` with a default"
            self.problems.at("undefined-var", f"`vars.{name}` is not defined", span, hint)
        elif not place.in_vars and self.set_by[name] >= place.order:
            self.problems.at("later-step", f"`vars.{name}` is set only by a later step", span, "give it a default under `vars:`")

    def _through(self, name: str, place: Place, span: Where, seen: set[str]) -> None:
        """What a variable refers to must exist where the variable is used."""
        if place.in_vars:
            return
        for reference in self.var_references.get(name, ()):
            target = str(reference.path[0]) if reference.path else ""
            if reference.root == "vars" and target not in seen:
                self._through(target, place, span, seen | {target})
            elif reference.root == "steps" and target in self.steps and self.steps[target].order >= place.order:
                hint = f"step `{target}` (line {self._line(target)}) comes later"
                self.problems.at("later-step", f"`vars.{name}` uses `steps.{target}`, which has not run here", span, hint)
            elif reference.root in ("item", "index") and not place.loop:
                self.problems.at("no-loop", f"`vars.{name}` uses `{reference.root}`, and this step has no `loop`", span)

    def _steps(self, path: tuple[Any, ...], place: Place, span: Where) -> None:
        if not path:
            return
        id = str(path[0])
        step = self.steps.get(id)
        if step is None and id in self.broken:
            return
        if step is None:
            self.problems.at(
                "unknown-step-id", f"no step has the id `{id}`", span, suggestion(id, self.steps, "steps.") or "give the step an `id:`"
            )
            return
        if not place.in_vars and step.order >= place.order and id != place.own:
            own = step.order == place.order and id not in self.outputs
            what = "this is a key of that step" if own else f"it is the step at line {self._line(id)}"
            hint = "read it in a later step; of its own attempts only `retry: {until: …}` knows" if own else "move this step below it"
            self.problems.at("later-step", f"`steps.{id}` has not run here: {what}", span, hint)
            return
        if id in self.outputs:
            self._output(id, path[1:], span)
        else:
            self._result(id, step, path[1:], span)

    def _output(self, id: str, path: tuple[Any, ...], span: Where) -> None:
        """What an include gives is what its file declares."""
        known = self.outputs[id]
        if known is not None and path and path[0] not in known:
            name = str(path[0])
            declare = f"declare it in that file: `outputs: {{{name}: '${{{{ steps.ID.{name} }}}}'}}`" if name in ALWAYS_THERE else None
            hint = declare or suggestion(name, known, f"steps.{id}.") or "declare it in that file under `outputs:`"
            self.problems.at("unknown-result", f"the playbook of `{id}` has no output `{name}`", span, hint)

    def _result(self, id: str, step: StepDraft, path: tuple[Any, ...], span: Where) -> None:
        """A result field: `x.field`, `x.hosts[NAME].field`, `x.items[0].field`, `x.attempts[0].field`."""
        nested = False
        while path and path[0] in ("hosts", "items", "attempts"):
            nested = nested or path[0] == "hosts"
            path = path[2:]
        if not path:
            return
        name = str(path[0])
        own: Mapping[str, str] = getattr(step.cls, "RESULTS", {})
        if name not in own and name not in ALWAYS_THERE:
            summary = f"a `{step.type}` step has no result `{name}`"
            close = suggestion(name, [*own, *ALWAYS_THERE])
            hint = close if close and close.startswith("did") else "it has " + ", ".join(f"`{one}`" for one in (*own, "status", "verdict"))
            self.problems.at("unknown-result", summary, span, hint)
        elif not nested and self.targets_of.get(id, 1) > 1:
            summary = f"`{id}` runs on {self.targets_of[id]} targets, so `steps.{id}.{name}` is not one value"
            self.problems.at("many-targets", summary, span, f"write `steps.{id}.hosts['TARGET'].{name}`")

    def _secrets(self, path: tuple[Any, ...], place: Place, span: Where) -> None:
        if path and str(path[0]) not in self.secrets:
            name = str(path[0])
            close = nearest(name, self.secrets)
            hint = f"did you mean `secrets.{close}`?" if close else f"declare it: `secrets: [{', '.join((*sorted(self.secrets), name))}]`"
            self.problems.at("undeclared-secret", f"the secret `{name}` is not declared", span, hint)

    def _hosts(self, path: tuple[Any, ...], place: Place, span: Where) -> None:
        if path and str(path[0]) not in self.roles:
            self.problems.at("unknown-role", f"no role is called `{path[0]}`", span, suggestion(str(path[0]), self.roles, "hosts."))
        elif len(path) > 1 and isinstance(path[1], int) and not -self.roles[path[0]] <= path[1] < self.roles[path[0]]:
            self.problems.at(
                "unknown-role", f"`{path[0]}` has {self.roles[path[0]]} target(s), so there is no `[{path[1]}]`", span, "they count from 0"
            )

    def _field(self, root: str, known: Collection[str], path: tuple[Any, ...], span: Where) -> None:
        if path and path[0] not in known:
            self.problems.at("undefined-name", f"`{root}` has no `{path[0]}`", span, suggestion(str(path[0]), known, f"{root}."))

    def _loop(self, word: str) -> Any:
        def check(path: tuple[Any, ...], place: Place, span: Where) -> None:
            if not place.loop and not place.in_vars:
                self.problems.at("no-loop", f"`{word}` is there only in a step with `loop`", span, "add `loop: [...]` beside the step type")

        return check

    def _line(self, id: str) -> int:
        return self.problems.document.span(self.steps[id].path).line

    def secret_vars(self) -> set[str]:
        """Variables whose default leads to a secret."""
        tainted = {name for name, found in self.var_references.items() if any(one.root == "secrets" for one in found)}
        tainted |= self.tainted
        while more := {
            name
            for name, found in self.var_references.items()
            if name not in tainted and any(one.root == "vars" and one.path and one.path[0] in tainted for one in found)
        }:
            tainted |= more
        return tainted

    def cycles(self) -> list[tuple[str, ...]]:
        """Circles of variables that use each other: ("a", "b", "a"), each once, from its first name in file order."""
        edges = {
            name: [str(one.path[0]) for one in found if one.root == "vars" and one.path and one.path[0] in self.var_references]
            for name, found in self.var_references.items()
        }
        found: list[tuple[str, ...]] = []
        done: set[str] = set()
        for start in edges:
            trail = _trail_back(start, edges) if start not in done else None
            if trail:
                found.append((*trail, start))
                done.update(trail)
        return found


def _trail_back(start: str, edges: Mapping[str, list[str]]) -> tuple[str, ...] | None:
    """The shortest way from a name back to itself."""
    ways: list[tuple[str, ...]] = [(start,)]
    seen: set[str] = set()
    for way in ways:
        for name in edges[way[-1]]:
            if name == start:
                return way
            if name not in seen:
                seen.add(name)
                ways.append((*way, name))
    return None


def inside(place: Place, *, order: int, vars: Mapping[str, Any], loop: bool) -> Place:
    """The place of a step or block inside another."""
    return replace(place, order=order, local_vars=place.local_vars | set(vars), loop=place.loop or loop)
