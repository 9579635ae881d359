"""Commands on a host: each in a process group of its own, really ended when its time is over, and not lost with the link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from runbook.hosts.calling import Calling
from runbook.model.remote import Completed, ProcessId, Reply
from runbook.model.units import Rung


class Commands(Calling):
    """The part of a `Host` that runs commands."""

    def run(
        self,
        argv: Sequence[str] = (),
        *,
        shell: str = "",
        env: dict[str, str] | None = None,
        cwd: str = "",
        stdin: bytes = b"",
        timeout_s: float = 120.0,
        ladder: Sequence[str] = ("TERM 5s", "KILL 5s"),
        keep_bytes: int = 256 * 1024,
        on_output: Callable[[str, bytes], None] | None = None,
        marker: str = "",
        hold: str = "",
        on_start: Callable[[ProcessId], None] | None = None,
    ) -> Completed:
        """Run argv, or `shell` as a script over stdin of bash (else sh), in a process group of its own.

        When `timeout_s` is over the helper climbs `ladder` on the group and says what is left. `on_output` gets (stream, bytes)
        as they come; with `on_start`, which is told its process, only so much of them that no link is filled by it. `marker` is put
        into its environment as RUNBOOK_RUN. With `hold`, a name in the run of `marker`, it outlives the loss of the link: `run_held`.
        """

        def event(data: dict[str, Any], blob: bytes) -> None:
            if "pid" in data:
                if on_start is not None:
                    on_start(ProcessId(data["pid"], data["start"]))
            elif on_output is not None:
                on_output(data["stream"], blob)

        more = {"hold": [marker, hold]} if hold else {}
        grace = 15.0 + sum(Rung.parse(rung).wait_s for rung in ladder)
        reply = self.call(
            "run",
            argv=list(argv),
            shell=shell,
            env=env or {},
            cwd=cwd,
            limit_s=timeout_s,
            ladder=list(ladder),
            keep=keep_bytes,
            live=on_output is not None,
            sparse=on_start is not None,
            marker=marker,
            blob=stdin,
            timeout_s=timeout_s + grace,
            on_event=event,
            **more,
        )
        return _completed(reply)

    def run_held(self, run: str, name: str, *, timeout_s: float, on_output: Callable[[str, bytes], None] | None = None) -> Completed:
        """Wait for a command whose link was lost, by the name that `hold` gave it; it ends itself at its own limit.

        RemoteError: not_found (nobody wrote it down), failed (its helper died: nobody knows how it ended).
        """

        def event(data: dict[str, Any], blob: bytes) -> None:
            if on_output is not None:
                on_output(data["stream"], blob)

        return _completed(self.call("run_held", run=run, name=name, timeout_s=timeout_s, on_event=event))

    def held_names(self, run: str) -> tuple[str, ...]:
        """Names of this run's commands that went on without their link, ended or not."""
        return tuple(msgspec.convert(self.call("held_names", run=run).data, list[str]))

    def supersede(self, run: str, helper: ProcessId) -> str:
        """End the service of the helper of a lost link; told: it left records of all it was given, gone: it was not there, stuck."""
        return str(self._field("state", str, "supersede", run=run, helper=[helper.pid, helper.start]))


def _completed(reply: Reply) -> Completed:
    out_len = reply.data.pop("stdout_len")
    return msgspec.convert({**reply.data, "stdout": reply.blob[:out_len], "stderr": reply.blob[out_len:]}, Completed)
