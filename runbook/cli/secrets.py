"""Values of the secrets that a playbook declares: from the environment, else from a file or a command of this machine.

Everything is read before anything touches a host. What goes wrong is told by the secret's name and its source, never by a value.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from runbook.model.diagnostic import Diagnostic, Span
from runbook.model.playbook import Secret

MOST_BYTES = 64 << 10
LIMIT_S = 30.0
"""A password manager may ask its agent; nobody is there to type."""


class Unreadable(Exception):
    """A source that should have given a value and did not. `hint` says what to do."""

    def __init__(self, summary: str, hint: str) -> None:
        super().__init__(summary)
        self.summary = summary
        self.hint = hint


def read(
    secrets: Iterable[Secret], environ: Mapping[str, str], folder: Path, place: Span | None = None
) -> tuple[dict[str, str], dict[str, Diagnostic]]:
    """The values that are there, and by name what is wrong with a source. `folder` is where relative files count from."""
    values: dict[str, str] = {}
    wrong: dict[str, Diagnostic] = {}
    for secret in secrets:
        try:
            value = environ.get(secret.name) or _elsewhere(secret, folder)
        except Unreadable as problem:
            wrong[secret.name] = Diagnostic(code="bad-secret", span=place, summary=problem.summary, hint=problem.hint)
            continue
        if value:
            values[secret.name] = value
    return values, wrong


def how_to_set(name: str, declared: Iterable[Secret]) -> str:
    """What to do about one that has no value."""
    file = next((secret.file for secret in declared if secret.name == name), "")
    return (f"write it into {file}, or " if file else "") + f"run with {name}=… in the environment"


def _elsewhere(secret: Secret, folder: Path) -> str:
    if secret.file:
        return _from_file(secret.name, folder / Path(secret.file).expanduser())
    return _from_command(secret.name, secret.command, folder) if secret.command else ""


def _from_file(name: str, path: Path) -> str:
    """The file's text without line breaks at its end; empty when there is no such file."""
    what = f"the secret `{name}` from {path}"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise Unreadable(f"{what}: {error.strerror}", "check the path and its rights") from None
    with os.fdopen(descriptor, "rb") as source:
        status = os.fstat(source.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable(f"{what}: it is not a regular file", "name the file itself")
        if status.st_uid not in (os.geteuid(), 0):
            raise Unreadable(f"{what}: it belongs to uid {status.st_uid}, who may change it", "keep secrets in files of your own")
        if status.st_mode & 0o077:
            fix = f"chmod 600 {path}; where that is not possible, `command: [cat, {path}]`"
            raise Unreadable(f"{what}: others may read or write it (mode {stat.S_IMODE(status.st_mode):o})", fix)
        return _text(what, source.read(MOST_BYTES + 1))


def _from_command(name: str, argv: list[str], folder: Path) -> str:
    """What the command prints, without line breaks at its end. Its stderr is not shown: it may hold what it looked for."""
    what = f"the secret `{name}` from `{argv[0]}`"
    by_hand = "run the command by hand and see"
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unreadable(f"{what}: no answer in {LIMIT_S:.0f} s", "it must not ask anybody") from None
    except (OSError, ValueError) as error:
        raise Unreadable(f"{what}: {getattr(error, 'strerror', None) or 'it cannot be run'}", "it is a program and its arguments") from None
    if done.returncode != 0:
        raise Unreadable(f"{what}: it exited {done.returncode}", by_hand)
    text = _text(what, done.stdout)
    if not text:
        raise Unreadable(f"{what}: it printed nothing", by_hand)
    return text


def _text(what: str, data: bytes) -> str:
    if len(data) > MOST_BYTES:
        raise Unreadable(f"{what}: more than {MOST_BYTES >> 10} KiB", "that is no secret")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable(f"{what}: it is not UTF-8 text", "encode it, for example as base64") from None
    if "\0" in text:
        raise Unreadable(f"{what}: it holds a zero byte", "encode it, for example as base64")
    return text.rstrip("\r\n")
