"""What a host is reached through: a started helper, and HTTP from where it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from runbook.hosts.errors import CancelToken
from runbook.model.remote import HttpAnswer, Reply

REPEATABLE = frozenset(
    """
    run_held held_names supersede lease_take lease_list lease_give_back examine
    processes kill listeners ports describe gpus read write hash glob remove marks scan
    keeper_ensure keeper_state keeper_renew keeper_suspend keeper_retire keeper_note_kill launch launch_state
    find_module checkpoint parameters patch restore undo_list sample stacks put_py_spy collectives collect
    """.split()
)
"""Operations that may be asked for again when the link was lost before their answer came: those that only look, and those that
end in the same state (a launch by its token, a patch by its record). `run` is not one: its command may have begun."""


class Transport(Protocol):
    """A started helper on a host. Thread safe: calls run side by side over one channel."""

    @property
    def lost(self) -> str | None:
        """Why the link is gone for good; None while it is up."""
        ...

    def call(
        self,
        op: str,
        args: dict[str, Any],
        blob: bytes = b"",
        *,
        timeout_s: float,
        cancel: CancelToken | None = None,
        on_event: Callable[[dict[str, Any], bytes], None] | None = None,
    ) -> Reply:
        """One request, one reply. `on_event` gets what the helper streams before it. Raises HostError.

        When `cancel` fires or the time is over, the helper is told to stop the operation before this returns.
        """
        ...

    def close(self) -> None:
        """End the helper and the connection. Idempotent."""
        ...


class HttpClient(Protocol):
    """HTTP from inside the host's network namespace, without environment proxies."""

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: dict[str, str] | None = None,
        content: bytes | None = None,
        timeout_s: float,
        stream: bool = False,
        cancel: CancelToken | None = None,
    ) -> HttpAnswer:
        """One exchange over a fresh connection; never raises for what the server does. Raises Unreachable for the host."""
        ...
