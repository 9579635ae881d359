"""known_hosts files: which keys a host may show. Reading and judging are pure; `append` writes one line under a lock.

Understood: hashed names, wildcards, negation, `[host]:port`, `@revoked`. A line with `@cert-authority` is noted: host certificates
are not checked here. A line that cannot be read is skipped with a note, as OpenSSH does. Format: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Union

import msgspec

_PLAIN_PORT = 22


class Key(msgspec.Struct, frozen=True):
    """A public host key: its type and its wire form."""

    type: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")

    @property
    def text(self) -> str:
        """As it stands in known_hosts."""
        return f"{self.type} {base64.b64encode(self.blob).decode()}"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line: `marker` is revoked, cert-authority or empty; `names` is its first field as written."""

    names: str
    key: Key
    file: str
    line: int
    marker: str = ""


class Known(msgspec.Struct, frozen=True):
    """The key is on record for this host."""


class Unknown(msgspec.Struct, frozen=True):
    """Nothing is on record for this host."""


class Changed(msgspec.Struct, frozen=True):
    """Another key is on record; `expected` is that line."""

    expected: Entry


class Revoked(msgspec.Struct, frozen=True):
    """The key is marked as revoked in this line."""

    entry: Entry


Ruling = Union[Known, Unknown, Changed, Revoked]


def host_name(host: str, port: int, alias: str = "") -> str:
    """The name under which a host stands in known_hosts. An alias (HostKeyAlias) stands for host and port together."""
    if alias:
        return alias.lower()
    return host.lower() if port == _PLAIN_PORT else f"[{host.lower()}]:{port}"


def parse(text: str, file: str) -> tuple[list[Entry], list[str]]:
    """All entries of a file, and a note for each line that was skipped."""
    entries: list[Entry] = []
    notes: list[str] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        entry = _entry(line, file, number)
        if entry is None:
            notes.append(f"{file}:{number} is not a known_hosts line and was skipped")
        else:
            entries.append(entry)
    return entries, notes


def read(paths: Iterable[str]) -> tuple[list[Entry], list[str]]:
    """The entries of several files; a file that does not exist has none, one that cannot be read is noted."""
    entries: list[Entry] = []
    notes: list[str] = []
    for path in paths:
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            notes.append(f"{path} was not read: {error.strerror}")
            continue
        some, said = parse(text, path)
        entries += some
        notes += said
    return entries, notes


def rule(entries: Iterable[Entry], name: str, key: Key) -> Ruling:
    """Judge the key that a host showed. Revoked wins over known, known over changed.

    A host that is on record only with keys of other types counts as changed: the types on record are asked for first
    (`key_types`), so that a server which still has one of them never shows another.
    """
    own = [entry for entry in entries if matches(entry.names, name)]
    for entry in entries:
        if entry.marker == "revoked" and entry.key == key and (entry in own or matches(entry.names, _bare(name))):
            return Revoked(entry)
    plain = [entry for entry in own if not entry.marker]
    if any(entry.key == key for entry in plain):
        return Known()
    if not plain:
        # ssh takes a line without a port for any port, when the key is the same.
        without_port = (entry for entry in entries if not entry.marker and matches(entry.names, _bare(name)))
        return Known() if any(entry.key == key for entry in without_port) else Unknown()
    return Changed(min(plain, key=lambda entry: entry.key.type != key.type))


def key_types(entries: Iterable[Entry], name: str) -> tuple[str, ...]:
    """Key types on record for a host, in file order: what to ask the server for first."""
    return tuple(dict.fromkeys(entry.key.type for entry in entries if not entry.marker and matches(entry.names, name)))


def authorities(entries: Iterable[Entry], name: str) -> list[Entry]:
    """Lines that trust a certificate authority for this host."""
    trusting = (entry for entry in entries if entry.marker == "cert-authority")
    return [entry for entry in trusting if matches(entry.names, name) or matches(entry.names, _bare(name))]


def matches(names: str, name: str) -> bool:
    """Whether the first field of a line means this host. One negated pattern that fits rules the line out."""
    if names.startswith("|"):
        return _hash_matches(names, name)
    found = False
    for pattern in names.lower().split(","):
        if _pattern(pattern.removeprefix("!")).fullmatch(name):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def append(path: Path, name: str, key: Key, *, hashed: bool = False) -> bool:
    """Add a host; False when the same line is there already. Creates file (0600) and folder (0700). Raises OSError.

    The file itself is the lock, so that two runs that meet a new host at once write one line.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = file.read()
        if isinstance(rule(parse(before.decode(errors="replace"), str(path))[0], name, key), Known):
            return False
        gap = b"" if not before or before.endswith(b"\n") else b"\n"
        file.write(gap + f"{_hash(name, os.urandom(20)) if hashed else name} {key.text}\n".encode())
        file.flush()
        os.fsync(file.fileno())
    return True


def _entry(line: str, file: str, number: int) -> Entry | None:
    marker = ""
    if line.startswith("@"):
        marker, _, line = line[1:].partition(" ")
        if marker not in ("revoked", "cert-authority"):
            return None
    fields = line.split()
    if len(fields) < 3:
        return None
    try:
        blob = base64.b64decode(fields[2], validate=True)
    except ValueError:
        return None
    # The wire form begins with the type, length first.
    type_length = int.from_bytes(blob[:4], "big")
    if blob[4 : 4 + type_length] != fields[1].encode() or len(blob) <= 4 + type_length:
        return None
    return Entry(names=fields[0], key=Key(fields[1], blob), file=file, line=number, marker=marker)


def _bare(name: str) -> str:
    found = re.fullmatch(r"\[(.+)\]:\d+", name)
    return found[1] if found else name


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in text))


def _hash(name: str, salt: bytes) -> str:
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def _hash_matches(names: str, name: str) -> bool:
    parts = names.split("|")
    if len(parts) != 4 or parts[1] != "1":
        return False
    try:
        salt = base64.b64decode(parts[2], validate=True)
    except ValueError:
        return False
    return hmac.compare_digest(_hash(name, salt), names)
