"""A client that sends nothing: it keeps what would be sent, and answers with placeholders, so the same code runs as in earnest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from runbook.tickets.base import Answer, File, Login, Request
from runbook.tickets.bodies import encoded, file_bytes


class Unknown(str):
    """Something that only the tracker could tell: any key of it is unknown as well, and as a list it is empty."""

    def __getitem__(self, key: Any) -> Unknown:
        return Unknown(f"<{key}>")

    def get(self, key: str, default: Any = None) -> Unknown:
        """As a mapping's."""
        return Unknown(f"<{key}>")

    def __iter__(self) -> Iterator[str]:
        return iter(())


class DryClient:
    """A `Client` whose `requests` are what would be sent, as plain data."""

    dry = True

    def __init__(self, login: Login, mask: Callable[[str], str]) -> None:
        self._login, self._mask = login, mask
        self.requests: list[dict[str, Any]] = []

    def send(self, request: Request, accept: tuple[int, ...] = ()) -> Answer:
        """Keep the request; answer a placeholder."""
        body, headers = encoded(request, self._mask)
        row: dict[str, Any] = {
            "method": request.method,
            "url": self._mask(request.url),
            "headers": {**self._login.shown, **headers, **request.headers},
        }
        if request.upload is not None:
            data = file_bytes(request.upload.file, self._mask)
            row["form"] = {"fields": request.upload.fields, "field": request.upload.field, **_described(request.upload.file, data)}
        elif request.raw is not None:
            row["file"] = _described(request.raw, body or b"")
        elif body is not None:
            row["body"] = body.decode()
        self.requests.append(row)
        return Answer(200, {}, Unknown("<answer>"))

    def pause(self, seconds: float) -> None:
        """Nothing to wait for."""


def _described(file: File, data: bytes) -> dict[str, Any]:
    return {"name": file.name, "type": file.media, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
