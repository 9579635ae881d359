"""Hosts that are not as one would like them: sshd's limits, strange login shells, talkative start files, full and read-only disks, clocks."""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from tests.chaos.frame import Outcome, Scenario
from tests.chaos.journey import Journey
from tests.chaos.net_host import NetHost, missing
from tests.support.waiting import until

SHELL = """
sed 's#^root:.*#root:x:0:0:root:{home}:{shell}#' /etc/passwd > passwd && mount --bind passwd /etc/passwd
"""
NOISE = "echo 'Welcome to the cluster!'\necho 'no licence' >&2\nprintf '\\033[31mred\\033[0m'\nsleep 0.2\n"
JUMPING = """#!/bin/sh
shift
exec {python} -ISc "import os,time
_now = time.time
time.time = lambda: _now() + ({jump} if os.path.exists({flag!r}) else 0)
$1"
"""


def plain(rng: random.Random, folder: Path, *, note: str = "", **host: str) -> Outcome:
    """The journey on a host that is set up so; it must pass."""
    with NetHost(folder / "host", **host) as box:
        journey = Journey(box, folder)
        journey.start()
        return journey.end(note=note)


def max_sessions(rng: random.Random, folder: Path) -> Outcome:
    """One session a connection."""
    return plain(rng, folder, extra="MaxSessions 1", note="MaxSessions 1")


def max_startups(rng: random.Random, folder: Path) -> Outcome:
    """sshd drops connections at random when more than two log in at once; eight targets do."""
    with NetHost(folder / "host", extra="MaxStartups 2:30:6") as box:
        names = [f"gpu{n}" for n in range(8)]
        entries = {name: {"host": box.alias, "python": sys.executable} for name in names}
        journey = Journey(box, folder)
        (folder / "hosts.yaml").write_text(yaml.safe_dump({"hosts": entries}))
        book = {"runbook": 1, "hosts": {"boxes": names}, "steps": [{"id": "work", "run": f"echo $$ >> {journey.once}"}]}
        (folder / "book.yaml").write_text(json.dumps(book))
        journey.start()
        return journey.end(note="8 targets at once, MaxStartups 2:30:6", once=8)


def shell(name: str) -> tuple[Callable[[random.Random, Path], Outcome], Callable[[], str]]:
    """(scenario, what it needs) of an account with this login shell."""

    def play(rng: random.Random, folder: Path) -> Outcome:
        path = shutil.which(name)
        return plain(rng, folder, setup=SHELL.format(home=folder / "host" / "home", shell=path), note=f"login shell {path}")

    return play, lambda: missing() or ("" if shutil.which(name) else f"{name} is not installed")


def noisy_rc(rng: random.Random, folder: Path) -> Outcome:
    """Start files that print, on both streams, and take their time."""
    home = folder / "host" / "home"
    home.mkdir(parents=True)
    for name in (".bashrc", ".profile"):
        (home / name).write_text(NOISE)
    return plain(rng, folder, note="start files that print")


def noexec_tmp(rng: random.Random, folder: Path) -> Outcome:
    """Nothing in /tmp may be executed."""
    return plain(rng, folder, setup="mount -o remount,noexec,nosuid,nodev /tmp", note="/tmp is noexec")


def home_read_only(rng: random.Random, folder: Path) -> Outcome:
    """The home folder cannot be written."""
    return plain(rng, folder, setup="mount --bind home home && mount -o remount,ro,bind home", note="home is read-only")


def state_read_only(rng: random.Random, folder: Path) -> Outcome:
    """Nor can the state folder: the launch fails, and says what to set."""
    return _no_state(folder, "mount --bind state state && mount -o remount,ro,bind state", "Read-only file system")


def disk_full(rng: random.Random, folder: Path) -> Outcome:
    """The disk of the state folder is full from the start: the launch fails, and says so."""
    fill = "mount -t tmpfs -o size=64k tmpfs state && head -c 70000 /dev/zero > state/filling"
    return _no_state(folder, fill, "No space left on device")


def _no_state(folder: Path, setup: str, words: str) -> Outcome:
    with NetHost(folder / "host", setup=setup) as box:
        journey = Journey(box, folder)
        journey.start()
        outcome = journey.end("failed", once=0)
        said = words in journey.journal
        return Outcome(
            outcome.verdict in ("failed", "crashed") and said and not outcome.left,
            outcome.verdict,
            outcome.seconds,
            outcome.left,
            f"{words}: {'said' if said else 'NOT said'}; {outcome.note}",
        )


def disk_full_under_a_command(rng: random.Random, folder: Path) -> Outcome:
    """The disk fills up and the link is lost: the helper cannot write down what it runs, so it ends it. Nobody knows: undecided."""
    with NetHost(folder / "host", setup="mount -t tmpfs -o size=1m tmpfs state") as box:
        journey = Journey(box, folder, work_s=40.0)
        journey.start()
        journey.wait_for("work")
        until(journey.once.exists, 30)
        state = box.seen_inside(box.state)
        (state / "filling").write_bytes(b"")
        try:
            with open(state / "filling", "wb", buffering=0) as filling:
                while True:
                    filling.write(b"\0" * 4096)
        except OSError:
            pass
        box.kill_sessions()
        until(lambda: journey.connects() > 1 or journey.over(), 60)
        (state / "filling").unlink()
        return journey.end("undecided", note="full, then the sessions were killed")


def clock_jump(rng: random.Random, folder: Path) -> Outcome:
    """The host's clock jumps by hours while a server loads and a command runs, for the helper."""
    jump, flag = rng.choice([-7200, 3600, 86400]), folder / "host" / "jumped"
    folder.joinpath("host").mkdir()
    python = folder / "host" / "python"
    python.write_text(JUMPING.format(python=sys.executable, jump=jump, flag=str(flag)))
    python.chmod(0o755)
    with NetHost(folder / "host") as box:
        journey = Journey(box, folder, python=str(python))
        journey.start()
        journey.wait_for(rng.choice(["up", "work"]))
        time.sleep(rng.uniform(0.0, 1.0))
        flag.touch()
        return journey.end(note=f"by {jump} s")


_TCSH, _FISH = shell("tcsh"), shell("fish")
SCENARIOS = (
    Scenario("max_sessions", max_sessions, missing),
    Scenario("max_startups", max_startups, missing),
    Scenario("tcsh", *_TCSH),
    Scenario("fish", *_FISH),
    Scenario("noisy_rc", noisy_rc, missing),
    Scenario("noexec_tmp", noexec_tmp, missing),
    Scenario("home_read_only", home_read_only, missing),
    Scenario("state_read_only", state_read_only, missing),
    Scenario("disk_full", disk_full, missing),
    Scenario("disk_full_under_a_command", disk_full_under_a_command, missing),
    Scenario("clock_jump", clock_jump, missing, 2),
)
