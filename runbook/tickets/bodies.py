"""The exact bytes of a request's body, masked once more, and the headers that describe them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from runbook.tickets.base import File, Request, Upload

TEXT = re.compile(r"^(?:text/|application/(?:json|xml|x-ndjson))")


def encoded(request: Request, mask: Callable[[str], str]) -> tuple[bytes | None, dict[str, str]]:
    """(bytes, headers). Archives are not masked here: what went into them was, and a change inside would break them."""
    headers: dict[str, str] = {}
    body: bytes | None = None
    if request.raw is not None:
        body, headers["content-type"] = file_bytes(request.raw, mask), request.raw.media
    elif request.upload is not None:
        body, headers["content-type"] = multipart(request.upload, mask)
    elif request.data is not None:
        body, headers["content-type"] = as_json(request.data, mask), "application/json"
    if request.sign is not None:
        headers |= request.sign(body or b"")
    return body, headers


def merged(*several: Mapping[str, str]) -> dict[str, str]:
    """Headers, the later ones instead of earlier ones of the same name in whatever letters: sent twice, a server reads both as one."""
    return {name.lower(): value for headers in several for name, value in headers.items()}


def as_json(data: Any, mask: Callable[[str], str]) -> bytes:
    """JSON whose strings are masked before they are escaped, and the whole once more after."""
    return mask(json.dumps(_masked(data, mask), ensure_ascii=False)).encode("utf-8", "replace")


def _masked(data: Any, mask: Callable[[str], str]) -> Any:
    if isinstance(data, str):
        return mask(data)
    if isinstance(data, dict):
        return {mask(key): _masked(item, mask) for key, item in data.items()}
    return [_masked(item, mask) for item in data] if isinstance(data, (list, tuple)) else data


def file_bytes(file: File, mask: Callable[[str], str]) -> bytes:
    """A file's bytes as they leave: text is masked, whatever its bytes."""
    if not TEXT.match(file.media):
        return file.data
    return mask(file.data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def multipart(upload: Upload, mask: Callable[[str], str]) -> tuple[bytes, str]:
    """A form of one file. The boundary is a digest of the content, so equal forms are equal bytes."""
    data = file_bytes(upload.file, mask)
    boundary = "runbook-" + hashlib.sha256(data).hexdigest()[:40]
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{mask(value)}\r\n'.encode()
        for name, value in upload.fields.items()
    ]
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="{upload.field}"; filename="{upload.file.name}"\r\n'
    parts.append(f"{head}Content-Type: {upload.file.media}\r\n\r\n".encode() + data + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"
