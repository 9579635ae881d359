"""Every exception of paramiko and of sockets comes out as one of ours, with its stage and a hint."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import paramiko.ssh_exception
import pytest

from runbook.hosts.base import AuthRefused, ConnectFailed, HostKeyRefused, LinkLost, ResolveFailed, Unreachable
from runbook.hosts.failure import HINTS, WAITED
from runbook.hosts.ssh import BannerReset, translate

STAGES = tuple(HINTS)


def below(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    yield kind
    for child in kind.__subclasses__():
        yield from below(child)


def from_library(kind: type[BaseException]) -> bool:
    return kind.__module__.split(".")[0] in ("paramiko", "socket", "builtins", "fabric", "invoke")


KINDS = sorted(
    {kind for root in (paramiko.ssh_exception.SSHException, OSError, EOFError) for kind in below(root) if from_library(kind)},
    key=lambda kind: kind.__qualname__,
)


def make(kind: type[BaseException]) -> BaseException:
    key = paramiko.ECDSAKey.generate()
    arguments: dict[str, tuple[object, ...]] = {
        "BadAuthenticationType": ("no", ["password"]),
        "BadHostKeyException": ("box", key, key),
        "ChannelException": (2, "Connect failed"),
        "ProxyCommandFailure": ("nc box 22", "exited 1"),
        "NoValidConnectionsError": ({("127.0.0.1", 22): OSError(111, "refused")},),
        "AuthFailure": ([],),
        "UnknownKeyType": (),
    }
    return kind(*arguments.get(kind.__name__, ("it broke",)))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_exception_at_every_stage_has_words_a_stage_and_a_hint(kind: type[BaseException], stage: str) -> None:
    ours = translate(make(kind), stage, "me@box:22")
    assert isinstance(ours, Unreachable) and type(ours) is not Unreachable
    assert "box" in ours.summary and ours.hint and ours.stage
    assert "Traceback" not in ours.summary and "\n" not in ours.summary


@pytest.mark.parametrize(
    ("error", "stage", "kind", "expected"),
    [
        (socket.gaierror(-2, "Name or service not known"), "tcp", ResolveFailed, "resolve"),
        (ConnectionRefusedError(111, "Connection refused"), "tcp", ConnectFailed, "tcp"),
        (paramiko.ssh_exception.ChannelException(1, "Administratively prohibited"), "tcp", ConnectFailed, "tcp"),
        (paramiko.ssh_exception.IncompatiblePeer("no ciphers"), "key exchange", ConnectFailed, "key exchange"),
        (paramiko.ssh_exception.AuthenticationException("no"), "auth", AuthRefused, "auth"),
        (EOFError(), "key exchange", ConnectFailed, "key exchange"),
        (EOFError(), "auth", ConnectFailed, "auth"),
        (ConnectionResetError(104, "Connection reset by peer"), "auth", ConnectFailed, "auth"),
        (paramiko.ssh_exception.ChannelException(2, "Connect failed"), "channel", ConnectFailed, "channel"),
        (EOFError(), "link", LinkLost, "link"),
        (BrokenPipeError(32, "Broken pipe"), "link", LinkLost, "link"),
    ],
)
def test_the_class_says_who_is_to_blame(error: Exception, stage: str, kind: type[Unreachable], expected: str) -> None:
    ours = translate(error, stage, "me@box:22")
    assert type(ours) is kind and ours.stage == expected


def test_only_a_hang_up_before_the_banner_is_worth_another_try() -> None:
    def raised(cause: Exception) -> Exception:
        try:
            try:
                raise cause
            except Exception:
                raise paramiko.SSHException("Error reading SSH protocol banner")  # noqa: B904 as paramiko does
        except paramiko.SSHException as error:
            return error

    assert isinstance(translate(raised(EOFError()), "banner", "box"), BannerReset)
    assert isinstance(translate(raised(ConnectionResetError(104, "reset")), "banner", "box"), BannerReset)
    assert not isinstance(translate(raised(TimeoutError()), "banner", "box"), BannerReset)
    assert not isinstance(translate(EOFError(), "key exchange", "box"), BannerReset)


def test_our_own_errors_pass_unchanged() -> None:
    ours = HostKeyRefused("changed")
    assert translate(ours, "auth", "box") is ours


def test_each_stage_can_say_what_was_waited_for() -> None:
    assert set(WAITED) == set(HINTS)
