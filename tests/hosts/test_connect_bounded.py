"""Blocking work that the caller can leave: by a limit, by cancel, by an interrupt."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from runbook.hosts.base import Cancelled, CancelToken, LinkLost
from runbook.hosts.bounded import bounded


class Stuck:
    """Work that ends only when it is given up."""

    def __init__(self) -> None:
        self.released, self.ended = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.released.wait()
        self.ended.set()

    def give_up(self) -> LinkLost:
        self.released.set()
        return LinkLost("too late")


def test_result_and_exception_come_through() -> None:
    assert bounded(lambda: 7, give_up=Stuck().give_up) == 7

    def fail() -> None:
        raise LinkLost("gone")

    with pytest.raises(LinkLost, match="gone"):
        bounded(fail, give_up=Stuck().give_up)


def test_the_limit_gives_the_work_up() -> None:
    stuck = Stuck()
    with pytest.raises(LinkLost, match="too late"):
        bounded(stuck, give_up=stuck.give_up, limit_s=0.05)
    assert stuck.ended.wait(5)


def test_cancel_returns_at_once() -> None:
    stuck, cancel = Stuck(), CancelToken()
    threading.Timer(0.05, cancel.set).start()
    before = time.monotonic()
    with pytest.raises(Cancelled):
        bounded(stuck, give_up=stuck.give_up, cancel=cancel)
    assert time.monotonic() - before < 0.5 and stuck.ended.wait(5)


def test_cancel_from_a_signal_handler_of_the_waiting_thread() -> None:
    stuck, cancel = Stuck(), CancelToken()
    before = signal.signal(signal.SIGUSR1, lambda *_: cancel.set())
    try:
        threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1)).start()
        with pytest.raises(Cancelled):
            bounded(stuck, give_up=stuck.give_up, cancel=cancel)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_interrupt_gives_the_work_up_too() -> None:
    stuck = Stuck()
    threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        bounded(stuck, give_up=stuck.give_up)
    assert stuck.ended.wait(5)
