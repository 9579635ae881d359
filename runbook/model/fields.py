"""Kinds of text in a step's fields. The static checks and the templating read the kind from the annotation."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta

Regex = Annotated[str, Meta(extra={"kind": "regex"})]
"""A Python regular expression; compiled by `validate`."""

ShellText = Annotated[str, Meta(extra={"kind": "shell"})]
"""Text for a shell: each expression in it becomes one quoted word."""

Expression = Annotated[str, Meta(extra={"kind": "expression"})]
"""A bare expression, without the `${{ }}` around it; evaluated by the step, never templated."""

LaunchRef = Annotated[str, Meta(extra={"kind": "ref", "to": "launch", "or": "attach"})]
"""The id of a launch step, or of one that attached a server."""

PatchRef = Annotated[str, Meta(extra={"kind": "ref", "to": "patch"})]
"""The id of a patch step."""

StepRef = Annotated[str, Meta(extra={"kind": "ref", "to": "any"})]
"""The id of any earlier step."""

ForwardLaunchRef = Annotated[str, Meta(extra={"kind": "forward_ref", "to": "launch"})]
"""The id of a launch step that may come later: only `patch.for` has one."""

ProfileName = Annotated[str, Meta(extra={"kind": "profile"})]
"""The name of an engine profile."""

PythonSource = Annotated[str, Meta(extra={"kind": "python"})]
"""Python that runs in the server, not here; compiled by `validate`, never templated."""

Port = Annotated[int, Meta(ge=1, le=65535)]
"""A TCP port."""

Pid = Annotated[int, Meta(ge=1)]
"""A process id; what the kernel takes for a group, or for everybody, is none."""


def url_fault(text: str) -> tuple[str, str] | None:
    """Why a text is no address that can be asked, and what to write; None when it is one."""
    try:
        found = urlsplit(text)
        named = found.scheme in ("http", "https") and bool(found.hostname) and (found.port is None or found.port > 0)
    except ValueError:
        named = False
    if named and not re.search(r"\s", text):
        return None
    return f"`{text}` is no address of HTTP", "write for example `http://127.0.0.1:8000/health`"
