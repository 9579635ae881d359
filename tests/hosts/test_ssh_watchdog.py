"""The watchdog on a fake clock: silence ends a link, a sign of life keeps it, our own pause proves nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from runbook.hosts.watchdog import Watchdog
from tests.support.sshd import until


class SteppedClock:
    """Time passes only in `wait`, by what was asked for plus `late_s`, and only while `steps` lasts."""

    def __init__(self, steps: int, late_s: float = 0.0, each: Callable[[], None] = lambda: None) -> None:
        self.time, self.steps, self.late_s, self.each = 0.0, steps, late_s, each
        self.done = threading.Event()

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if self.steps == 0:
            self.done.set()
            return True
        self.steps -= 1
        self.time += seconds + self.late_s
        self.each()
        return event.is_set()


def test_silence_for_interval_times_count_is_a_lost_link() -> None:
    lost: list[str] = []
    clock = SteppedClock(steps=100)
    never = threading.Event()
    Watchdog(never.wait, lost.append, interval_s=10, count=3, clock=clock).start()
    until(lambda: lost, 5)
    assert lost == ["no answer to keepalives for 30 s"] and clock.time == 30


@pytest.mark.parametrize("count", [0, 1, 2])
def test_small_counts_still_give_the_peer_one_interval(count: int) -> None:
    lost: list[str] = []
    clock = SteppedClock(steps=100)
    Watchdog(threading.Event().wait, lost.append, interval_s=5, count=count, clock=clock).start()
    until(lambda: lost, 5)
    assert clock.time == 5 * max(1, count)


def test_bytes_that_arrive_are_a_sign_of_life_though_no_ping_is_answered() -> None:
    lost: list[str] = []
    clock = SteppedClock(steps=50)
    dog = Watchdog(threading.Event().wait, lost.append, interval_s=10, count=3, clock=clock)
    clock.each = dog.heard
    dog.start()
    assert clock.done.wait(5) and lost == [] and clock.time >= 400


def test_a_controller_that_was_stopped_itself_blames_nobody() -> None:
    """Each nap takes an hour longer than asked, as after SIGSTOP or a suspended laptop."""
    lost: list[str] = []
    clock = SteppedClock(steps=5, late_s=3600.0)
    Watchdog(threading.Event().wait, lost.append, interval_s=10, count=3, clock=clock).start()
    assert clock.done.wait(5) and lost == []


def test_one_ping_at_a_time() -> None:
    asked: list[int] = []
    hold = threading.Event()

    def ping() -> bool:
        asked.append(1)
        return not hold.wait()

    clock = SteppedClock(steps=4)
    Watchdog(ping, lambda reason: None, interval_s=1, count=10, clock=clock).start()
    assert clock.done.wait(5)
    until(lambda: asked, 5)
    hold.set()
    assert len(asked) == 1
