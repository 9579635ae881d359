"""Logging in with public keys, in the order of ssh. Imports paramiko, and is imported by `ssh` alone."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import paramiko.ssh_exception as raised
from paramiko.agent import AgentSSH
from paramiko.auth_strategy import AuthStrategy

from runbook.hosts.base import AuthRefused
from runbook.hosts.failure import LogTail, no_login
from runbook.hosts.ssh_config import SshSettings, is_default_key


class Login(AuthStrategy):  # type: ignore[misc]
    """Public keys in the order of ssh: agent keys that are named in ssh_config, other agent keys, key files. Never a prompt."""

    def __init__(self, settings: SshSettings, address: str, log: LogTail, entered: Callable[[], float]) -> None:
        """`entered` is called when the login begins and says how many seconds it may take."""
        super().__init__(ssh_config=None)
        self._settings, self._address, self._log, self._entered = settings, address, log, entered
        self._left_s = 0.0
        self._unusable: list[str] = []

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Log in or raise AuthRefused, which names each key that was tried and each that could not be; ConnectFailed when the link died."""
        settings = self._settings
        self._left_s = self._entered()
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
            raise AuthRefused(f"{self._address} wants a second factor ({', '.join(further)})", "only public keys are supported")
        if not tried and self._none_is_enough(transport, methods):
            return
        said = self._log.disconnect()
        raise no_login(self._address, tried=tried, unusable=self._unusable, methods=methods, said=said, alive=transport.is_active())

    def _none_is_enough(self, transport: paramiko.Transport, methods: list[str]) -> bool:
        try:
            return not transport.auth_none(self._settings.user)
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
            return tuple(_Agent(path, self._left_s).get_keys())
        except (OSError, raised.SSHException) as error:
            self._unusable.append(f"the agent at {path} gave no keys: {error}")
            return ()

    def _load(self, path: str, certificates: tuple[str, ...]) -> paramiko.PKey | None:
        for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
            try:
                key = kind.from_private_key_file(path)
            except raised.PasswordRequiredException:
                self._unusable.append(f"{path} needs a passphrase: load it with `ssh-add {path}`")
                return None
            except FileNotFoundError:
                if not is_default_key(path):
                    self._unusable.append(f"{path} does not exist")
                return None
            except OSError as error:
                self._unusable.append(f"{path} cannot be read: {error.strerror}")
                return None
            except (raised.SSHException, ValueError):
                continue
            for certificate in {f"{path}-cert.pub", *certificates}:
                if Path(certificate).is_file():
                    key.load_certificate(certificate)
            return key
        self._unusable.append(f"{path} is not a private key that can be used (ed25519, ecdsa or rsa)")
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
