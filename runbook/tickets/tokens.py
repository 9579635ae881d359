"""Which token goes where. A token is sent only to the host that it is for: an address in a playbook must not be able to ask for it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping

from runbook.tickets.base import Login, Misused, NoToken, host_of


def first_set(environ: Mapping[str, str], names: Iterable[str]) -> tuple[str, str] | None:
    """The first variable that is set and not blank. Raises Misused for a value that no header can carry, without showing it."""
    for name in names:
        value = environ.get(name, "").strip()
        if value and not (value.isascii() and value.isprintable()):
            raise Misused(f"{name} holds characters that no token has", "is there a line break or a quotation mark in it?")
        if value:
            return name, value
    return None


def named_host(environ: Mapping[str, str], names: Iterable[str], host: str) -> bool:
    """Whether one of these variables names this host."""
    return any(host_of(environ[name]) == host for name in names if environ.get(name))


def other_host(environ: Mapping[str, str], names: Iterable[str], host: str) -> str | None:
    """The variable that names another host, when none names this one."""
    found = [name for name in names if environ.get(name)]
    return None if not found or named_host(environ, found, host) else found[0]


def header(name: str, form: str, variable: str, value: str) -> Login:
    """One header, `form` around the token."""
    return Login({name: form.format(value)}, {name: form.format(f"***{variable}***")}, {variable: value}, variable)


def basic(user: str, variable: str, value: str) -> Login:
    """HTTP Basic."""
    text = b64encode(f"{user}:{value}".encode()).decode()
    return Login(
        {"Authorization": f"Basic {text}"},
        {"Authorization": f"Basic ***{variable}***"},
        {variable: value, f"{variable}_BASIC": text},
        variable,
    )


def missing(tracker: str, variables: str, host: str, more: str = "") -> NoToken:
    """The error when nothing fits."""
    return NoToken(f"no token for {tracker} at {host}", f"set {variables}" + (f"; {more}" if more else ""))


def elsewhere(tracker: str, variable: str, value: str, host: str) -> NoToken:
    """The error when the environment's token is for another host."""
    return NoToken(
        f"the token in the environment is for {host_of(value)} ({variable}), and this ticket is at {host}",
        f"set {variable} to this {tracker} when you trust it with the token",
    )
