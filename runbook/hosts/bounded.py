"""Blocking work on a thread of its own, so that the caller can give up: on a time limit, on cancel, on Ctrl-C."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from runbook.hosts.base import Cancelled, CancelToken, HostError

T = TypeVar("T")


def bounded(
    work: Callable[[], T], *, give_up: Callable[[], HostError], limit_s: float | None = None, cancel: CancelToken | None = None
) -> T:
    """The result of `work`, or its exception.

    After `limit_s`, on `cancel` and on any exception in the waiting thread `give_up` must make the work end soon, and must close
    what it opens after that; its answer is raised when the time was over. The work may outlive this call by that little.
    """
    # A queue, not an Event: `put` may be called by a signal handler that interrupted this very `get`.
    inbox: queue.SimpleQueue[str] = queue.SimpleQueue()
    results: list[T] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            results.append(work())
        except BaseException as error:  # handed to the caller, whatever it is
            errors.append(error)
        inbox.put("done")

    take_back = cancel.on_set(lambda: inbox.put("cancelled")) if cancel is not None else lambda: None
    thread = threading.Thread(target=target, name="bounded", daemon=True)
    thread.start()
    try:
        word = inbox.get(timeout=limit_s)
    except queue.Empty:
        raise give_up() from None
    except BaseException:
        give_up()
        raise
    finally:
        take_back()
    if word == "cancelled":
        give_up()
        raise Cancelled("interrupted while connecting")
    if errors:
        raise errors[0]
    return results[0]
