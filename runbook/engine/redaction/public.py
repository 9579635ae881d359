"""Names that tell whose machines these are, replaced by stable ones: host-1, user-1, ip-1, dir-1, and `~` for a home.

Aliases, not marks: which rank sat on which host is evidence, and stays readable. One `Aliases` gives equal names equal aliases.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from runbook.model.event import AnyEvent, HostConnected, RunStarted

ORDINARY = frozenset(
    """
    admin all app box centos container daemon data debian default docker false git gpu gpus head host hosts lab local localdomain
    localhost main master me nobody node nodes none null root runner server servers service svc test tests true ubuntu user users
    worker www you
    """.split()
)
"""Words that name nobody, and that stand in every log."""
HOMES = re.compile(r"(?<![\w/])/(?:home|Users|export/home|data/home|nfs/home)/(?P<user>[A-Za-z0-9_.-]+)(?=[/\s\"'\\:,;)\]}<]|$)")
AT = re.compile(
    r"(?<![\w.+-])(?P<user>[A-Za-z0-9_][\w.+-]{0,63})@(?P<host>[A-Za-z0-9][A-Za-z0-9-]{0,62}(?:\.[A-Za-z0-9-]{1,63})*\.[A-Za-z]{2,24})\b"
)
INSIDE = re.compile(
    r"(?<![\w.@-])(?:ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}|[A-Za-z0-9][A-Za-z0-9-]{0,62})(?:\.[A-Za-z0-9-]{1,63})*"
    r"\.(?:internal|local|lan|corp|intra|intranet|home|private|cluster|localnet)\b"
)
AWS_NAME = re.compile(r"(?<![\w.-])ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}\b")
IPV4 = re.compile(r"(?<![\w.=-])(?<!v)\d{1,3}(?:\.\d{1,3}){3}(?![\w-]|\.\d)")
IPV6 = re.compile(r"(?i)(?<![\w:.])(?:fe80|f[cd][0-9a-f]{2}|[23][0-9a-f]{3})(?::[0-9a-f]{0,4}){2,7}(?![\w:])")
SHARED = re.compile(
    r"(?<![\w/.~])(?P<root>/(?:mnt|scratch|lustre|gpfs|nfs|fsx|efs|work|projects?|groups?|shared)\d*)/(?P<name>[A-Za-z0-9_.-]+)"
)
PUBLIC_HOSTS = re.compile(r"(?:^|\.)(?:github|gitlab|huggingface|pypi|python|pytorch|nvidia|docker)\.(?:com|co|org|io|net)$")


class Aliases:
    """Replaces names. `known` are names of hosts and users that the run itself tells; others are found by their form."""

    def __init__(self, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._numbers: Counter[str] = Counter()
        self.count: Counter[str] = Counter()
        """Kind -> how many were replaced."""
        for host in hosts:
            for name in dict.fromkeys([host, *host.split(".")[:1]]):
                if _names_somebody(name) and not _is_address(name):
                    self._given[("host", name.lower())] = self._given.get(("host", host.lower()), "") or self._next("host")
        for user in users:
            if _names_somebody(user):
                self._alias("user", user)
        names = sorted((name for _, name in self._given), key=len, reverse=True)
        self._known = re.compile(r"(?i)(?<![\w.-])(?:" + "|".join(map(re.escape, names)) + r")(?![\w-]|\.\w)") if names else None

    def text(self, value: str) -> str:
        """The text with aliases. Idempotent."""
        if len(value) < 2:
            return value
        if "/" in value:
            value = HOMES.sub(self._home, value)
            value = SHARED.sub(lambda found: f"{found['root']}/{self._alias('dir', found['name'])}", value)
        if "@" in value:
            value = AT.sub(self._at, value)
        if self._known is not None:
            value = self._known.sub(self._of_known, value)
        value = INSIDE.sub(lambda found: self._alias("host", found[0]), value)
        value = AWS_NAME.sub(lambda found: self._alias("host", found[0]), value)
        if "." in value:
            value = IPV4.sub(self._address, value)
        return IPV6.sub(self._address, value) if value.count(":") > 1 else value

    def value(self, value: Any) -> Any:
        """Plain data with aliases, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key) if isinstance(key, str) else key: self.value(item) for key, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, (list, tuple)) else value

    def _alias(self, kind: str, name: str) -> str:
        if not _names_somebody(name) or re.fullmatch(r"(?:host|user|ip|dir)-\d+", name):
            return name
        self.count[kind] += 1
        return self._given.setdefault((kind, name.lower()), "") or self._new(kind, name)

    def _new(self, kind: str, name: str) -> str:
        self._given[(kind, name.lower())] = self._next(kind)
        return self._given[(kind, name.lower())]

    def _next(self, kind: str) -> str:
        self._numbers[kind] += 1
        return f"{kind}-{self._numbers[kind]}"

    def _of_known(self, found: re.Match[str]) -> str:
        kind = "host" if ("host", found[0].lower()) in self._given else "user"
        return self._alias(kind, found[0])

    def _home(self, found: re.Match[str]) -> str:
        self.count["home"] += 1
        return "~"

    def _at(self, found: re.Match[str]) -> str:
        if found["user"].lower() in ORDINARY and PUBLIC_HOSTS.search(found["host"].lower()):
            return found[0]  # git@github.com
        return f"{self._alias('user', found['user'])}@{self._alias('host', found['host'])}"

    def _address(self, found: re.Match[str]) -> str:
        try:
            address = ipaddress.ip_address(found[0])
        except ValueError:
            return found[0]
        if address.is_loopback or address.is_unspecified or address.is_multicast or int(address) == 2**32 - 1:
            return found[0]
        return self._alias("ip", found[0])


def of_run(events: Collection[AnyEvent]) -> Aliases:
    """Aliases that know the hosts and users of a run: its targets, what they call themselves, and where it ran from."""
    hosts: dict[str, None] = {}
    users: dict[str, None] = {}
    for event in events:
        if isinstance(event, RunStarted):
            for target in (target for role in event.targets.values() for target in role):
                _split(str(target.get("target") or ""), hosts, users)
            hosts[str(event.controller.get("host") or "")] = None
            users[str(event.controller.get("user") or "")] = None
        elif isinstance(event, HostConnected):
            _split(event.host, hosts, users)
            _split(event.address, hosts, users)
            hosts[str(event.facts.get("hostname") or "")] = None
            users[str(event.facts.get("user") or "")] = None
    return Aliases(hosts, users)


def _split(address: str, hosts: dict[str, None], users: dict[str, None]) -> None:
    """user@host:port."""
    user, _, host = address.rpartition("@")
    if user:
        users[user] = None
    hosts[re.sub(r":\d+$", "", host).strip("[]")] = None


def _names_somebody(name: str) -> bool:
    return len(name) > 1 and name.lower() not in ORDINARY and not name.isdigit()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
