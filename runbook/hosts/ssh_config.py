"""What ssh_config says about a target: `ssh -G` where there is an OpenSSH client, else paramiko's parser with notes.

Nothing of ssh_config is ignored without a word: what cannot be honoured stands in `notes`.
"""

from __future__ import annotations

import functools
import getpass
import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from runbook.hosts.base import ResolveFailed

_LIMIT_S = 10.0  # `Match exec` runs commands of the user; a canonical name may ask DNS
_HOST = re.compile(r"[\w.:%-]+")
_USER = re.compile(r"[\w.@+\\-]+")
_TOKEN = re.compile(r"%(.)")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_DEFAULT_KEY = re.compile(r"(~|.*)/\.ssh/id_(rsa|dsa|ecdsa|ecdsa_sk|ed25519|ed25519_sk|xmss)")
_HARMLESS: Mapping[str, frozenset[str]] = {
    "bindaddress": frozenset(),
    "bindinterface": frozenset(),
    "forwardagent": frozenset({"no"}),
    "hostbasedauthentication": frozenset({"no"}),
    "knownhostscommand": frozenset({"none"}),
    "pkcs11provider": frozenset({"none"}),
    "proxyusefdpass": frozenset({"no"}),
    "remotecommand": frozenset({"none"}),
    "revokedhostkeys": frozenset({"none"}),
    "setenv": frozenset(),
    "verifyhostkeydns": frozenset({"false", "no"}),
}
"""Keywords that are not honoured, with the values under which that makes no difference."""


class SshSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a target. Empty text and empty tuples mean: not set. Times are seconds.

    `strict` is yes, no, ask or accept-new; `identity_agent` is the path of a socket, empty for none; `family` is any, inet or inet6.
    Files have their `~`, `%` tokens and variables expanded.
    """

    target: str
    host: str
    port: int
    user: str
    identity_files: tuple[str, ...] = ()
    certificate_files: tuple[str, ...] = ()
    identities_only: bool = False
    identity_agent: str = ""
    proxy_jump: tuple[str, ...] = ()
    proxy_command: str = ""
    user_known_hosts: tuple[str, ...] = ()
    global_known_hosts: tuple[str, ...] = ()
    hash_known_hosts: bool = False
    strict: str = "ask"
    host_key_alias: str = ""
    family: str = "any"
    alive_interval_s: int = 0
    alive_count: int = 3
    connect_timeout_s: float | None = None
    config_file: str = ""
    notes: tuple[str, ...] = ()


def split_target(text: str) -> tuple[str, str, int | None]:
    """(user, host, port) of `host`, `user@host:port`, `[v6]:port` or a bare IPv6 address. Raises ResolveFailed."""
    user, at, rest = text.rpartition("@")
    bracketed = re.fullmatch(r"\[([^\]]+)\](?::(\S*))?", rest)
    if bracketed:
        host, port = bracketed[1], bracketed[2]
    elif rest.count(":") > 1:
        host, port = rest, None
    else:
        host, colon, after = rest.partition(":")
        port = after if colon else None
    if not _HOST.fullmatch(host) or host.startswith("-") or (at and not _USER.fullmatch(user)) or user.startswith("-"):
        raise ResolveFailed(f"`{text}` is not a host", "write an ssh alias, `user@host` or `user@host:port`; IPv6 as `[::1]:22`")
    if port is not None and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ResolveFailed(f"`{port}` in `{text}` is not a port", "ports are numbers from 1 to 65535")
    return user, host, int(port) if port else None


@functools.lru_cache(maxsize=256)
def resolve(target: str, config: str = "", ssh: str | None = "ssh") -> SshSettings:
    """Ask ssh_config about a target, once per process. `config` replaces the user's file (as `ssh -F`). Raises ResolveFailed.

    `ssh` is the client to ask; None: none, read the files without one.
    """
    user, host, port = split_target(target)
    program = shutil.which(ssh) if ssh else None
    if program is None:
        values, notes = _read_files(host, config)
    else:
        values, notes = _ask(program, user, host, port, config), []
    if user:
        values["user"] = [user]
    if port:
        values["port"] = [str(port)]
    return _settings(target, host, values, config, notes)


def _ask(program: str, user: str, host: str, port: int | None, config: str) -> dict[str, list[str]]:
    argv = [program, "-G"]
    argv += ["-F", config] if config else []
    argv += ["-l", user] if user else []
    argv += ["-p", str(port)] if port else []
    try:
        done = subprocess.run([*argv, "--", host], stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ResolveFailed(f"`ssh -G {host}` gave no answer in {_LIMIT_S:.0f} s", "a `Match exec` of your ssh_config may hang") from None
    except OSError as error:
        raise ResolveFailed(f"`ssh -G {host}` could not be run: {error.strerror}", f"look at {program}") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exited {done.returncode}"]
        raise ResolveFailed(f"ssh_config cannot be read: {said[0]}", f"`ssh -G {host}` shows the same; correct that line")
    values: dict[str, list[str]] = {}
    for line in done.stdout.decode(errors="replace").splitlines():
        keyword, _, value = line.partition(" ")
        values.setdefault(keyword.lower(), []).append(value.strip())
    return values


def _read_files(host: str, config: str) -> tuple[dict[str, list[str]], list[str]]:
    """The same keywords without an OpenSSH client. Include lines and Match blocks are left out, and said."""
    from runbook.hosts.ssh import read_config

    notes: list[str] = []
    kept: list[str] = []
    for path in [config] if config else ["~/.ssh/config", "/etc/ssh/ssh_config"]:
        try:
            lines = Path(path).expanduser().read_text(errors="replace").splitlines()
        except FileNotFoundError:
            if config:
                raise ResolveFailed(f"there is no ssh_config {config}", "name another file") from None
            continue
        except OSError as error:
            notes.append(f"{path} was not read: {error.strerror}")
            continue
        kept += _without_include_and_match(lines, path, notes)
    return read_config("\n".join(kept), host), notes


def _without_include_and_match(lines: list[str], path: str, notes: list[str]) -> list[str]:
    kept, inside_match = ["Host *"], False
    for number, line in enumerate(lines, 1):
        keyword = re.split(r"[\s=]+", line.strip().lower(), maxsplit=1)[0]
        if keyword in ("host", "match"):
            inside_match = keyword == "match"
        if keyword in ("include", "match"):
            notes.append(f"{path}:{number}: `{line.strip()}` needs an OpenSSH client on this machine and was left out")
        elif not inside_match:
            kept.append(line)
    return kept


def _settings(target: str, alias: str, values: dict[str, list[str]], config: str, notes: list[str]) -> SshSettings:
    def one(keyword: str, default: str = "") -> str:
        value = values.get(keyword, [default])[0]
        return "" if value.lower() == "none" else value

    def files(keyword: str, default: str = "") -> tuple[str, ...]:
        words = (word for value in values.get(keyword, [default]) for word in _words(value))
        return tuple(expand(word) for word in words if word.lower() != "none")

    def expand(text: str) -> str:
        return _expand(text, tokens, notes)

    host, user = one("hostname", alias), one("user") or getpass.getuser()
    port = one("port", "22")
    tokens = {
        "%": "%",
        "h": host,
        "n": alias,
        "p": port,
        "r": user,
        "u": getpass.getuser(),
        "d": str(Path.home()),
        "i": str(os.getuid()),
        "k": one("hostkeyalias") or alias,
        "l": socket.gethostname(),
        "L": socket.gethostname().split(".")[0],
    }
    notes += [
        f"ssh_config's {keyword} is not honoured" for keyword, fine in _HARMLESS.items() if not fine.issuperset(values.get(keyword, []))
    ]
    jump = one("proxyjump")
    timeout = one("connecttimeout")
    return SshSettings(
        target=target,
        host=host,
        port=int(port),
        user=user,
        identity_files=tuple(expand(value) for value in values.get("identityfile", _default_keys()) if value.lower() != "none"),
        certificate_files=tuple(expand(value) for value in values.get("certificatefile", [])),
        identities_only=one("identitiesonly") in ("yes", "true"),
        identity_agent=_agent(values, expand),
        proxy_jump=tuple(jump.split(",")) if jump else (),
        proxy_command="" if jump else _expand(one("proxycommand"), tokens, notes, tilde=False),
        user_known_hosts=files("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2"),
        global_known_hosts=files("globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"),
        hash_known_hosts=one("hashknownhosts") == "yes",
        strict={"true": "yes", "false": "no", "off": "no"}.get(one("stricthostkeychecking", "ask"), one("stricthostkeychecking", "ask")),
        host_key_alias=one("hostkeyalias"),
        family=one("addressfamily", "any"),
        alive_interval_s=int(one("serveraliveinterval", "0")),
        alive_count=int(one("serveralivecountmax", "3")),
        connect_timeout_s=float(timeout) if timeout else None,
        config_file=config,
        notes=tuple(dict.fromkeys(notes)),
    )


def is_default_key(path: str) -> bool:
    """Whether a key file is one that ssh tries unasked; then its absence means nothing."""
    return _DEFAULT_KEY.fullmatch(path) is not None


def _default_keys() -> list[str]:
    return [f"~/.ssh/id_{kind}" for kind in ("rsa", "ecdsa", "ed25519")]


def _agent(values: dict[str, list[str]], expand: Callable[[str], str]) -> str:
    """Path of the agent's socket. IdentityAgent may be a path, a variable, the word SSH_AUTH_SOCK, or none."""
    said = values.get("identityagent", ["SSH_AUTH_SOCK"])[0]
    if said.lower() == "none":
        return ""
    if said == "SSH_AUTH_SOCK" or (said.startswith("$") and not said.startswith("${")):
        return os.environ.get(said.lstrip("$"), "")
    return expand(said)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _expand(text: str, tokens: dict[str, str], notes: list[str], *, tilde: bool = True) -> str:
    def token(found: re.Match[str]) -> str:
        if found[1] not in tokens:
            notes.append(f"`{found[0]}` in ssh_config is not known here")
        return tokens.get(found[1], found[0])

    text = _VARIABLE.sub(lambda found: os.environ.get(found[1], found[0]), _TOKEN.sub(token, text))
    return os.path.expanduser(text) if tilde else text
