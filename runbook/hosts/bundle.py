"""What is sent to a host: the stub for its command line, and the on-host code as one block for stdin."""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Sequence
from typing import Any

from runbook.hosts.via import relaying
from runbook.onhost import boot

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,+")


@functools.cache
def sources() -> dict[str, str]:
    """Module name to source text of the code that runs on hosts."""
    return dict(boot.own_sources())


@functools.cache
def _boot_block() -> bytes:
    return boot.block(sources()["boot"])


@functools.cache
def _sources_block() -> bytes:
    return boot.block(json.dumps(sources()))


def prepare() -> None:
    """Compress the code now: in a thread, while a connection is being made."""
    _sources_block()


def payload(entry: str, args: dict[str, Any]) -> bytes:
    """The bytes for the helper's stdin; all but `args` is compressed once per process."""
    return _boot_block() + _sources_block() + boot.block(json.dumps({"entry": entry, "args": args}))


def helper_argv(via: Sequence[str] | str = (), python: str = "") -> list[str]:
    """The helper's command as words: `via`, the interpreter, the stub. Text in `via` is split as a shell would."""
    prefix = shlex.split(via) if isinstance(via, str) else list(via)
    return [*relaying(prefix), python or "python3", boot.FLAGS, boot.STUB]


def remote_command(via: Sequence[str] | str = (), python: str = "") -> str:
    """One line for the login shell of an account, whichever it is. Raises ValueError for a word with a line break."""
    return "exec " + " ".join(quote_any_shell(word) for word in helper_argv(via, python))


def quote_any_shell(word: str) -> str:
    """The word, quoted so that sh, bash, zsh, fish, csh and tcsh read the same.

    Within single quotes fish gives a meaning to backslashes and csh to `!`; a backslash before a character outside quotes means
    that character in all of them. A leading `~/` stays the home folder.
    """
    if "\n" in word or "\0" in word:
        raise ValueError(f"{word!r} cannot be part of a remote command: it holds a line break")
    if word.startswith("~/"):
        return "~/" + (quote_any_shell(word[2:]) if len(word) > 2 else "")
    if word and all(char in _PLAIN for char in word):
        return word
    parts: list[str] = []
    quoted = ""
    for char in word:
        if char in "'\\!":
            parts += [f"'{quoted}'"] if quoted else []
            parts.append("\\" + char)
            quoted = ""
        else:
            quoted += char
    parts += [f"'{quoted}'"] if quoted or not parts else []
    return "".join(parts)
