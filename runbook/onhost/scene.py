"""What the items of an evidence bundle share: the server in question, its living processes, its log; and how an item says no."""

from typing import Any, Dict, List, Optional, Tuple

from . import keeper_link, process_look, procs, tree
from .runfolder import RunFolder

Pieces = List[Tuple[str, bytes]]
"""Files of an item: name and content."""


class Nothing(Exception):
    """Looked, and there is nothing to take."""


class Late(Exception):
    """Something did not answer in its time."""


class Unseen(Exception):
    """Could not look; `pieces` is what was had all the same."""

    def __init__(self, reason: str, pieces: Optional[Pieces] = None) -> None:
        super().__init__(reason)
        self.pieces: Pieces = pieces or []


class Scene:
    """One server as it stands when the bundle begins. Without a pid only what belongs to the host can be taken."""

    def __init__(self, ctx: Any, args: Dict[str, Any]) -> None:
        self.ctx, self.args = ctx, args
        self.pid, self.start = int(args.get("pid") or 0), int(args.get("start") or 0)
        self.log, self.log_offset = args.get("log") or "", int(args.get("log_offset") or 0)
        self.wants_py_spy = False
        self.living = [stat for stat in self._processes() if procs.is_visible(stat.pid, ctx.scope)] if self.pid else []

    def _processes(self) -> List[procs.Stat]:
        table = procs.process_table()
        folder = RunFolder(self.ctx.state_dir, self.args["run"]) if self.args.get("run") else None
        keeper = keeper_link.living(folder) if folder else None
        record = {"id": self.args.get("server") or "", "pid": self.pid, "start": self.start}
        found = tree.members(record, table, keeper["pid"] if keeper else None, folder.launch_records() if folder else [])
        return [table[pid] for pid in sorted(found)]

    def alive(self) -> List[procs.Stat]:
        """The living processes. Raises Nothing when there are none."""
        if not self.living:
            raise Nothing("no process of it is left" if self.pid else "no server was named")
        return self.living

    def targets(self) -> List[Tuple[int, int, Optional[int]]]:
        """The living processes as (pid, start, rank). Raises Nothing."""
        return [(stat.pid, stat.start, rank(stat)) for stat in self.alive()]


def rank(stat: procs.Stat) -> Optional[int]:
    """Its rank by its title or environment."""
    if stat.state == "D":
        raw = procs.bounded(lambda: procs.cmdline(stat.pid))
        return process_look.rank_of(procs.title_of(stat.comm, raw), None)
    return process_look.rank_of(procs.title_of(stat.comm, procs.cmdline(stat.pid)), procs.environ_value(stat.pid, "RANK"))


def table(head: Tuple[str, ...], rows: List[Tuple[Any, ...]]) -> str:
    """Columns as wide as what stands in them; the last one is left as it is."""
    cells = [head, *(tuple("-" if cell is None else str(cell) for cell in row) for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head) - 1)]
    lines = ("  ".join([*(row[at].ljust(width) for at, width in enumerate(widths)), row[-1]]).rstrip() for row in cells)
    return "\n".join(lines) + "\n"


def text_of(outcome: Dict[str, Any]) -> str:
    """Why an outcome has no value, for a file."""
    return "(%s: %s)\n" % (outcome["type"], outcome.get("reason", ""))
