"""Binding: from a step as written to a step that can run. Scope, conditions, templates, time boxes, loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from runbook.engine.metrics import LastMetrics
from runbook.engine.runtime import Runtime
from runbook.engine.scope import steps_scope
from runbook.lang.expressions import Evaluation, ParseProblem, Templated, parse, template
from runbook.lang.expressions import evaluate as evaluate_parsed
from runbook.model.playbook import Retry, StepNode, Target
from runbook.model.units import Duration, UnitError, dec_hook
from runbook.playbook.convert import StepProblem, to_step
from runbook.playbook.fill import fill
from runbook.playbook.shape import type_of
from runbook.playbook.vars import Vars
from runbook.steps.base import Step, StepResult

NO_TARGET = Target(target="")


class Place(NamedTuple):
    """Where an expression is evaluated: target, loop item, and the vars of the blocks and the step around it."""

    target: Target = NO_TARGET
    host_index: int = 0
    item: Any = None
    number: int | None = None
    looping: bool = False
    layers: tuple[Mapping[str, Any], ...] = ()

    def inside(self, more: Mapping[str, Any]) -> Place:
        """The same place with one more layer of vars."""
        return self._replace(layers=(*self.layers, more)) if more else self


class Decision(NamedTuple):
    """What a condition said."""

    run: bool
    skip: bool = False
    problem: str = ""


def scope(runtime: Runtime, place: Place) -> dict[str, Any]:
    """All names that an expression may use at this place."""
    state = runtime.state
    declared = {node.id: runtime.table[node.type].RESULTS for node in runtime.nodes.values()}
    names: dict[str, Any] = {
        "steps": _with_metrics(runtime, steps_scope(state, declared)),
        "secrets": runtime.secrets,
        "item": place.item,
        "index": place.number,
        "host": _host(place.target, place.host_index),
        "hosts": {role: [_host(target, index) for index, target in enumerate(targets)] for role, targets in runtime.playbook.hosts.items()},
        "run": {
            "id": runtime.options.run,
            "dir": runtime.options.dir,
            "verdict": state.main.verdict if state.main else None,
            "failed_step": state.main.failed_step if state.main else None,
        },
        "__env__": runtime.environ,
        "__tensor_diff__": runtime.tensor_diff,
    }
    layers = (runtime.playbook.vars, place.target.vars, *place.layers, state.vars_set, runtime.options.overrides)
    names["vars"] = Vars(layers, names)
    return names


def _with_metrics(runtime: Runtime, steps: dict[str, Any]) -> dict[str, Any]:
    """Launches know their numbers only when asked: the last value at evaluation."""
    connected = runtime.connected()
    for (step, name), launched in runtime.state.launches.items():
        record = steps.get(step, {})
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
