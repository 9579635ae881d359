"""SSH by Fabric, repaired: the only module that imports fabric and paramiko, and the place where their exceptions are translated.

What stock Fabric does and this connection does not: accept any host key, wait for delayed acknowledgements on each request, wait
for ever on a dead link or an unfinished connect, read configuration files of its own, print tracebacks of its threads.

Stages of a connection, each the `stage` of its failure:

    resolve -> tcp -> banner -> key exchange -> host key -> auth -> channel -> link
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fabric
import paramiko
import paramiko.ssh_exception as raised
from paramiko.agent import AgentSSH
from paramiko.auth_strategy import AuthStrategy
from paramiko.config import SSHConfig

from runbook.hosts.base import AuthRefused, ConnectFailed, HostKeyRefused, LinkLost, ResolveFailed, Unreachable
from runbook.hosts.dial import ProxyChild, dial, limit_silence, refused
from runbook.hosts.failure import HINTS, WAITED, LogTail, no_login
from runbook.hosts.host_key import HostKeyPolicy
from runbook.hosts.known_hosts import Key
from runbook.hosts.ssh_config import SshSettings, is_default_key
from runbook.hosts.watchdog import Watchdog
from runbook.model.clock import Clock

CONNECT_S = 15.0  # budget of a connect where ssh_config has no ConnectTimeout: tcp, banner, key exchange, auth and channel together
ALIVE_S, ALIVE_COUNT = 10, 3  # keepalives where ssh_config has none
_SEND_PIECE = 1 << 18
_KEEP_STDERR = 16 * 1024


class BannerReset(ConnectFailed):
    """The server closed the connection before its banner, as sshd does when too many connect at once. Worth another try."""


class SshConnection(fabric.Connection):  # type: ignore[misc]
    """One connection to one host. `open` is safe to call from several threads and bounded by the connect budget.

    `notes` is what a user should know; `stage` how far it came.
    """

    stage = "tcp"
    notes: tuple[str, ...] = ()
    policy: HostKeyPolicy
    settings: SshSettings
    lost_because = ""

    def __init__(self, settings: SshSettings, *, clock: Clock, through: SshConnection | None = None) -> None:
        config = fabric.Config(lazy=True, overrides={"load_ssh_configs": False})
        super().__init__(host=settings.host, user=settings.user, port=settings.port, config=config, gateway=False, forward_agent=False)
        interval_s = settings.alive_interval_s or ALIVE_S
        self._set(
            settings=settings,
            policy=HostKeyPolicy(settings),
            budget_s=settings.connect_timeout_s or CONNECT_S,
            notes=settings.notes,
            _clock=clock,
            _through=through,
            _proxy=None,
            _sock=None,
            _opening=threading.Lock(),
            _abandoned=False,
            _silence_s=float(interval_s * max(1, settings.alive_count)),
            _log=LogTail(f"{settings.user}@{settings.host}:{settings.port}"),
            _watchdog=Watchdog(self._ping, self._on_lost, interval_s=interval_s, count=settings.alive_count, clock=clock),
        )
        self.client.set_missing_host_key_policy(_AskPolicy(self))
        self.client.set_log_channel(self._log.logger_name)

    @property
    def address(self) -> str:
        """user@host:port, for messages."""
        return f"{self.user}@{self.host}:{self.port}"

    def open(self) -> None:
        """Connect, check the host key, log in and start the watchdog. Raises Unreachable."""
        with self._opening:
            if self.is_connected:
                return
            self._set(_deadline=self._clock.monotonic() + self.budget_s)
            try:
                self._set(_sock=self._dial(), stage="banner")
                self.connect_kwargs = {
                    "sock": self._sock,
                    "banner_timeout": self._left_s(),
                    "auth_timeout": self._left_s(),
                    "channel_timeout": self._left_s(),
                    "transport_factory": self._transport,
                    "auth_strategy": _Login(self),
                }
                super().open()
                if self._abandoned:
                    raise LinkLost("the connection was given up while it was being opened")
            except Exception as error:
                failure = self._translated(error)
                self.close()
                raise failure from error
            self._set(stage="link", notes=(*self.notes, *self.policy.notes))
            self._watchdog.heard()
            self._watchdog.start()

    def _dial(self) -> Any:
        settings = self.settings
        if self._through is not None:
            self._through.open()
            return self._through.transport.open_channel("direct-tcpip", (settings.host, settings.port), ("", 0), timeout=self._left_s())
        if settings.proxy_command:
            self._set(_proxy=ProxyChild(settings.proxy_command))
            return self._proxy.sock
        sock = dial(settings.host, settings.port, budget_s=self._left_s(), clock=self._clock, family=settings.family)
        limit_silence(sock, self._silence_s)
        return sock

    def _transport(self, sock: Any, **kwargs: Any) -> paramiko.Transport:
        transport = paramiko.Transport(sock, **kwargs)
        transport.handshake_timeout = self._left_s()
        options = transport.get_security_options()
        known = [name for kind in self.policy.types() for name in _SIGNATURES.get(kind, (kind,)) if name in options.key_types]
        options.key_types = [*known, *(name for name in options.key_types if name not in known)]
        return transport

    def _left_s(self) -> float:
        return max(0.1, self._deadline - self._clock.monotonic())

    def create_session(self) -> paramiko.Channel:
        """A channel for one command, opened within the connect budget."""
        self.open()
        return self.transport.open_session(timeout=self.budget_s)

    def start(self, command: str) -> ParamikoChannel:
        """Run a shell line on a channel of its own. Raises Unreachable."""
        try:
            self._set(stage="channel")
            channel = self.create_session()
            channel.exec_command(command)
        except Exception as error:
            raise self._translated(error) from error
        self._set(stage="link")
        return ParamikoChannel(channel, self)

    def heard(self) -> None:
        """Bytes arrived from the peer."""
        self._watchdog.heard()

    def _ping(self) -> bool:
        try:
            self.transport.global_request("keepalive@openssh.com", wait=True)
        except (raised.SSHException, OSError):
            return False
        return bool(self.transport.is_active())  # "no such request" is an answer too

    def _on_lost(self, reason: str) -> None:
        self._set(lost_because=reason)
        self.client.close()

    def lost(self) -> str:
        """Why the open connection is gone, in words."""
        said = self._proxy.said() if self._proxy is not None else ""
        reason = self.lost_because or self._log.disconnect() or "the host or the network closed it"
        return f"{reason} ({said})" if said else reason

    def give_up(self) -> Unreachable:
        """Abandon an `open` or `start` that is running in another thread; says how far it had come."""
        stage = self._reached()
        self._set(_abandoned=True)
        self.close()
        return ConnectFailed(f"{self.address}: {WAITED[stage]} within {self.budget_s:g} s", HINTS[stage], stage=stage)

    def close(self) -> None:
        """Close at once, also a dead link; the gateway stays open. Idempotent."""
        self._watchdog.stop()
        self.client.close()
        if self._proxy is not None:
            self._proxy.close()
        elif self._sock is not None:
            self._sock.close()

    def _reached(self) -> str:
        transport = self.client.get_transport()
        return "key exchange" if self.stage == "banner" and transport is not None and transport.remote_version else str(self.stage)

    def _translated(self, error: Exception) -> Unreachable:
        said = self._proxy.said() if self._proxy is not None else ""
        return translate(error, self._reached(), self.address, said or self._log.disconnect())


_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256", "ssh-rsa")}
"""Signature algorithms of a key type where they have other names."""


def translate(error: BaseException, stage: str, where: str, said: str = "") -> Unreachable:
    """Our error for whatever paramiko, fabric or a socket raised at `stage`. `said`: the server's or the proxy's own words."""
    if isinstance(error, Unreachable):
        return error
    detail = f"{where}: " + (said or " ".join(str(error).split()) or type(error).__name__)
    if isinstance(error, (socket.gaierror, socket.herror, raised.CouldNotCanonicalize, raised.ConfigParseError)):
        return ResolveFailed(detail, "check the name, ssh_config and DNS")
    if isinstance(error, raised.AuthenticationException):
        return AuthRefused(detail, HINTS["auth"])
    if isinstance(error, paramiko.BadHostKeyException):
        return HostKeyRefused(detail, HINTS["host key"])
    if isinstance(error, (raised.IncompatiblePeer, raised.MessageOrderError)):
        return ConnectFailed(detail, "the server offers no algorithm that is safe enough, or is no SSH server", stage="key exchange")
    if isinstance(error, raised.ChannelException):
        return ConnectFailed(detail, "the server refuses more channels (MaxSessions) or forwarding", stage="channel")
    cause = error if isinstance(error, OSError) else error.__context__
    if stage == "banner" and isinstance(cause, (EOFError, ConnectionError)):
        return BannerReset(f"{where} closed the connection before its SSH banner" + (f" ({said})" if said else ""), HINTS["banner"], stage)
    if stage == "tcp" and isinstance(error, OSError):
        return refused(error, where)
    if stage == "auth":
        return AuthRefused(detail, HINTS["auth"])
    if stage == "link":
        return LinkLost(detail, HINTS["link"])
    return ConnectFailed(detail, HINTS.get(stage, HINTS["link"]), stage=stage)


class _AskPolicy(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """Asked for every key, since paramiko itself is given no known_hosts."""

    def __init__(self, connection: SshConnection) -> None:
        self.connection = connection

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        self.connection._set(stage="host key")
        self.connection.policy.check(Key(key.get_name(), key.asbytes()))


class _Login(AuthStrategy):  # type: ignore[misc]
    """Public keys in the order of ssh: agent keys that are named in ssh_config, other agent keys, key files. Never a prompt."""

    def __init__(self, connection: SshConnection) -> None:
        super().__init__(ssh_config=None)
        self.connection = connection
        self.unusable: list[str] = []

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Log in or raise AuthRefused, which names each key that was tried and each that could not be."""
        settings = self.connection.settings
        self.connection._set(stage="auth")
        tried: list[str] = []
        methods: list[str] = []
        for label, key in self._keys(settings):
            tried.append(label)
            try:
                further = transport.auth_publickey(settings.user, key)
            except raised.BadAuthenticationType as error:
                methods = error.allowed_types
                break
            except raised.SSHException:
                if not transport.is_active():
                    break
                continue
            if not further:
                return
            raise AuthRefused(f"{self.connection.address} wants a second factor ({', '.join(further)})", "only public keys are supported")
        if not tried and self._none_is_enough(transport, methods):
            return
        said = self.connection._log.disconnect()
        raise no_login(
            self.connection.address, tried=tried, unusable=self.unusable, methods=methods, said=said, alive=transport.is_active()
        )

    def _none_is_enough(self, transport: paramiko.Transport, methods: list[str]) -> bool:
        try:
            return not transport.auth_none(self.connection.user)
        except raised.BadAuthenticationType as error:
            methods += error.allowed_types
        except raised.SSHException:
            pass  # the server closes after it: the refusal says so
        return False

    def _keys(self, settings: SshSettings) -> Iterator[tuple[str, paramiko.PKey]]:
        agent = {key.asbytes(): key for key in self._agent_keys(settings.identity_agent)}
        left: list[str] = []
        for path in settings.identity_files:
            key = agent.pop(_public_blob(path), None)
            if key is None:
                left.append(path)
            else:
                yield f"{path} (agent)", key
        if not settings.identities_only:
            yield from ((f"{key.comment or key.get_name()} (agent)", key) for key in agent.values())
        for path in left:
            key = self._load(path, settings.certificate_files)
            if key is not None:
                yield path, key

    def _agent_keys(self, path: str) -> tuple[paramiko.AgentKey, ...]:
        if not path:
            return ()
        try:
            return tuple(_Agent(path, self.connection._left_s()).get_keys())
        except (OSError, raised.SSHException) as error:
            self.unusable.append(f"the agent at {path} gave no keys: {error}")
            return ()

    def _load(self, path: str, certificates: tuple[str, ...]) -> paramiko.PKey | None:
        for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
            try:
                key = kind.from_private_key_file(path)
            except raised.PasswordRequiredException:
                self.unusable.append(f"{path} needs a passphrase: load it with `ssh-add {path}`")
                return None
            except FileNotFoundError:
                if not is_default_key(path):
                    self.unusable.append(f"{path} does not exist")
                return None
            except OSError as error:
                self.unusable.append(f"{path} cannot be read: {error.strerror}")
                return None
            except (raised.SSHException, ValueError):
                continue
            for certificate in {f"{path}-cert.pub", *certificates}:
                if Path(certificate).is_file():
                    key.load_certificate(certificate)
            return key
        self.unusable.append(f"{path} is not a private key that can be used (ed25519, ecdsa or rsa)")
        return None


class _Agent(AgentSSH):  # type: ignore[misc]
    """The agent behind a given socket, asked with a time limit."""

    def __init__(self, path: str, limit_s: float) -> None:
        super().__init__()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(limit_s)
        sock.connect(path)
        self._connect(sock)


def _public_blob(path: str) -> bytes:
    """The wire form of the key's public half, from the file beside it; empty when there is none."""
    try:
        return paramiko.pkey.PublicBlob.from_file(f"{path}.pub").key_blob  # type: ignore[no-any-return]
    except (OSError, ValueError):
        return b""


class ParamikoChannel:
    """A started remote command as two byte streams; a `Channel` of a session. Its stderr is always read, its end is kept."""

    def __init__(self, channel: paramiko.Channel, connection: SshConnection) -> None:
        self.connection = connection
        self._channel = channel
        self._said = bytearray()
        self._drain = threading.Thread(target=self._read_stderr, name="ssh-stderr", daemon=True)
        self._drain.start()

    def _read_stderr(self) -> None:
        while data := self._channel.recv_stderr(1 << 16):
            self._said = (self._said + data)[-_KEEP_STDERR:]

    def send(self, data: bytes) -> None:
        """Write all of it, waiting for room. Raises EOFError or OSError when the connection is gone."""
        view = memoryview(data)
        for start in range(0, len(view), _SEND_PIECE):  # paramiko copies the rest of what it is given for each packet
            self._channel.sendall(bytes(view[start : start + _SEND_PIECE]))
        if not self.connection.is_connected:
            raise EOFError(self.connection.lost())

    def recv(self, most: int) -> bytes:
        """At least one byte, or b"" at the end of the command's output or of the connection."""
        data: bytes = self._channel.recv(most)
        self.connection.heard()
        return data

    def close(self) -> None:
        """End the command's streams and the connection; a waiting `recv` returns. Idempotent."""
        self._channel.close()
        self.connection.close()

    def ending(self) -> str:
        """How it ended: the loss of the link, or the exit status with the last of stderr."""
        if not self._channel.status_event.wait(1.0 if self.connection.is_connected else 0) or self._channel.exit_status == -1:
            return self.connection.lost() if not self.connection.is_connected else "it closed its output"
        self._drain.join(1.0)
        lines = self._said.decode(errors="replace").strip().splitlines()
        return f"exited {self._channel.exit_status}" + (f": {lines[-1]}" if lines else "")


def read_config(text: str, host: str) -> dict[str, list[str]]:
    """The keywords of an ssh_config for a host, for machines without an OpenSSH client. Raises ResolveFailed."""
    try:
        found = SSHConfig.from_text(text).lookup(host)
    except (raised.ConfigParseError, raised.CouldNotCanonicalize) as error:
        raise translate(error, "resolve", host) from error
    return {key: list(value) if isinstance(value, list) else [value] for key, value in found.items()}
