"""What can go wrong with a host, and the token by which a run gives up waiting for one.

Errors, by who is to blame and when:

    HostError
    ├── Unreachable          the host could not be reached or was lost; says nothing about the server
    │   ├── ResolveFailed    name or ssh_config
    │   ├── ConnectFailed    tcp, banner or key exchange (`stage`)
    │   ├── HostKeyRefused   unknown under a strict policy, changed, or revoked
    │   ├── AuthRefused      no key, key refused, too many tries
    │   ├── NoPython         no python3 ≥ 3.8 behind `via:`/`python:`
    │   ├── PlaceEnded       what `via:` leads into is over, and comes back no more
    │   └── LinkLost         an open connection died
    ├── RemoteError          the helper answered that an operation failed (`code` is stable)
    ├── CallTimeout          the helper did not answer in time; the link may still be alive
    └── Cancelled            the caller's cancel token was set
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class HostError(Exception):
    """Base of all that can go wrong with a host. `hint` says what to try next."""

    def __init__(self, summary: str, hint: str = "") -> None:
        super().__init__(summary)
        self.summary = summary
        self.hint = hint


class Unreachable(HostError):
    """`stage` is lab, resolve, tcp, banner, key exchange, host key, auth, channel, helper or link."""

    stage = "link"


class ResolveFailed(Unreachable):
    """The name means nothing to ssh_config, the inventory or DNS."""

    stage = "resolve"


class ConnectFailed(Unreachable):
    """No usable SSH server answered."""

    def __init__(self, summary: str, hint: str = "", stage: str = "tcp") -> None:
        super().__init__(summary, hint)
        self.stage = stage


class HostKeyRefused(Unreachable):
    """The host's key is not the one that known_hosts has, or is revoked, or unknown under a strict policy."""

    stage = "host key"


class AuthRefused(Unreachable):
    """The server took none of our keys."""

    stage = "auth"


class NoPython(Unreachable):
    """There is no usable python3 on the host."""

    stage = "helper"


class PlaceEnded(Unreachable):
    """What `via:` leads into is over: no try will get in again."""

    stage = "helper"


class LinkLost(Unreachable):
    """An open connection died: closed by the peer, or keepalives went unanswered."""

    stage = "link"


class RemoteError(HostError):
    """An operation failed on the host.

    Codes: not_found, permission, exists, conflict, changed, not_unique, busy, protected, unsupported, bad_request, failed.
    `data` is what the helper adds, plain.
    """

    def __init__(self, code: str, summary: str, hint: str = "", data: dict[str, Any] | None = None) -> None:
        super().__init__(summary, hint)
        self.code = code
        self.data = data or {}


class CallTimeout(HostError):
    """No answer from the helper within the call's bound."""


class Cancelled(HostError):
    """The run was interrupted while this call waited."""


class CancelToken:
    """Set once, by a signal handler; every waiting call under it raises Cancelled."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.RLock()  # re-entrant: the handler may interrupt `on_set` in the same thread

    def set(self) -> None:
        """Cancel. Safe from a signal handler, as far as the callbacks are."""
        self.event.set()
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        """Whether it was cancelled."""
        return self.event.is_set()

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when set (at once if it already is). Returns a function that takes it back."""
        with self._lock:
            self._callbacks.append(callback)
        if self.event.is_set() and self._drop(callback):
            callback()

        def take_back() -> None:
            self._drop(callback)

        return take_back

    def _drop(self, callback: Callable[[], None]) -> bool:
        with self._lock:
            if callback not in self._callbacks:
                return False
            self._callbacks.remove(callback)
            return True
