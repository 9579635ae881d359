"""The words for a connection that did not come about: what was waited for at each stage, and what to try next."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

from runbook.hosts.base import AuthRefused, ConnectFailed, Unreachable

# The library's own lines go nowhere: what they say that matters is in our errors.
_LOG = logging.getLogger("paramiko")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False
_LOG.setLevel(logging.INFO)

WAITED = {
    "tcp": "no connection",
    "banner": "it accepted the connection but sent no SSH banner",
    "key exchange": "the key exchange did not end",
    "host key": "the host key was not checked",
    "auth": "the login was not answered",
    "channel": "no command could be started",
    "link": "no answer",
}
"""What did not happen in time, by stage."""

HINTS = {
    "tcp": "check address, port and firewall",
    "banner": "another service may listen on this port, or sshd is overloaded (MaxStartups)",
    "key exchange": "packets may be lost on the way (MTU), or the host is overloaded",
    "host key": "check known_hosts",
    "auth": "sshd may wait for DNS, PAM or a home folder; try `ssh -v`",
    "channel": "the host may be out of processes or memory, or its login shell hangs; try `ssh HOST true`",
    "link": "check the network and the host",
}
"""What to try next, by stage."""


def no_login(address: str, *, tried: Sequence[str], unusable: Sequence[str], methods: Sequence[str], said: str, alive: bool) -> Unreachable:
    """Why no key opened the door; where the link died meanwhile and nobody said why, that is no refusal.

    `tried`: keys that were offered; `unusable`: why others were not; `methods`: what the server would take, if it said so;
    `said`: its last words; `alive`: it would still talk.
    """
    if methods and "publickey" not in methods:
        return AuthRefused(
            f"{address} takes no keys, only {', '.join(methods)}", "allow public keys on the host; passwords are not asked for here"
        )
    if not tried:
        hint = "; ".join(unusable) or "name a key by IdentityFile in ssh_config, or load one with `ssh-add`"
        return AuthRefused(f"there is no usable key to log in to {address}", hint)
    if not alive and not said:
        return ConnectFailed(f"{address}: the connection was closed during the login", HINTS["auth"], stage="auth")
    summary = f"{address} refused {len(tried)} key{'s' if len(tried) > 1 else ''}: {', '.join(tried)}"
    if not alive:
        hint = "set IdentityFile and `IdentitiesOnly yes` in ssh_config, so that the right key comes first"
        return AuthRefused(f"{summary} ({said})", hint)
    hint = f"check the user name, and that the key stands in the host's authorized_keys (`ssh-copy-id {address}`)"
    return AuthRefused(summary, "; ".join([*unusable, hint]))


class LogTail(logging.Handler):
    """The last words of one transport; paramiko says a server's reasons only to its log."""

    def __init__(self, where: str) -> None:
        super().__init__(logging.INFO)
        self.lines: deque[str] = deque(maxlen=20)
        self.logger_name = "paramiko.runbook." + where.replace(".", "_")
        logging.getLogger(self.logger_name).handlers[:] = [self]

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line."""
        self.lines.append(record.getMessage())

    def disconnect(self) -> str:
        """The server's reason for hanging up, if it gave one."""
        for line in reversed(self.lines):
            _, found, reason = line.partition("Disconnect (code ")
            if found:
                return reason.partition("): ")[2]
        return ""
