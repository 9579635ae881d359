"""Links that break: cut, black-holed, reset, lossy, slow, frozen; sessions killed, sshd started again, helpers and keepers killed."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

from tests.chaos.frame import Outcome, Scenario
from tests.chaos.journey import Journey, broken
from tests.chaos.net_host import NetHost, command, missing
from tests.support.relay import Relay
from tests.support.waiting import until


def cut(rng: random.Random, folder: Path) -> Outcome:
    """The cable is pulled."""
    return broken(rng, folder, lambda host, _: host.cut() or "cut")


def black_hole(rng: random.Random, folder: Path) -> Outcome:
    """Every packet is lost in silence, for longer than a dead link is believed in."""
    return broken(rng, folder, lambda host, _: host.drop() or "black hole", most_s=25.0)


def reject(rng: random.Random, folder: Path) -> Outcome:
    """A firewall resets the connection and every new one."""
    return broken(rng, folder, lambda host, _: host.reject() or "reject")


def loss(rng: random.Random, folder: Path) -> Outcome:
    """A share of the packets is lost."""

    def lose(host: NetHost, rng: random.Random) -> str:
        share = rng.uniform(0.1, 0.35)
        host.drop(share)
        return f"{share:.0%} loss"

    return broken(rng, folder, lose, most_s=20.0)


def rate(rng: random.Random, folder: Path) -> Outcome:
    """A line of 128 to 512 kbit/s, from the start."""
    with NetHost(folder / "host") as host:
        kbit = rng.randrange(128, 512)
        host.rate(kbit)
        journey = Journey(host, folder)
        journey.start()
        return journey.end(note=f"{kbit} kbit/s")


def frozen(rng: random.Random, folder: Path) -> Outcome:
    """Every process of the host is stopped for a while."""
    return broken(rng, folder, lambda host, _: host.freeze() or "frozen", most_s=20.0)


def frozen_sshd(rng: random.Random, folder: Path) -> Outcome:
    """Only sshd is stopped: what runs goes on."""

    def freeze(host: NetHost, rng: random.Random) -> str:
        for pid in host.sessions():
            os.kill(pid, signal.SIGSTOP)
        return "sshd's sessions stopped"

    return broken(rng, folder, freeze, most_s=20.0)


def delay(rng: random.Random, folder: Path) -> Outcome:
    """Every byte takes 200 to 400 ms more, through a relay."""
    with NetHost(folder / "host") as host:
        seconds = rng.uniform(0.1, 0.2)
        relay = Relay(host.address, 22, seconds).start()
        try:
            host.write_client_config(HostName="127.0.0.1", Port=str(relay.listen_port), HostKeyAlias=host.address)
            journey = Journey(host, folder)
            journey.start()
            return journey.end(note=f"{2000 * seconds:.0f} ms a round trip")
        finally:
            relay.close()


def session_killed(rng: random.Random, folder: Path) -> Outcome:
    """sshd's processes of the connection are killed."""
    return broken(rng, folder, lambda host, _: host.kill_sessions() or "sessions killed", most_s=1.5)


def sshd_restarted(rng: random.Random, folder: Path) -> Outcome:
    """Listener and sessions are killed; another listener comes up."""
    return broken(rng, folder, lambda host, _: host.restart_sshd() or "sshd restarted", most_s=1.5)


def again_and_again(rng: random.Random, folder: Path) -> Outcome:
    """The sessions are killed every few seconds, all the time."""
    with NetHost(folder / "host") as host:
        journey = Journey(host, folder, work_s=8.0)
        journey.start()
        kills = 0
        journey.wait_for("server")
        while not journey.over() and kills < 8:
            time.sleep(rng.uniform(1.0, 2.5))
            host.kill_sessions()
            kills += 1
        return journey.end(note=f"sessions killed {kills} times")


def never_again(rng: random.Random, folder: Path) -> Outcome:
    """A link that does not come back: unreachable at the end of the box, and nothing is said about the server."""
    with NetHost(folder / "host") as host:
        journey = Journey(host, folder, work_s=60.0, timeout_s=20.0)
        journey.start()
        journey.wait_for("work")
        until(journey.once.exists, 30)
        host.drop()
        until(journey.over, 120)
        host.heal()
        outcome = journey.end("unreachable")
        owned = all("keeper" in line or "server" in line or "process" in line or "runbook-host" in line for line in outcome.left)
        return Outcome(outcome.verdict == "unreachable" and owned, outcome.verdict, outcome.seconds, note="what stays is named")


def helper_killed(rng: random.Random, folder: Path) -> Outcome:
    """The helper is killed while a server loads: another one goes on."""
    with NetHost(folder / "host") as host:
        journey = Journey(host, folder)
        journey.start()
        journey.wait_for("up")
        kill_ours(host, "dispatch", journey)
        return journey.end(note="in `up`")


def helper_killed_under_a_command(rng: random.Random, folder: Path) -> Outcome:
    """Nobody can know how the command ended: undecided, ended, never run again."""
    with NetHost(folder / "host") as host:
        journey = Journey(host, folder, work_s=60.0)
        journey.start()
        journey.wait_for("work")
        until(journey.once.exists, 30)
        time.sleep(rng.uniform(0.0, 1.0))
        kill_ours(host, "dispatch", journey)
        return journey.end("undecided", note="in `work`")


def keeper_killed(rng: random.Random, folder: Path) -> Outcome:
    """The keeper is killed: another one takes over, the server stays ours."""
    with NetHost(folder / "host") as host:
        journey = Journey(host, folder)
        journey.start()
        journey.wait_for("up")
        [record] = host.state.rglob("keeper.json")
        inner = json.loads(record.read_text())["pid"]
        os.kill(next(pid for pid in host.pids() if inner_pid(pid) == inner), signal.SIGKILL)
        return journey.end(note="in `up`")


def kill_ours(host: NetHost, what: str, journey: Journey) -> None:
    """Kill the helper that is connected now."""
    connected = [json.loads(line) for line in journey.journal.splitlines() if '"event":"host_connected"' in line]
    inner = connected[-1]["facts"]["pid"]
    os.kill(next(pid for pid in host.pids() if inner_pid(pid) == inner and "python" in command(pid)), signal.SIGKILL)


def inner_pid(pid: int) -> int:
    """A process's number inside of its own process namespace."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return -1
    return int(next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1])


SCENARIOS = (
    Scenario("cut", cut, missing, 3),
    Scenario("black_hole", black_hole, missing, 4),
    Scenario("reject", reject, missing, 3),
    Scenario("loss", loss, missing, 2),
    Scenario("rate", rate, missing),
    Scenario("frozen", frozen, missing, 2),
    Scenario("frozen_sshd", frozen_sshd, missing, 2),
    Scenario("delay", delay, missing),
    Scenario("session_killed", session_killed, missing, 4),
    Scenario("sshd_restarted", sshd_restarted, missing, 2),
    Scenario("again_and_again", again_and_again, missing),
    Scenario("never_again", never_again, missing),
    Scenario("helper_killed", helper_killed, missing, 2),
    Scenario("helper_killed_under_a_command", helper_killed_under_a_command, missing),
    Scenario("keeper_killed", keeper_killed, missing),
)
