"""The server that a look is about: which processes belong to it, how its main one ended."""

import os
import time
from typing import Any, Dict, Optional, Set

from . import keeper_link, procs, tree
from .ladder import signal_name
from .process_look import exit_code
from .runfolder import RunFolder, read_json
from .sources import absent, blind, seen

RECORD_S = 0.2  # from a child's death to its record
Outcome = Dict[str, Any]


class Subject:
    """A server by pid and start (none: whoever has that pid now), with its launch record when its run has one."""

    def __init__(self, ctx: Any, args: Dict[str, Any], table: Optional[tree.Table] = None) -> None:
        self.pid, self.id, self.run = int(args["pid"]), args.get("server") or "", args.get("run") or ""
        self.start = int(args.get("start") or procs.start_ticks(self.pid) or 0)
        self.folder: Optional[RunFolder] = RunFolder(ctx.state_dir, self.run) if self.run else None
        self.table = procs.process_table() if table is None else table

    def pids(self) -> Set[int]:
        """Tree, session, orphans of its process group, of its keeper and with its marker; zombies too."""
        record = {"id": self.id, "pid": self.pid, "start": self.start}
        keeper = keeper_link.living(self.folder) if self.folder else None
        others = self.folder.launch_records() if self.folder else []
        found = tree.with_zombies(record, self.table, keeper["pid"] if keeper else None, others)
        return tree.closure(found | self._orphans(keeper is not None), self.table)

    def _orphans(self, kept: bool) -> Set[int]:
        """Whose parent is gone: of the server's process group, or with our marker when the keeper is gone too. None of a reused pid."""
        here = self.table.get(self.pid)
        if here is not None and here.start != self.start:
            return set()
        shell = here.ppid if here is not None and here.ppid != 1 else 0  # what it started beside the server, a `tee`, is none of it
        found = {stat.pid for stat in self.table.values() if stat.pgid == self.pid and stat.ppid != shell}
        if self.run and self.id and not kept:
            marks = {"RUNBOOK_RUN": self.run, "RUNBOOK_LAUNCH": self.id}
            strays = [stat for stat in self.table.values() if stat.ppid == 1 and stat.state not in "DZX"]
            found |= {stat.pid for stat in strays if all(procs.environ_value(stat.pid, name) == text for name, text in marks.items())}
        return found

    def _record(self) -> Optional[Dict[str, Any]]:
        if self.folder is None or not self.id:
            return None
        record = read_json(self.folder.launch_file(self.id))
        return record if record is not None and (record["pid"], record["start"]) == (self.pid, self.start) else None

    def hidden(self) -> Optional[Outcome]:
        """Blind when it lives, but /proc shows other users' processes to nobody (mounted with hidepid)."""
        if procs.read_stat(self.pid) is not None:
            return None
        try:
            os.kill(self.pid, 0)
        except PermissionError:
            return blind("not permitted: /proc hides the processes of other users here (hidepid); run as the server's user or root")
        except OSError:
            pass
        return None

    def exit(self) -> Outcome:
        """How the main process ended, as its parent saw it, or will when it collects it. Absent while it lives."""
        if procs.is_alive(self.pid, self.start):
            return absent("it lives")
        deadline = time.monotonic() + RECORD_S
        record = self._record()
        while record is not None and "ended" not in record and time.monotonic() < deadline:
            time.sleep(0.01)
            record = self._record()
        if record is None:
            return self._uncollected() or blind("it is gone, and no keeper was its parent")
        if "ended" not in record or "exit_unknown" in record:
            return blind(record.get("exit_unknown", "it is gone, and its keeper has not said how"))
        return seen(
            {
                "code": record.get("exit"),
                "signal": record.get("signal"),
                "lived_s": record["ended"] - record["started"],
                "oom_killed": record["oom_killed"],
                "oom_source": record.get("oom_source", ""),
                "killed_by_us": record["stopped_by"] is not None,
            }
        )

    def _uncollected(self) -> Optional[Outcome]:
        """Of one that is a zombie: the status that waits for its parent. When it ended is not known, so `lived_s` is its age."""
        stat = procs.same(self.pid, self.start)
        status = exit_code(stat) if stat is not None and stat.state == "Z" else None
        if stat is None or status is None:
            return None
        return seen(
            {
                "code": status if status >= 0 else None,
                "signal": signal_name(-status) if status < 0 else None,
                "lived_s": procs.age_s(stat),
            }
        )
