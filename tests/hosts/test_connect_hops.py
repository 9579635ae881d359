"""Shared connections: made once, counted, closed with the last user, replaced when dead."""

from __future__ import annotations

import threading

import pytest

from runbook.hosts.base import Cancelled, CancelToken
from runbook.hosts.hops import Shared, acquired


class Door:
    def __init__(self) -> None:
        self.is_connected = True

    def close(self) -> None:
        self.is_connected = False


def test_two_users_share_one_and_the_last_closes_it() -> None:
    shared: Shared[Door] = Shared()
    one, back_one = shared.take("bastion", Door, None)
    two, back_two = shared.take("bastion", Door, None)
    assert one is two
    back_one()
    back_one()
    assert two.is_connected
    back_two()
    assert not two.is_connected


def test_many_at_once_make_one() -> None:
    shared: Shared[Door] = Shared()
    made: list[Door] = []

    def make() -> Door:
        made.append(Door())
        return made[-1]

    threads = [threading.Thread(target=shared.take, args=("bastion", make, None)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_a_dead_one_is_replaced_and_its_users_do_not_close_the_new_one() -> None:
    shared: Shared[Door] = Shared()
    old, back_old = shared.take("bastion", Door, None)
    old.is_connected = False
    new, _ = shared.take("bastion", Door, None)
    back_old()
    assert new is not old and new.is_connected


def test_a_failure_to_make_one_leaves_the_next_free_to_try() -> None:
    shared: Shared[Door] = Shared()

    def fail() -> Door:
        raise OSError("refused")

    with pytest.raises(OSError, match="refused"):
        shared.take("bastion", fail, None)
    assert shared.take("bastion", Door, None)[0].is_connected


def test_cancel_ends_the_wait_for_a_slot() -> None:
    slot, cancel = threading.Semaphore(0), CancelToken()
    cancel.set()
    with pytest.raises(Cancelled), acquired(slot, cancel):
        pass
