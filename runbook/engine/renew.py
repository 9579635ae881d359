"""Tells the keepers that the controller is alive, at least every third of the shortest timer that counts from it."""

from __future__ import annotations

import threading

from runbook.engine.journal import JournalError
from runbook.engine.runtime import Runtime
from runbook.engine.state import keeper_run
from runbook.hosts.base import HostError
from runbook.model.event import AnyEvent, Registered

LONGEST_S = 60.0


class Renewer:
    """A thread that renews each host with a keeper. A host that does not answer is tried again at the next turn."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._over = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._work, name="runbook-renew", daemon=True)
        runtime.journal.follow(self._follow)

    def __enter__(self) -> Renewer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Renew no more; a renewal after a suspension would end it."""
        self._over = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _follow(self, event: AnyEvent) -> None:
        """A new patch or launch may have a shorter timer than the one that is waited for."""
        if isinstance(event, Registered):
            self._wake.set()

    def _interval_s(self) -> float:
        timers = [self._runtime.info.suspend_for_s, *(patch.record.undo_after_s for patch in list(self._runtime.state.patches.values()))]
        return max(0.2, min(LONGEST_S, min(timers) / 3))

    def _work(self) -> None:
        while not self._over:
            self._runtime.clock.wait(self._wake, self._interval_s())
            self._wake.clear()
            if not self._over:
                self._renew()

    def _renew(self) -> None:
        own = self._runtime.options.run
        kept = {(debt.host, keeper_run(debt, own)) for debt in list(self._runtime.state.owed.values()) if debt.kind == "keeper"}
        connected = self._runtime.connected()
        for name, run in sorted(kept | {(host, own) for host in self._runtime.leased}):
            if name in connected:
                try:
                    replaced = connected[name].renew(run)
                except HostError:
                    continue  # the step that uses the host reports it; the timers on the host are what protects it
                if replaced and not self._over:
                    self._tell(name)

    def _tell(self, name: str) -> None:
        lost = "the exit status of what the dead one had started is not known any more"
        try:
            self._runtime.find("keeper_replaced", f"{name}: this run's keeper had died; another one took over; {lost}")
        except JournalError:
            return  # the next event of the main thread meets the same disk and ends the run
