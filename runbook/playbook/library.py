"""Where the playbooks are that a playbook includes, and every text that was read on the way."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from runbook.lang.yaml_loader import Document, load
from runbook.model.diagnostic import Diagnostic
from runbook.playbook.edge import EDGE

Read = Callable[[str], bytes]
"""The bytes of a file; raises OSError."""
Find = Callable[[str, str], "str | None"]
"""find(name, file): the path of the playbook that `file` calls `name`; None when there is none."""
SUFFIXES = ("", ".yaml", ".yml")
Known = Callable[[str], Iterable[str]]
"""known(file): the names by which `file` could include playbooks; asked only when a name is wrong."""
MOST_INCLUDES = 200
DEEPEST = 20


def nobody(file: str) -> Iterable[str]:
    """No names are known."""
    return ()


def find_beside(name: str, file: str) -> str | None:
    """The playbook of that name in the folder of the including file."""
    for suffix in SUFFIXES:
        path = os.path.join(os.path.dirname(file), os.path.expanduser(name + suffix))
        if os.path.isfile(path):
            return path
    return None


class Library:
    """Reads what is included and keeps what it read: `files` by path, `includes` as file → name → path."""

    def __init__(self, read: Read, find: Find, known: Known = nobody) -> None:
        self._read = read
        self._find = find
        self.known = known
        self._documents: dict[str, tuple[Document | None, list[Diagnostic]]] = {}
        self.files: dict[str, str] = {}
        self.includes: dict[str, dict[str, str]] = {}
        self.count = 0

    def read(self, file: str) -> bytes:
        """A file's bytes, kept as text. Raises OSError."""
        data = self._read(file)
        self.files[file] = data.decode("utf-8-sig", "replace")
        return data

    def locate(self, name: str, file: str) -> str | None:
        """The path of what `file` includes as `name`."""
        found = self._find(name, file)
        if found is None:
            return None
        path = os.path.normpath(found)
        self.includes.setdefault(file, {})[name] = path
        return path

    def document(self, path: str) -> tuple[Document | None, list[Diagnostic]]:
        """An included file, parsed once. Raises OSError."""
        if path not in self._documents:
            self._documents[path] = load(self.read(path), path, EDGE)
        return self._documents[path]
