"""The host-key policy: what ssh_config and known_hosts say about the key that a server showed.

A changed or revoked key is never accepted, whatever StrictHostKeyChecking says. An unknown one is accepted and written down, unless
checking is strict; `ask` counts as accept-new, since nobody may be there to be asked.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from runbook.hosts.base import HostKeyRefused
from runbook.hosts.known_hosts import Changed, Entry, Key, Revoked, Unknown, append, authorities, host_name, key_types, read, rule
from runbook.hosts.ssh_config import SshSettings


class HostKeyPolicy:
    """The decision for one host. `notes` collects what a user should know; `accepted` is the key after `check`."""

    def __init__(self, settings: SshSettings) -> None:
        self.settings = settings
        self.name = host_name(settings.host, settings.port, settings.host_key_alias)
        self.entries, self.notes = read((*settings.user_known_hosts, *settings.global_known_hosts))
        self.accepted: Key | None = None

    def types(self) -> tuple[str, ...]:
        """Key types on record: asked for first, so that a server with several keys shows a known one."""
        return key_types(self.entries, self.name)

    def check(self, key: Key) -> None:
        """Accept the key, or raise HostKeyRefused."""
        ruling = rule(self.entries, self.name, key)
        if isinstance(ruling, Revoked):
            summary = f"the host key of {self.name} ({key.fingerprint}) is revoked by {_place(ruling.entry)}"
            raise HostKeyRefused(summary, "ask who runs this host for its new key")
        if isinstance(ruling, Changed):
            raise self._changed(ruling.expected, key)
        if isinstance(ruling, Unknown):
            self._meet(key)
        self.accepted = key

    def _changed(self, expected: Entry, key: Key) -> HostKeyRefused:
        summary = (
            f"the host key of {self.name} has changed: it shows {key.type} {key.fingerprint},"
            f" but {_place(expected)} has {expected.key.type} {expected.key.fingerprint}"
        )
        forget = f"ssh-keygen -R {shlex.quote(self.name)} -f {shlex.quote(expected.file)}"
        hint = f"somebody may sit in between; if the host was reinstalled, check the new fingerprint with its owner, then `{forget}`"
        return HostKeyRefused(summary, hint)

    def _meet(self, key: Key) -> None:
        for entry in authorities(self.entries, self.name)[:1]:
            self.notes.append(f"{_place(entry)} trusts a certificate authority: host certificates are not supported, plain keys are")
        if self.settings.strict == "yes":
            scan = f"ssh-keyscan -p {self.settings.port} {shlex.quote(self.settings.host)}"
            hint = f"check the fingerprint with the host's owner, then add the line that `{scan}` prints to known_hosts"
            summary = f"the host key of {self.name} is not known ({key.type} {key.fingerprint}), and StrictHostKeyChecking is yes"
            raise HostKeyRefused(summary, "; ".join([*self.notes, hint]))
        if not self.settings.user_known_hosts or self.settings.user_known_hosts[0] == "/dev/null":
            return
        path = Path(self.settings.user_known_hosts[0])
        try:
            append(path, self.name, key, hashed=self.settings.hash_known_hosts)
            self.notes.append(f"new host {self.name}: its key {key.type} {key.fingerprint} was added to {path}")
        except OSError as error:
            self.notes.append(f"new host {self.name}: its key {key.fingerprint} could not be added to {path}: {error.strerror}")


def _place(entry: Entry) -> str:
    return f"{entry.file}:{entry.line}"
