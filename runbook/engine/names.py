"""Binding: from a step as written to a step that can run. Scope, conditions, templates, time boxes, loops."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from runbook.engine.metrics import LastMetrics
from runbook.engine.runtime import Runtime
from runbook.engine.scope import steps_scope
from runbook.lang.expressions import Evaluation, ParseProblem, Templated, Unknown, parse, template
from runbook.lang.expressions import evaluate as evaluate_parsed
from runbook.lang.tokens import mentions
from runbook.model.playbook import BlockNode, IncludeNode, Retry, StepNode, Target
from runbook.model.units import Duration, UnitError, dec_hook
from runbook.playbook.convert import StepProblem, to_step
from runbook.playbook.fill import fill
from runbook.playbook.inputs import misfit
from runbook.playbook.shape import type_of
from runbook.playbook.vars import Bound, Vars, filled
from runbook.steps.base import Step, StepResult

NO_TARGET = Target(target="")


class Place(NamedTuple):
    """Where an expression is evaluated: target, loop item, the vars of the blocks and the step around it, and its file."""

    target: Target = NO_TARGET
    host_index: int = 0
    item: Any = None
    number: int | None = None
    looping: bool = False
    layers: tuple[Mapping[str, Any], ...] = ()
    include: IncludeNode | None = None
    """The include whose file this is; none at the top. `outer` is where that include stands."""
    outer: Place | None = None

    @property
    def prefix(self) -> str:
        """What the ids of this file's steps begin with."""
        return f"{self.include.id}." if self.include else ""

    def at(self, target: Target, index: int) -> Place:
        """The same place on a target."""
        return self._replace(target=target, host_index=index)

    def enter(self, node: BlockNode) -> Place:
        """The place of the steps in a block; an include begins anew, with the names of its file."""
        inner = self.inside(node.common.vars)
        if not isinstance(node, IncludeNode):
            return inner
        return Place(target=self.target, host_index=self.host_index, include=node, outer=inner)

    def inside(self, more: Mapping[str, Any]) -> Place:
        """The same place with one more layer of vars."""
        return self._replace(layers=(*self.layers, more)) if more else self


class Decision(NamedTuple):
    """What a condition said."""

    run: bool
    skip: bool = False
    problem: str = ""


def around(runtime: Runtime, id: str) -> Place:
    """The place of a step or block."""
    return functools.reduce(Place.enter, runtime.tree.around[id], Place())


def scope(runtime: Runtime, place: Place) -> dict[str, Any]:
    """All names that an expression may use at this place."""
    state = runtime.state
    names: dict[str, Any] = {
        "steps": _steps(runtime, place),
        "secrets": runtime.secrets,
        "item": place.item,
        "index": place.number,
        "host": _host(place.target, place.host_index),
        "hosts": {role: [_host(target, index) for index, target in enumerate(found)] for role, found in _roles(runtime, place).items()},
        "run": {
            "id": runtime.options.run,
            "dir": runtime.options.dir,
            "verdict": state.main.verdict if state.main else None,
            "failed_step": state.main.failed_step if state.main else None,
        },
        "__env__": runtime.environ,
        "__tensor_diff__": runtime.tensor_diff,
    }
    names["vars"] = Vars(_layers(runtime, place), names)
    return names


def _layers(runtime: Runtime, place: Place) -> tuple[Mapping[str, Any], ...]:
    """All variables of a place's file, lowest first."""
    nodes = runtime.tree.steps[place.prefix]
    unset = {
        name: Unknown(f"`vars.{name}` is set by step `{node.id}`, which did not run")
        for node in nodes.values()
        if runtime.table[node.type].FREE
        for name in next(iter(node.body.values()), {})
    }
    changed = runtime.state.vars_set.get(place.prefix, {})
    include, outer = place.include, place.outer
    if include is None or outer is None:
        return unset, runtime.playbook.vars, place.target.vars, *place.layers, changed, runtime.options.overrides
    there = outer.at(place.target, place.host_index)
    given = Bound(include.given, lambda: scope(runtime, there), functools.partial(_misfit, include))
    return unset, include.vars, place.target.vars, given, *place.layers, changed


def _misfit(include: IncludeNode, name: str, value: Any) -> str | None:
    """Why a value that is known only now cannot be that input of the include."""
    fault = misfit(name, include.inputs[name], value)
    return f"input of `{include.id}`: {fault.summary}" if fault else None


def misgiven(runtime: Runtime, include: IncludeNode, place: Place) -> str | None:
    """Why a value that is given to an include at this place cannot be its input, on one of its targets. What is not known yet may fit.

    Asked before the first step, so that the answer does not hang on which step uses the value, and which steps are chosen.
    """
    given = {name: raw for name, raw in include.given.items() if name in include.inputs and mentions(raw)}
    if not given:
        return None
    on = {target.target: target for found in _roles(runtime, Place(include=include)).values() for target in found}
    for index, target in enumerate(on.values() or [NO_TARGET]):
        there = scope(runtime, place.at(target, index))
        for name, raw in given.items():
            answer = template(raw, there)
            fault = None if answer.problems else _misfit(include, name, answer.value)
            if fault is not None:
                return fault
    return None


def _roles(runtime: Runtime, place: Place) -> dict[str, list[Target]]:
    """The roles of a place's file and their targets."""
    hosts = runtime.playbook.hosts
    if place.include is None:
        return {role: list(found) for role, found in hosts.items()}
    return {role: [target for outer in roles for target in hosts[outer]] for role, roles in place.include.roles.items()}


class Outputs(Mapping[str, Any]):
    """`steps.<include>`: what its file declares, each evaluated when it is asked for."""

    def __init__(self, runtime: Runtime, node: IncludeNode, place: Place) -> None:
        self._runtime = runtime
        self._node = node
        self._place = around(runtime, node.id).at(place.target, place.host_index).enter(node)

    def __getitem__(self, name: str) -> Any:
        return filled(f"steps.{self._node.id}.{name}", self._node.outputs[name], scope(self._runtime, self._place))

    def __iter__(self) -> Iterator[str]:
        return iter(self._node.outputs)

    def __len__(self) -> int:
        return len(self._node.outputs)


def _steps(runtime: Runtime, place: Place) -> dict[str, Any]:
    """`steps`: the results of the steps of a place's file, and what its includes give."""
    prefix = place.prefix
    declared = {id: runtime.table[node.type].RESULTS for id, node in runtime.tree.steps[prefix].items()}
    steps = _with_metrics(runtime, steps_scope(runtime.state, declared, prefix), prefix)
    return {**steps, **{id: Outputs(runtime, node, place) for id, node in runtime.tree.includes[prefix].items()}}


def _with_metrics(runtime: Runtime, steps: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Launches know their numbers only when asked: the last value at evaluation."""
    connected = runtime.connected()
    for (step, name), launched in runtime.state.launches.items():
        record = steps.get(step.removeprefix(prefix), {}) if step.startswith(prefix) else {}
        if name in connected and record.get("status") == "passed" and launched.profile.metrics:
            record["metrics"] = LastMetrics(connected[name], launched)
            record["hosts"][name]["metrics"] = record["metrics"]
    return steps


def _host(target: Target, index: int) -> dict[str, Any]:
    return {"name": target.target, "address": target.target.rpartition("@")[2], "index": index}


def evaluate(runtime: Runtime, source: str, place: Place) -> Evaluation:
    """Evaluate a bare expression."""
    parsed = parse(source)
    if isinstance(parsed, ParseProblem):  # the static checks have parsed it: only text built at run time gets here
        return Evaluation(value=None, unknown=None, problem=parsed.summary, parts=())
    return evaluate_parsed(parsed, scope(runtime, place))


def decide(runtime: Runtime, condition: str | None, place: Place) -> Decision:
    """A `when` or an `until`: run, skip, or neither because it cannot be known."""
    if condition is None:
        return Decision(True)
    answer = evaluate(runtime, condition, place)
    if answer.unknown is not None:
        return Decision(False, problem=f"`{condition}` cannot be decided: {answer.unknown.reason}")
    if answer.problem is not None:
        return Decision(False, problem=f"`{condition}`: {answer.problem}")
    if not isinstance(answer.value, bool):
        return Decision(False, problem=f"`{condition}` gives {answer.value!r}, not true or false")
    return Decision(answer.value, skip=not answer.value)


def targets(runtime: Runtime, node: StepNode) -> list[Target]:
    """The targets of a step; one nameless target for a step that only computes."""
    if not runtime.table[node.type].NEEDS_HOST:
        return [NO_TARGET]
    wanted = node.common.host
    roles = list(runtime.playbook.hosts)
    if wanted is not None and wanted != "all":
        roles = [wanted] if isinstance(wanted, str) else list(wanted)
    found = {target.target: target for role in roles for target in runtime.playbook.hosts[role]}
    return list(found.values())


def file(runtime: Runtime, node: StepNode, place: Place) -> str:
    """What begins the name of an evidence file, so that several hosts and loop items of a step do not write over each other."""
    host = f"{place.target.target}-" if len(targets(runtime, node)) > 1 else ""
    return host + (f"{place.number}-" if place.looping else "")


def seconds(runtime: Runtime, timeout: str | None, place: Place) -> float | None:
    """A `timeout` in seconds, or None when there is none. A bad one that only shows at run time counts as none given."""
    if timeout is None:
        return None
    try:
        return float(Duration.parse(template(timeout, scope(runtime, place)).value))
    except UnitError:
        return None


def items(runtime: Runtime, node: StepNode, place: Place) -> list[Any] | str | None:
    """The list of a `loop`, None when there is no loop, or a sentence when it cannot be known."""
    if node.common.loop is None:
        return None
    answer = template(node.common.loop, scope(runtime, place))
    if answer.problems:
        return f"loop: {_problem(answer)}"
    return answer.value if isinstance(answer.value, list) else f"loop: needs a list, not {answer.value!r}"


def retry(runtime: Runtime, node: StepNode, place: Place) -> Retry | None:
    """The step's retry."""
    raw = node.common.retry
    if raw is None:
        return None
    until = raw.get("until")
    answer = template({key: value for key, value in raw.items() if key != "until"}, scope(runtime, place))
    return msgspec.convert({**answer.value, "until": until}, Retry, dec_hook=dec_hook)


def build(runtime: Runtime, node: StepNode, place: Place) -> Step | StepResult:
    """The step with its expressions filled in, or the result that ends it when they cannot be."""
    answer = _filled(runtime, node, place)
    if answer.problems:
        unknown = any(problem.unknown for problem in answer.problems)
        return StepResult(verdict="undecided" if unknown else "failed", reason=_problem(answer))
    try:
        return to_step(runtime.table[node.type], answer.value)
    except StepProblem as problem:
        return StepResult(verdict="failed", reason=f"after its expressions were filled in: {problem}")


def template_body(runtime: Runtime, node: StepNode, place: Place) -> dict[str, Any]:
    """A step's body with its expressions filled in as far as they are known now."""
    return {**_filled(runtime, node, place.inside(node.common.vars)).value, "id": node.id}


def _filled(runtime: Runtime, node: StepNode, place: Place) -> Templated:
    step = runtime.table[node.type]
    if step.FREE:
        return template(node.body, scope(runtime, place))
    return fill(type_of(step), node.body, lambda: scope(runtime, place))


def _problem(answer: Templated) -> str:
    first = answer.problems[0]
    return f"`${{{{ {first.source} }}}}`: {first.text}"
