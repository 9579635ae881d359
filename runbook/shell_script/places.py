"""On which hosts the steps of a script run, and which of its constants they speak of."""

from __future__ import annotations

from typing import Any

from runbook.shell_script.state import Made, State, number
from runbook.shell_script.syntax import calls, words


def placed(state: State, steps: list[Made], always: list[Made]) -> tuple[list[Made], list[Made], dict[str, str]]:
    """Roles for the targets that steps have; with more than one, each step names its own."""
    targets = list(dict.fromkeys(made.host for made in [*steps, *always])) or [""]
    remote_ones = [one for one in targets if one]
    roles = {one: f"gpu{at or ''}" for at, one in enumerate(remote_ones)} if remote_ones else {"": "gpu"}
    heads = {words(call)[0] for call in calls(state.scope.script.statements)}
    if (remote_ones or heads & {"ssh", "scp", "sftp"}) and "" in targets:
        roles[""] = "here"  # the script is for the machine from which it reaches the others

    def at_its_role(made: Made) -> Made:
        role = {"host": roles[made.host]} if len(roles) > 1 else {}
        return made._replace(step={**{key: made.step[key] for key in made.step if key == "id"}, **role, **made.step})

    hosts = {role: ("local" if role == "here" else target) for target, role in roles.items()}
    return [at_its_role(one) for one in steps], [at_its_role(one) for one in always], hosts


def spoken_of(state: State, steps: list[Made]) -> dict[str, Any]:
    """The constants that steps speak of, and those that they are made of, in the order of the script."""
    said = repr([made.step for made in steps])
    wanted: dict[str, Any] = {}
    for name, value in reversed(state.vars.items()):  # a constant is made of those above it
        if f"vars.{name} " in said:
            wanted[name], said = number(value), said + value
    return dict(reversed(wanted.items()))
