"""A command outlives the link it was started over: its helper stays with it, and the next one collects how it ended."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runbook.hosts.base import Cancelled, CancelToken, Completed, Host, LinkLost, ProcessId, RemoteError
from runbook.hosts.local import connect_local
from tests.support.processes import is_gone
from tests.support.waiting import until

pytestmark = pytest.mark.slow
RUN = "r1"


class Site:
    """A state folder, and helpers that share it."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.held = self.state / "runbook-host" / "runs" / RUN / "held"
        self.hosts: list[Host] = []

    def connect(self) -> Host:
        self.hosts.append(connect_local(via=["env", f"XDG_STATE_HOME={self.state}"], python=sys.executable))
        return self.hosts[-1]

    def start(self, host: Host, script: str, name: str = "s", limit_s: float = 30.0) -> tuple[ProcessId, Callable[[], Completed]]:
        """Start a script by name; its process, and what waits for the call's end."""
        begun: list[ProcessId] = []
        ended: list[object] = []

        def call() -> None:
            try:
                what = {"shell": script, "hold": name, "marker": RUN, "timeout_s": limit_s, "ladder": ("TERM 200ms", "KILL 5s")}
                ended.append(host.run(**what, on_output=lambda *_: None, on_start=begun.append))
            except Exception as problem:
                ended.append(problem)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        until(lambda: begun)

        def result() -> Completed:
            thread.join(20)
            if isinstance(ended[0], Exception):
                raise ended[0]
            return ended[0]

        return begun[0], result

    def lose(self, host: Host) -> None:
        """The link ends without goodbye."""
        host.transport._channel._to.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    for host in found.hosts:
        host.close()


def helper(host: Host) -> ProcessId:
    return ProcessId(host.facts.pid, host.facts.start)


def test_a_command_whose_link_ended_is_collected_with_output_and_exit_code(site: Site) -> None:
    first = site.connect()
    site.start(first, "echo before; sleep 0.6; echo after; echo oops >&2; exit 7")
    site.lose(first)
    until(lambda: (site.held / "s.json").exists())
    second = site.connect()
    printed: list[bytes] = []
    done = second.run_held(RUN, "s", timeout_s=20, on_output=lambda _, data: printed.append(data))
    assert (done.exit, done.stdout, done.stderr) == (7, b"before\nafter\n", b"oops\n")
    assert b"after" in b"".join(printed)
    assert second.run_held(RUN, "s", timeout_s=20) == done, "asked again, since the answer may be lost too"
    until(lambda: is_gone(first.facts.pid))


def test_a_helper_that_does_not_know_its_link_is_dead_is_told_by_the_next_one(site: Site) -> None:
    """Behind a black hole nothing ends on the host."""
    first, second = site.connect(), site.connect()
    site.start(first, "sleep 0.5; echo done")
    assert second.supersede(RUN, helper(first)) == "told"
    assert second.run_held(RUN, "s", timeout_s=20).stdout == b"done\n"
    until(lambda: is_gone(first.facts.pid))


def test_an_answer_that_may_not_have_arrived_is_kept_for_the_next_one(site: Site) -> None:
    first, second = site.connect(), site.connect()
    _, result = site.start(first, "echo quick; exit 3")
    assert result().exit == 3
    assert second.supersede(RUN, helper(first)) == "told"
    assert second.run_held(RUN, "s", timeout_s=20).exit == 3


def test_what_the_helper_was_never_given_is_known_not_to_have_begun(site: Site) -> None:
    first, second = site.connect(), site.connect()
    assert second.supersede(RUN, helper(first)) == "told"
    with pytest.raises(RemoteError) as caught:
        second.run_held(RUN, "s", timeout_s=20)
    assert caught.value.code == "not_found"
    with pytest.raises(LinkLost):
        first.run(["true"])
    assert not site.state.joinpath("runbook-host").exists(), "nothing was left behind for it"


def test_a_helper_that_was_killed_cannot_tell(site: Site) -> None:
    first, second = site.connect(), site.connect()
    process, _ = site.start(first, "sleep 30")
    assert second.supersede(RUN, helper(first)) == "told"
    os.kill(first.facts.pid, signal.SIGKILL)
    with pytest.raises(RemoteError) as caught:
        second.run_held(RUN, "s", timeout_s=20)
    assert caught.value.code == "failed" and caught.value.data["process"] == [process.pid, process.start]
    second.kill([process], ["KILL 5s"])
    assert second.supersede(RUN, helper(first)) == "gone"


def test_its_own_limit_ends_it_though_nobody_is_there(site: Site) -> None:
    first = site.connect()
    process, _ = site.start(first, "trap '' TERM; while :; do sleep 0.05; done", limit_s=1.0)
    site.lose(first)
    done = site.connect().run_held(RUN, "s", timeout_s=20)
    assert done.timed_out and done.left_running == ()
    assert is_gone(process.pid)


def test_cancelling_the_wait_ends_the_command(site: Site) -> None:
    first = site.connect()
    process, _ = site.start(first, "sleep 30")
    site.lose(first)
    second = site.connect()
    until(lambda: (site.held / "s.json").exists())
    second.cancel = CancelToken()
    threading.Timer(0.3, second.cancel.set).start()
    with pytest.raises(Cancelled):
        second.run_held(RUN, "s", timeout_s=20)
    until(lambda: is_gone(process.pid))


def test_retiring_the_run_ends_it_and_takes_its_records_away(site: Site) -> None:
    first = site.connect()
    process, _ = site.start(first, "sleep 30")
    site.lose(first)
    second = site.connect()
    second.ensure_keeper(RUN)
    until(lambda: (site.held / "s.json").exists())
    assert second.retire(RUN) == []
    assert is_gone(process.pid)
    assert not site.held.parent.exists()


def test_a_goodbye_ends_it_as_ever(site: Site) -> None:
    first = site.connect()
    process, _ = site.start(first, "sleep 30")
    first.close()
    until(lambda: is_gone(process.pid))
    assert not site.held.exists()


def test_where_nothing_can_be_written_down_nothing_goes_on(site: Site) -> None:
    site.state.mkdir()
    (site.state / "runbook-host").write_text("in the way")
    first = site.connect()
    process, _ = site.start(first, "sleep 30")
    site.lose(first)
    until(lambda: is_gone(process.pid))
