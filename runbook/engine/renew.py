"""Tells the keepers that the controller is alive, at least every third of the shortest timer that counts from it."""

from __future__ import annotations

import threading

from runbook.engine.runtime import Runtime
from runbook.hosts.base import HostError

LONGEST_S = 60.0


class Renewer:
    """A thread that renews each host with a keeper. A host that does not answer is tried again at the next turn."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="runbook-renew", daemon=True)

    def __enter__(self) -> Renewer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Renew no more; a renewal after a suspension would end it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _interval_s(self) -> float:
        timers = [self._runtime.info.suspend_for_s, *(patch.record.undo_after_s for patch in self._runtime.state.patches.values())]
        return max(0.2, min(LONGEST_S, min(timers) / 3))

    def _work(self) -> None:
        while not self._runtime.clock.wait(self._stop, self._interval_s()):
            kept = {debt.host for debt in list(self._runtime.state.owed.values()) if debt.kind == "keeper"}
            for name, host in self._runtime.connected().items():
                if name in kept:
                    try:
                        host.renew(self._runtime.options.run)
                    except HostError:
                        continue  # the step that uses the host reports it; the timers on the host are what protects it
