"""SSH by Fabric, repaired: the only importer of fabric, with `login` the only one of paramiko. Their exceptions end here.

What stock Fabric does and this connection does not: accept any host key, wait for delayed acknowledgements on each request, wait
for ever on a dead link or an unfinished connect, read configuration files of its own, print tracebacks of its threads.

Stages of a connection, each the `stage` of its failure:

    resolve -> tcp -> banner -> key exchange -> host key -> auth -> channel -> link
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import fabric
import paramiko
import paramiko.ssh_exception as raised
from paramiko.common import cMSG_CHANNEL_REQUEST as MSG_CHANNEL_REQUEST
from paramiko.config import SSHConfig

from runbook.hosts.base import AuthRefused, ConnectFailed, HostKeyRefused, LinkLost, ResolveFailed, Unreachable
from runbook.hosts.dial import ProxyChild, dial, limit_silence, refused
from runbook.hosts.failure import HINTS, WAITED, LogTail
from runbook.hosts.host_key import HostKeyPolicy
from runbook.hosts.known_hosts import Key
from runbook.hosts.login import Login
from runbook.hosts.ssh_config import SshSettings
from runbook.hosts.watchdog import Watchdog
from runbook.model.clock import Clock

CONNECT_S = 15.0  # budget of a connect where ssh_config has no ConnectTimeout: tcp, banner, key exchange, auth and channel together
ALIVE_S = 4  # between keepalives where ssh_config has none; with OpenSSH's count of three a dead link is noticed after 12 s
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

    def __init__(
        self,
        settings: SshSettings,
        *,
        clock: Clock,
        through: SshConnection | None = None,
        trace: Callable[[str], None] = lambda stage: None,
    ) -> None:
        """`trace` is told of each stage as it begins."""
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
            _trace=trace,
            _proxy=None,
            _sock=None,
            _opening=threading.Lock(),
            _abandoned=False,
            _on_close=lambda: None,
            _deadline=0.0,
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
                self._trace("tcp")
                self._set(_sock=self._dial(), stage="banner")
                self._trace("banner")
                self._still_wanted()
                self.connect_kwargs = {
                    "sock": self._sock,
                    "banner_timeout": self._left_s(),
                    "auth_timeout": self._left_s(),
                    "channel_timeout": self._left_s(),
                    "transport_factory": self._transport,
                    "auth_strategy": Login(self.settings, self.address, self._log, self._enter_login),
                }
                super().open()
                self._still_wanted()
            except Exception as error:
                failure = self._translated(error)
                self.close()
                raise failure from error
            self._set(stage="link", notes=(*self.notes, *self.policy.notes))
            self._watchdog.heard()
            self._watchdog.start()

    def _still_wanted(self) -> None:
        if self._abandoned:
            raise LinkLost("the connection was given up while it was being opened")

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
        transport = _Transport(sock, **kwargs)
        transport.on_banner = lambda: self._trace("key exchange")
        transport.handshake_timeout = self._left_s()
        options = transport.get_security_options()
        known = [name for kind in self.policy.types() for name in _SIGNATURES.get(kind, (kind,)) if name in options.key_types]
        options.key_types = [*known, *(name for name in options.key_types if name not in known)]
        return transport

    def _enter_login(self) -> float:
        self._set(stage="auth")
        self._trace("auth")
        return self._left_s()

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
            self._trace("channel")
            channel = self.create_session()
            channel.exec_command(command)
        except Exception as error:
            raise self._translated(error) from error
        self._set(stage="link")
        self._trace("helper")
        return ParamikoChannel(channel, self)

    def open_and_start(self, command: str) -> ParamikoChannel:
        """Both, or neither: a connection on which nothing can be started is closed."""
        self.open()
        try:
            return self.start(command)
        except Unreachable:
            self.close()
            raise

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call this when the connection is closed; it may be called twice."""
        self._set(_on_close=callback)

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
        failure = self._too_late()
        self._set(_abandoned=True)
        self.close()
        return failure

    def _too_late(self) -> Unreachable:
        stage = self._reached()
        return ConnectFailed(f"{self.address}: {WAITED[stage]} within {self.budget_s:g} s", HINTS[stage], stage=stage)

    def close(self) -> None:
        """Close at once, also a dead link; the gateway stays open. Idempotent."""
        self._watchdog.stop()
        self.client.close()
        if self._proxy is not None:
            self._proxy.close()
        elif self._sock is not None:
            self._sock.close()
        self._on_close()

    def _reached(self) -> str:
        transport = self.client.get_transport()
        return "key exchange" if self.stage == "banner" and transport is not None and transport.remote_version else str(self.stage)

    def _translated(self, error: Exception) -> Unreachable:
        if not isinstance(error, Unreachable) and self._clock.monotonic() >= self._deadline - 0.05:
            return self._too_late()
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
    if isinstance(error, raised.ChannelException) and stage == "tcp":
        hint = "its AllowTcpForwarding forbids it" if error.code == 1 else "check address and port as the jump host sees them"
        return ConnectFailed(f"the jump host could not connect to {where}: {error.text}", hint, stage="tcp")
    if isinstance(error, raised.ChannelException):
        return ConnectFailed(detail, "the server refuses more channels (MaxSessions) or forwarding", stage="channel")
    cause = error if isinstance(error, OSError) else error.__context__
    if stage == "banner" and isinstance(cause, (EOFError, ConnectionError)):
        return BannerReset(f"{where} closed the connection before its SSH banner" + (f" ({said})" if said else ""), HINTS["banner"], stage)
    if stage == "tcp" and isinstance(error, OSError):
        return refused(error, where)
    if stage == "auth" and said:
        return AuthRefused(detail, HINTS["auth"])
    if stage == "link":
        return LinkLost(detail, HINTS["link"])
    return ConnectFailed(detail, HINTS.get(stage, HINTS["link"]), stage=stage)


class _Transport(paramiko.Transport):  # type: ignore[misc]
    """Tells when the server has said who it is: the key exchange begins."""

    on_banner: Callable[[], None] = staticmethod(lambda: None)

    def _check_banner(self) -> None:
        super()._check_banner()
        self.on_banner()


class _AskPolicy(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """Asked for every key, since paramiko itself is given no known_hosts."""

    def __init__(self, connection: SshConnection) -> None:
        self.connection = connection

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        self.connection._set(stage="host key")
        self.connection._trace("host key")
        self.connection.policy.check(Key(key.get_name(), key.asbytes()))


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
        """End the command and the connection, which is its own; a waiting `recv` returns, also on a dead link. Idempotent.

        sshd leaves a command without a terminal alone when its client goes: one that does not read its stdin would stay.
        """
        if self.connection.is_connected and not self._channel.exit_status_ready():
            self._signal("TERM")
        self.connection.close()

    def _signal(self, name: str) -> None:
        request = paramiko.Message()
        request.add_byte(MSG_CHANNEL_REQUEST)
        request.add_int(self._channel.remote_chanid)
        request.add_string("signal")
        request.add_boolean(False)
        request.add_string(name)
        try:
            self.connection.transport._send_user_message(request)
        except (raised.SSHException, OSError, EOFError):
            pass  # the link went at this very moment, and the connection is closed next

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
