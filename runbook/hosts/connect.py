"""From a playbook's target to a connected host, whatever kind it is."""

from __future__ import annotations

import functools
import importlib
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from runbook.hosts.base import CancelToken, Host, LinkLost, NoPython, ResolveFailed
from runbook.hosts.bounded import bounded
from runbook.hosts.hops import MOST_HANDSHAKES, Shared, acquired
from runbook.hosts.inventory import Inventory, LabState, Place, did_you_mean, load
from runbook.hosts.ssh_config import SshSettings, resolve
from runbook.hosts.via import ends_with_link
from runbook.model.clock import Clock
from runbook.model.playbook import Target

if TYPE_CHECKING:
    from runbook.hosts.ssh import ParamikoChannel, SshConnection

CONFIG_VARIABLE = "RUNBOOK_SSH_CONFIG"
"""Names an ssh_config to use in place of the user's, as `ssh -F` does."""
HELLO_S = 30.0  # a scheduler or container behind `via:` may take a while to give a place
_GRACE_S = 0.5  # the connection's own limits speak first: they know more
_TRIES = 3  # of a connection that was reset before its banner

Note = Callable[[str], None]
T = TypeVar("T")

_hops: Shared[SshConnection] = Shared()
_handshakes: defaultdict[tuple[str, int], threading.Semaphore] = defaultdict(lambda: threading.Semaphore(MOST_HANDSHAKES))


def connect(
    target: Target,
    *,
    clock: Clock,
    cancel: CancelToken | None = None,
    note: Note = lambda text: None,
    env: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
    trace: Note = lambda stage: None,
) -> Host:
    """Reach a target and start the helper there. `note` gets what a user should know, such as a new host key,
    `trace` each stage as it begins.

    Returns soon after `cancel` is set, with Cancelled. Raises Unreachable: each stage has its class (see `base`).
    """
    inventory = load(cwd, env)
    place = inventory.place(target)
    if place.kind == "local":
        trace("helper")
        return _connect_local(place, cancel)
    trace("resolve")
    config = env.get(CONFIG_VARIABLE, "")
    settings = _lab_settings(place.lab) if place.lab is not None else _resolve(place.ssh, config)
    try:
        return _retried(lambda: _connect_ssh(place, settings, clock, cancel, note, trace), clock, cancel)
    except ResolveFailed as error:
        raise _unknown(error, place, settings, inventory) from error


def _connect_local(place: Place, cancel: CancelToken | None) -> Host:
    from runbook.hosts.local import connect_local

    given_up = threading.Event()

    def work() -> Host:
        host = connect_local(place.name, via=place.via, python=place.python, gpus=place.gpus, timeout_s=HELLO_S, protect=place.protect)
        if given_up.is_set():
            host.close()
        return host

    def give_up() -> NoPython:
        given_up.set()
        return NoPython(f"no helper on {place.name}")

    return bounded(work, give_up=give_up, cancel=cancel)


def _connect_ssh(place: Place, settings: SshSettings, clock: Clock, cancel: CancelToken | None, note: Note, trace: Note) -> Host:
    from runbook.hosts.bundle import remote_command
    from runbook.hosts.http import RelayHttp
    from runbook.hosts.session import Session

    try:
        command = remote_command(place.via, place.python)
    except ValueError as error:
        raise ResolveFailed(str(error), "write `via:` and `python:` on one line") from None
    channel = _open(settings, command, clock, cancel, note, trace)
    where = f"{place.name} (behind `{' '.join(place.via)}`)" if place.via else place.name

    def give_up() -> NoPython:
        channel.close()
        return NoPython(f"the helper did not start on {where}")

    try:
        start = functools.partial(Session, channel, timeout_s=HELLO_S, clock=clock, what=where, protect=place.protect)
        session = bounded(start, give_up=give_up, cancel=cancel)
    except NoPython as error:
        if channel.connection.lost_because:
            raise LinkLost(f"the connection to {where} was lost: {channel.connection.lost_because}", "check the network") from error
        if place.via:
            error.hint = f"check that `via:` works there: `ssh {place.ssh} {' '.join(place.via)} true`; or {error.hint}"
        raise
    mortal = ends_with_link(place.via)
    return Host(place.name, channel.connection.address, session, session.facts, RelayHttp(session), place.gpus, ends_with_link=mortal)


def _open(settings: SshSettings, command: str, clock: Clock, cancel: CancelToken | None, note: Note, trace: Note) -> ParamikoChannel:
    """A started command on a connection of its own, behind its jump hosts."""
    from runbook.hosts.ssh import SshConnection

    through, give_back = _jump(_chain(settings), clock, cancel, note)
    connection = SshConnection(settings, clock=clock, through=through, trace=trace)
    connection.on_close(give_back)
    try:
        return _within_budget(connection, lambda: connection.open_and_start(command), cancel, note)
    except BaseException:
        give_back()
        raise


def _chain(settings: SshSettings) -> list[SshSettings]:
    """Jump hosts in the order of the way there. The first one's own jump hosts come before it, unless they lead back to it."""
    hops = [resolve(hop, settings.config_file) for hop in settings.proxy_jump]
    if hops and hops[0].proxy_jump and hops[0].target not in hops[0].proxy_jump and settings.target not in hops[0].proxy_jump:
        return _chain(hops[0]) + hops
    return hops


def _jump(hops: list[SshSettings], clock: Clock, cancel: CancelToken | None, note: Note) -> tuple[SshConnection | None, Callable[[], None]]:
    """The connection to the last of the hops, shared with other targets, and the function that gives the whole chain back."""
    from runbook.hosts.ssh import SshConnection

    backs: list[Callable[[], None]] = []

    def give_back() -> None:
        while backs:
            backs.pop()()

    through: SshConnection | None = None
    try:
        for count, settings in enumerate(hops, 1):
            connection = SshConnection(settings, clock=clock, through=through)

            def make(connection: SshConnection = connection) -> SshConnection:
                _within_budget(connection, connection.open, cancel, note)
                return connection

            through, back = _hops.take(tuple((hop.user, hop.host, hop.port, hop.config_file) for hop in hops[:count]), make, cancel)
            backs.append(back)
    except BaseException:
        give_back()
        raise
    return through, give_back


def _within_budget(connection: SshConnection, work: Callable[[], T], cancel: CancelToken | None, note: Note) -> T:
    with acquired(_handshakes[connection.settings.host, connection.settings.port], cancel):
        done = bounded(work, give_up=connection.give_up, limit_s=connection.budget_s + _GRACE_S, cancel=cancel)
    for text in connection.notes:
        note(text)
    return done


def _retried(attempt: Callable[[], T], clock: Clock, cancel: CancelToken | None) -> T:
    """Try again when sshd hangs up before its banner (too many connect at once); every other failure stands."""
    from runbook.hosts.ssh import BannerReset

    try:
        return attempt()
    except BannerReset:
        import tenacity  # here, since its import costs as much as a whole connect and is hardly ever needed

    event = cancel.event if cancel is not None else threading.Event()

    def pause_for(seconds: float) -> None:
        clock.wait(event, seconds)

    pause_for(0.25)
    again = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(BannerReset),
        stop=tenacity.stop_after_attempt(_TRIES - 1),
        wait=tenacity.wait_random_exponential(multiplier=0.25, max=2.0),
        sleep=pause_for,
        reraise=True,
    )
    return again(attempt)


def _resolve(text: str, config: str) -> SshSettings:
    """Ask `ssh -G`, and load the SSH library and pack our code meanwhile: that takes longer than all the rest of a connect."""
    from runbook.hosts.bundle import prepare

    threading.Thread(target=importlib.import_module, args=("runbook.hosts.ssh",), daemon=True).start()
    threading.Thread(target=prepare, daemon=True).start()
    return resolve(text, config)


def _lab_settings(lab: LabState) -> SshSettings:
    return SshSettings(
        target="lab",
        host=lab.host,
        port=lab.port,
        user=lab.user,
        identity_files=(lab.key,),
        identities_only=True,
        user_known_hosts=(lab.known_hosts,),
        strict="yes",
    )


def _unknown(error: ResolveFailed, place: Place, settings: SshSettings, inventory: Inventory) -> ResolveFailed:
    """A name that leads nowhere: what it might have been, or where it was given."""
    if place.kind != "ssh" or settings.host not in place.ssh:
        return error
    if place.name in inventory.hosts:
        hint = f"correct `host:` of `{place.name}` in hosts.yaml, or name `{settings.host}` in ssh_config"
        return ResolveFailed(f"`{place.name}` of hosts.yaml leads to `{place.ssh}`, and {error.summary}", hint)
    hint = did_you_mean(place.name, inventory.known) or "name it in hosts.yaml or ssh_config, or write user@address"
    return ResolveFailed(f"`{place.name}` is not in hosts.yaml and no ssh alias, and {error.summary}", hint)
