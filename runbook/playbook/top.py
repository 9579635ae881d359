"""The top level of a playbook: roles, secrets, variables."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from runbook.lang.tokens import find_expressions
from runbook.model.diagnostic import Diagnostic, Severity
from runbook.model.playbook import Secret, Target
from runbook.playbook.near import nearest, suggestion
from runbook.playbook.problems import Path, Problems

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ROLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
TARGET = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.\\+-]*@)?(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[A-Za-z0-9_][A-Za-z0-9_.-]*)(?::(\d{1,5}))?")
"""An inventory name, an ssh alias, or user@host[:port]; IPv6 addresses in brackets."""
TICKET = re.compile(r"(?:webhook\+)?https?://[^\s@/]+(?:/\S*)?|env:[A-Za-z_][A-Za-z0-9_]*")
EVERYWHERE = "all"
BUILT_IN = ("local", "lab")
APART = "give each its own name in hosts.yaml: `hosts: {NAME: {host: ADDRESS, via: …}}`"
FORM = "write `local`, `lab`, an ssh alias or `user@host:port`"


def roles_in(raw: Any) -> dict[Any, Any]:
    """`hosts:` as roles. A list of roles is a mistake, which is told with the shape; which roles are meant is plain."""
    if isinstance(raw, list):
        return {role: target for item in raw if isinstance(item, dict) for role, target in item.items()}
    return raw if isinstance(raw, dict) else {}


def read_hosts(
    problems: Problems, raw: Any, roles: Mapping[str, Sequence[str]], groups: Mapping[str, Sequence[str]] | None = None
) -> dict[str, tuple[Target, ...]]:
    """Roles and their targets; `roles` are those of the command line, which replace what the file says. `groups` stand for their hosts."""
    groups = groups or {}
    found: dict[str, tuple[Target, ...]] = {}
    for role, value in roles_in(raw).items():
        path: Path = ("hosts", role)
        if not isinstance(role, str) or not ROLE.fullmatch(role) or role == EVERYWHERE:
            problems.add(
                "bad-role",
                f"`{role}` cannot be the name of a role",
                path,
                "use letters, digits, `_` and `-`; `all` means every role",
                at_key=True,
            )
            continue
        items = [name for item in (value if isinstance(value, list) else [value]) for name in _members(item, groups)]
        several = isinstance(value, list) and len(items) == len(value)
        if not items:
            problems.add("empty", f"the role `{role}` has no target", path, FORM)
        read = [_target(problems, item, (*path, index) if several else path) for index, item in enumerate(items)]
        found[role] = tuple(target for target in read if target is not None)
    for role, targets in roles.items():
        if role not in found:
            problems.at(
                "unknown-role", f"no role is called `{role}` (from -H)", problems.document.span(("hosts",)), suggestion(role, found)
            )
            continue
        before = found[role][0] if len(found[role]) == 1 else None
        found[role] = tuple(_replaced(problems, before, name) for text in targets for name in _members(text, groups))
    _check_distinct(problems, found)
    return found


def _members(item: Any, groups: Mapping[str, Sequence[str]]) -> Sequence[Any]:
    """The hosts that a target stands for: those of a group, else itself."""
    name = item.get("target") if isinstance(item, dict) else item
    if not isinstance(name, str) or name not in groups:
        return [item]
    return [{**item, "target": host} for host in groups[name]] if isinstance(item, dict) else groups[name]


def _check_distinct(problems: Problems, roles: Mapping[str, Sequence[Target]]) -> None:
    """A target's text is its name in the transcript and the key of its connection: one name, one way to get in."""
    ways: dict[str, Target] = {}
    for role, targets in roles.items():
        texts = [target.target for target in targets]
        for text in dict.fromkeys(texts):
            if texts.count(text) > 1:
                problems.add("duplicate-target", f"`{text}` stands {texts.count(text)} times in the role `{role}`", ("hosts", role), APART)
        for target in targets:
            first = ways.setdefault(target.target, target)
            if (first.via, first.python, first.gpus) != (target.via, target.python, target.gpus):
                summary = f"`{target.target}` is named with different `via`, `python` or `gpus`"
                problems.add("ambiguous-target", summary, ("hosts", role), APART)


def _target(problems: Problems, item: Any, path: Path) -> Target | None:
    if isinstance(item, str):
        _check_target(problems, item, path)
        return Target(target=item)
    try:
        target = msgspec.convert(item, Target)
    except msgspec.ValidationError:
        return None  # the shape of the top level is checked apart, and says so with its place
    _check_target(problems, target.target, (*path, "target"))
    for index, rule in enumerate(target.protect):
        if fault := rule.fault():
            problems.add("bad-rule", fault, (*path, "protect", index), "write for example `{user: alice}` or `{file: /opt/sglang/*}`")
    return target


def _check_target(problems: Problems, text: str, path: Path) -> None:
    if find_expressions(text):
        problems.add("bad-target", "a target cannot be an expression", path, "give it on the command line: `-H ROLE=TARGET`")
        return
    fault = target_fault(text)
    if fault:
        problems.add("bad-target", fault, path, FORM)


def target_fault(text: str) -> str | None:
    """Why a text cannot name a target; None when it can. Whether it exists is known only when it is asked."""
    match = TARGET.fullmatch(text)
    if match is None:
        return f"`{text}` cannot name a host"
    if match[1] and not 0 < int(match[1]) < 65536:
        return f"`{text}`: there is no port {match[1]}"
    return None


def warn_of_targets(problems: Problems, targets: Mapping[str, tuple[Target, ...]], inventory: Collection[str] | None) -> None:
    """Nearly the name of an inventory entry: then it is taken as an ssh alias, and that is rarely meant."""
    known = {*(inventory or ()), *BUILT_IN}
    for found in targets.values():
        for target in found:
            name = target.target
            if name in known or (not name.isidentifier() and not name.replace("-", "_").isidentifier()):
                continue
            close = nearest(name, known, 0.75)
            if close is not None:
                span = problems.document.span(("hosts",))
                summary = f"`{name}` is taken as an ssh alias; the inventory has no such name"
                problems.found.append(
                    Diagnostic(code="unknown-host", severity=Severity.WARNING, summary=summary, span=span, hint=f"did you mean `{close}`?")
                )


def _replaced(problems: Problems, before: Target | None, text: str) -> Target:
    """A target from the command line. How to get in (`via`, `python`, `gpus`) belonged to the one it replaces, so it goes."""
    fault = target_fault(text)
    if fault:
        problems.at("bad-target", f"{fault} (from -H)", problems.document.span(("hosts",)), FORM)
    return Target(target=text, vars=before.vars if before else {})


def read_secrets(problems: Problems, raw: Any) -> tuple[Secret, ...]:
    """Declared secrets, each once."""
    found: dict[str, Secret] = {}
    for index, item in enumerate(raw if isinstance(raw, list) else ()):
        name = item if isinstance(item, str) else item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str):
            continue
        path: Path = ("secrets", index) if isinstance(item, str) else ("secrets", index, "name")
        if not NAME.fullmatch(name):
            problems.add("bad-name", f"`{name}` is not the name of an environment variable", path, "use letters, digits and `_`")
        elif name in found:
            problems.add("duplicate-id", f"the secret `{name}` is declared twice", path, "keep one")
        found.setdefault(name, _secret(problems, name, item, ("secrets", index)) if isinstance(item, dict) else Secret(name=name))
    return tuple(found.values())


def _secret(problems: Problems, name: str, item: dict[Any, Any], path: Path) -> Secret:
    """One with its source; what has the wrong shape is told elsewhere."""
    file, command = item.get("file", ""), item.get("command", [])
    if file and command:
        problems.add("bad-secret", f"the secret `{name}` has both `file` and `command`", path, "keep one of them")
    if "command" in item and not command:
        problems.add("empty", f"`command` of the secret `{name}` is empty", (*path, "command"), "write a program and its arguments")
    for key, text in (("file", file), *(("command", word) for word in (command if isinstance(command, list) else ()))):
        if isinstance(text, str) and find_expressions(text):
            problems.add("bad-secret", f"`{key}` of the secret `{name}` cannot hold an expression", (*path, key), "secrets are read first")
    return Secret(
        name=name,
        required=item.get("required") is True,
        file=file if isinstance(file, str) else "",
        command=[word for word in command if isinstance(word, str)] if isinstance(command, list) else [],
    )


def read_posts(problems: Problems, raw: Any) -> tuple[str, ...]:
    """Addresses of tickets. Whose they are is known to the trackers; here only what no tracker can take."""
    several = isinstance(raw, list)
    items = [item for item in (raw if several else [raw]) if isinstance(item, str)]
    for index, text in enumerate(items):
        path: Path = ("post", index) if several else ("post",)
        if find_expressions(text):
            problems.add("bad-ticket", "a ticket cannot be an expression", path, "take it from the environment: `post: env:TICKET_URL`")
        elif TICKET.fullmatch(text) is None:
            hint = "write `https://github.com/OWNER/REPO/issues/7`, `webhook+https://…` or `env:NAME`"
            problems.add("bad-ticket", f"`{text}` is not the address of a ticket", path, hint)
        elif items.index(text) < index:
            problems.add("duplicate-ticket", f"`{text}` is named twice", path, "keep one")
    return tuple(items)


def read_outputs(problems: Problems, raw: Any) -> dict[str, Any]:
    """What each declared output is, unevaluated."""
    declared = raw if isinstance(raw, dict) else {}
    check_var_names(problems, declared, ("outputs",))
    return {name: value.get("value") if isinstance(value, dict) else value for name, value in declared.items()}


def check_var_names(problems: Problems, vars: Any, path: Path) -> None:
    """Names that an expression can say."""
    for name in vars if isinstance(vars, dict) else ():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            problems.add(
                "bad-name",
                f"`{name}` is not the name of a variable",
                (*path, name),
                "use letters, digits and `_`, a letter first",
                at_key=True,
            )
