"""Where a file's steps come to stand: at the top of a run, or inside another playbook that includes the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec.inspect as mi

from runbook.lang.parse import Parsed, Reference, parse
from runbook.lang.tokens import find_expressions, is_whole
from runbook.model.diagnostic import Span
from runbook.model.playbook import Input
from runbook.playbook.drafts import StepDraft
from runbook.playbook.inputs import STEP, misfit
from runbook.playbook.names import Names
from runbook.playbook.near import not_given, suggestion
from runbook.playbook.problems import Path, Problems
from runbook.playbook.shape import Shape
from runbook.playbook.top import EVERYWHERE


@dataclass(frozen=True)
class GivenStep:
    """A step of an including playbook that an input names. `id` is as events name it; `later`: it has not run before the include."""

    id: str
    draft: StepDraft
    span: Span
    later: bool


@dataclass(frozen=True)
class Site:
    """What the surroundings give to a file. At the top of a run: nothing but the targets of its roles."""

    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Each of the file's roles as roles of the run."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Each role of the run to its number of targets."""
    host_vars: frozenset[str] = frozenset()
    prefix: str = ""
    """What stands before the ids of the file's steps."""
    given: Mapping[str, Any] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    """Inputs that should be given and are not, which is reported where the file is included."""
    steps: Mapping[str, GivenStep] = field(default_factory=dict)
    """Inputs that name a step."""
    tainted: frozenset[str] = frozenset()
    """Inputs whose values lead to a secret."""

    def targets(self, role: str) -> int:
        """On how many targets a role of the file is."""
        return sum(self.counts.get(one, 0) for one in self.roles.get(role, ()))


class Placing:
    """Makes the site of an include; what does not fit is reported in the including file."""

    def __init__(self, problems: Problems, names: Names, site: Site) -> None:
        self.problems = problems
        self.names = names
        self.site = site

    def inside(self, draft: StepDraft, host: Any, roles: list[str], inputs: Mapping[str, Input], file: str) -> Site:
        """The site of `file`, which declares `roles` and `inputs`; `host` is the one of the include step or of a block around it."""
        given = draft.body.get("with")
        given = given if isinstance(given, dict) else {}
        steps = self._check_inputs(draft, given, inputs, file)
        return Site(
            roles=self._roles(draft, host, roles, file),
            counts=self.site.counts,
            host_vars=self.site.host_vars,
            prefix=f"{self.site.prefix}{draft.id}.",
            given={**given, **{name: step.id for name, step in steps.items()}},
            missing=frozenset(name for name, one in inputs.items() if one.required and name not in given),
            steps=steps,
            tainted=frozenset(name for name, value in given.items() if self._leads_to_secret(value)),
        )

    # inputs ------------------------------------------------------------------------------------------------------

    def _check_inputs(self, draft: StepDraft, given: dict[str, Any], inputs: Mapping[str, Input], file: str) -> dict[str, GivenStep]:
        steps: dict[str, GivenStep] = {}
        for name, value in given.items():
            path: Path = draft.place(("with", name))
            if name not in inputs:
                hint = suggestion(str(name), inputs) or "it takes none: declare it there under `inputs:`"
                self.problems.add("unknown-input", f"`{file}` has no input `{name}`", path, hint, at_key=True)
            elif inputs[name].type == STEP:
                found = self._step(draft, value, path)
                steps |= {name: found} if found else {}
            elif fault := misfit(name, inputs[name], value):
                self.problems.add(fault.code, fault.summary, (*path, *fault.path), fault.hint, at_key=fault.at == "key")
        for name in not_given((name for name, one in inputs.items() if one.required), given, inputs):
            about = f": {inputs[name].help}" if inputs[name].help else ""
            where = draft.place(("with",)) if "with" in draft.body else (*draft.path, draft.type)
            summary = f"`{file}` needs the input `{name}`{about}"
            self.problems.add("missing-input", summary, where, f"add `with: {{{name}: …}}`", at_key=True)
        return steps

    def _step(self, draft: StepDraft, value: Any, path: Path) -> GivenStep | None:
        known = {**self.names.steps, **self.names.inner}
        span = self.problems.document.span(path)
        name = only_var(value)
        if name is not None and name in self.site.steps:
            outer = self.site.steps[name]
            return GivenStep(outer.id, outer.draft, span, outer.later)
        if not isinstance(value, str) or "${{" in value:
            hint = "write the id itself, as in `server`, or pass on an input of the type `step`"
            self.problems.add("type", "this input is the id of a step", path, hint)
            return None
        step = known.get(value)
        if step is None:
            if value not in self.names.broken:
                self.problems.add("unknown-step-id", f"no step has the id `{value}`", path, suggestion(value, known))
            return None
        return GivenStep(self.site.prefix + value, step, span, step.order >= draft.order)

    def _leads_to_secret(self, value: Any) -> bool:
        tainted = self.names.secret_vars()
        return any(one.root == "secrets" or (one.root == "vars" and one.path[:1] and one.path[0] in tainted) for one in references(value))

    # roles -------------------------------------------------------------------------------------------------------

    def _roles(self, draft: StepDraft, host: Any, roles: list[str], file: str) -> dict[str, tuple[str, ...]]:
        named = draft.body.get("hosts")
        named = named if isinstance(named, dict) else {}
        for role in named:
            if role not in roles:
                hint = suggestion(str(role), roles) or "it has none"
                self.problems.add("unknown-role", f"`{file}` has no role `{role}`", draft.place(("hosts", role)), hint, at_key=True)
        return {role: self._placed(draft, role, named.get(role), host, roles, file) for role in roles}

    def _placed(self, draft: StepDraft, role: str, named: Any, host: Any, roles: list[str], file: str) -> tuple[str, ...]:
        ours = list(self.site.roles)
        if named is not None:
            return self._outer(draft, role, named)
        if host is not None and len(roles) == 1:
            return self.expand(host)
        if role in ours:
            return self.site.roles[role]
        if len(ours) == 1:
            return self.site.roles[ours[0]]
        hint = f"say which of ours it is: `hosts: {{{role}: {ours[0] if ours else 'ROLE'}}}`"
        self.problems.add("unplaced-role", f"where is the role `{role}` of `{file}`?", (*draft.path, draft.type), hint, at_key=True)
        return ()

    def _outer(self, draft: StepDraft, role: str, named: Any) -> tuple[str, ...]:
        items = named if isinstance(named, list) else [named]
        for index, item in enumerate(items):
            path = ("hosts", role, index) if isinstance(named, list) else ("hosts", role)
            if isinstance(item, str) and item != EVERYWHERE and item not in self.site.roles:
                hint = suggestion(item, self.site.roles) or "declare it under `hosts:`"
                self.problems.add("unknown-role", f"no role is called `{item}`", draft.place(path), hint)
        return self.expand(tuple(item for item in items if isinstance(item, str)))

    def expand(self, host: Any) -> tuple[str, ...]:
        """Roles of this file as roles of the run; `all` is every role of this file."""
        named = [host] if isinstance(host, str) else list(host)
        roles = list(self.site.roles) if EVERYWHERE in named else named
        return tuple(dict.fromkeys(outer for role in roles for outer in self.site.roles.get(role, ())))


def references(value: Any) -> list[Reference]:
    """What the expressions in a value refer to."""
    texts = [leaf.text for leaf in Shape().visit(mi.AnyType(), value).leaves if "${{" in leaf.text]
    parsed = [parse(found.source) for text in texts for found in find_expressions(text)]
    return [reference for one in parsed if isinstance(one, Parsed) for reference in one.references]


def only_var(value: Any) -> str | None:
    """The variable that a whole expression is, and nothing else."""
    if not isinstance(value, str) or not is_whole(value):
        return None
    found = references(value)
    if len(found) != 1 or found[0].root != "vars" or len(found[0].path) != 1:
        return None
    name = str(found[0].path[0])
    return name if "".join(value.split()) == f"${{{{vars.{name}}}}}" else None
