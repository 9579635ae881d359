"""One operation of the helper: what every part of a `Host` is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from runbook.hosts.errors import CancelToken, RemoteError
from runbook.hosts.transport import Transport
from runbook.model.remote import Reply


class Calling:
    """Asks a helper over `transport`; `cancel` applies to all calls."""

    transport: Transport
    cancel: CancelToken | None = None

    def call(
        self,
        op: str,
        /,
        *,
        timeout_s: float = 30.0,
        blob: bytes = b"",
        on_event: Callable[[dict[str, Any], bytes], None] | None = None,
        **args: Any,
    ) -> Reply:
        """A raw operation of the helper (docs/reference/helper.md)."""
        return self.transport.call(op, args, blob, timeout_s=timeout_s, cancel=self.cancel, on_event=on_event)

    def _typed(self, kind: Any, op: str, /, *, timeout_s: float = 30.0, **args: Any) -> Any:
        return _read(kind, self.call(op, timeout_s=timeout_s, **args).data, op)

    def _field(self, name: str, kind: Any, op: str, /, *, timeout_s: float = 30.0, **args: Any) -> Any:
        """One field of an answer."""
        return _read(kind, _read(dict[str, Any], self.call(op, timeout_s=timeout_s, **args).data, op).get(name), op)


def _read(kind: Any, data: Any, op: str) -> Any:
    """An answer as its type. Raises RemoteError for a damaged one: the helper is of our own version, so something on the way is not."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise RemoteError("failed", f"the answer to `{op}` cannot be read: {error}", "try again; if it repeats, report it") from error
