"""Looking at what the probes of a patch left behind: side file, log, processes, imports, bytecode."""

from __future__ import annotations

import glob
import re
from typing import Union

from runbook.hosts.base import Mark, Process, RemoteError
from runbook.model.sample import Blind, Seen
from runbook.probes.reading import Channel, Hit, head, read
from runbook.probes.view import Compiled, View, read_compiled
from runbook.steps.base import Launched, Patched, StepContext, Window

MOST_READ = 32 << 20
"""Bytes of a side file that are read; each process writes at most 2,000 hits of 4 KiB for one probe."""
IMPORT_ERROR = r"(Ignore import error|[Ff]ailed to import|cannot import name|\b(ModuleNotFound|Import|Syntax|Indentation)Error\b)"
"""Lines by which engines tell that they go on without a module (SGLang's registry: `Ignore import error when loading …`)."""


class ProbeLook:
    """Reads what is new at each look, and keeps it."""

    def __init__(self, ctx: StepContext, patched: Patched, window: Window) -> None:
        self._ctx = ctx
        self._patched = patched
        self._window = window
        self.launched: Launched | None = ctx.launched(patched.launch) if patched.launch else None
        self._data = b""
        self._asked = False
        self._imports_from: Union[Seen[str], Blind] = Blind("not asked")
        self._bytecode: tuple[Compiled, ...] = ()

    def look(self, now: float) -> View:
        """Up to five round trips; of a file that nobody loaded, more is asked once."""
        facts = self._ctx.host.facts
        side = self._read_side()
        log, lines = self._read_log()
        channel = read(self._data, self._patched.marker)
        if isinstance(side, Blind) or not channel.armed:
            channel = _merged(channel, read(lines, self._patched.marker))
        if not channel.armed and not self._asked:
            self._asked, self._imports_from, self._bytecode = True, self._resolve(), self._compiled()
        until = now if self._window.until is None else self._window.until
        launched, ended = self._life()
        rows = self._processes()
        return View(
            channel=channel,
            path=self._patched.path,
            sha256=self._patched.record.sha256_after,
            written=self._patched.written,
            since=self._window.since + facts.clock_offset_s,
            until=until + facts.clock_offset_s,
            error_s=facts.clock_error_s,
            side=side,
            log=log,
            alive=rows if isinstance(rows, Blind) else Seen(frozenset((row.pid, row.start) for row in rows.value)),
            launched=launched,
            ended=ended,
            imports_from=self._imports_from,
            alive_names=tuple(dict.fromkeys(name for probe in self._patched.probes if (name := probe.get("alive")))),
            import_errors=self._import_errors(channel),
            bytecode=self._bytecode,
            strangers="" if isinstance(rows, Blind) else self._strangers(rows.value),
        )

    def _read_side(self) -> Union[Seen[int], Blind]:
        try:
            while len(self._data) < MOST_READ:
                piece = self._ctx.host.read(self._patched.side_file, len(self._data), 4 << 20)
                if piece.size < len(self._data):
                    return Blind(f"{piece.path} was cut from {len(self._data)} to {piece.size} bytes")
                self._data += piece.data
                if not piece.data or len(self._data) >= piece.size:
                    return Seen(len(self._data))
        except RemoteError as problem:
            return Blind(f"side file: {problem.summary}")
        return Blind(f"{self._patched.side_file} is larger than {MOST_READ >> 20} MiB")

    def _read_log(self) -> tuple[Union[Seen[int], Blind], bytes]:
        """Number of the hits' lines in the log's window, and all of the patch's lines in the log as far as they travel."""
        if self.launched is None:
            return Blind("no launch is named, so no log"), b""
        state, own = self.launched.state, self._own_mark()
        begin = self._window.begin.get(state.log, own)
        try:
            report = self._ctx.host.scan(state.log, re.escape(head(self._patched.marker)), begin=own, most=1000)
            lines = "\n".join(match.line for match in report.matches).encode()
            inside = self._ctx.host.scan(state.log, re.escape(head(self._patched.marker)) + '.*"kind": "hit"', begin=begin, most=0)
        except RemoteError as problem:
            return Blind(f"log: {problem.summary}"), b""
        return (Seen(inside.count) if inside.complete else Blind(f"log: {inside.gap}")), lines

    def _own_mark(self) -> Mark | None:
        """Where the launch began to write."""
        state = self.launched.state if self.launched else None
        return Mark(state.log_inode, state.log_offset) if state and state.log_inode else None

    def _import_errors(self, channel: Channel) -> tuple[str, ...]:
        """Asked while an import has not come to its end. Without a report only lines that name the file count."""
        complete = {(one.pid, one.start) for one in channel.loaded}
        begun = [one for one in channel.armed if one.how == "import" and one.module != "__main__"]
        if self.launched is None or (begun and all((one.pid, one.start) in complete for one in begun)):
            return ()
        try:
            report = self._ctx.host.scan(self.launched.state.log, IMPORT_ERROR, begin=self._own_mark(), most=50)
        except RemoteError:
            return ()  # only one more word about a silence that is left unexplained anyway
        lines = [match.line.strip()[:300] for match in report.matches]
        stem = re.escape(self._patched.path.rsplit("/", 1)[-1].rsplit(".", 1)[0])
        named = tuple(line for line in lines if re.search(rf"\b{stem}\b", line))
        return named or (tuple(lines) if begun else ())

    def _processes(self) -> Union[Seen[tuple[Process, ...]], Blind]:
        """Live processes of this run: of the launch's session, or with the run's marker."""
        run = self._ctx.run.id
        sid = self.launched.state.sid if self.launched else None
        try:
            table = self._ctx.host.processes(run)
        except RemoteError as problem:
            return Blind(f"processes: {problem.summary}")
        return Seen(tuple(row for row in table if row.state != "Z" and (row.run == run or row.sid == sid)))

    def _strangers(self, rows: tuple[Process, ...]) -> str:
        """The side file is ours alone (mode 0600); root may write to it as well."""
        others = [row for row in rows if row.uid not in (0, self._ctx.host.facts.uid)]
        return f"pid {others[0].pid} runs as {others[0].user}" if others else ""

    def _life(self) -> tuple[float | None, float | None]:
        """(started, ended) of the launch, host time; null when not known or still alive."""
        if self.launched is None:
            return None, None
        try:
            state = self._ctx.host.launch_state(self._ctx.run.id, self.launched.state.id)
        except RemoteError:
            return self.launched.state.started, None  # its keeper is gone: the process table still tells who is alive
        return state.started, state.ended

    def _resolve(self) -> Union[Seen[str], Blind]:
        """The file that the running server's interpreter would import now, from where it stands."""
        if self.launched is None:
            return Blind("no launch is named")
        cwd, env = self._place(self.launched)
        state = self.launched.state
        try:
            kept = {one.id: one for one in self._ctx.host.keeper(self._ctx.run.id).launches}
            state = kept.get(state.id, state)  # a shell may have become the interpreter since it was launched
            name = self._patched.module or self._module_name()
            found = self._ctx.host.find_module(name, interpreter=state.interpreter, prelude=self.launched.prelude, cwd=cwd, env=env)
        except RemoteError as problem:
            return Blind(f"module lookup: {problem.summary}")
        return Seen(found.path)

    def _module_name(self) -> str:
        """The name of a file by the packages around it: folders with an `__init__.py`."""
        folder, _, name = self._patched.path.rpartition("/")
        parts = [name.removesuffix(".py")]
        while folder and self._ctx.host.glob(glob.escape(folder) + "/__init__.py"):
            folder, _, part = folder.rpartition("/")
            parts.insert(0, part)
        return ".".join(parts)

    def _place(self, launched: Launched) -> tuple[str, dict[str, str]]:
        """Working directory and search path of the process as they are: a script may have gone elsewhere since it was launched."""
        state = launched.state
        try:
            now = self._ctx.host.describe(state.pid, ["PYTHONPATH"])
        except RemoteError:
            return state.cwd, launched.env
        return (now.cwd or state.cwd, {**launched.env, **now.env}) if now.start == state.start else (state.cwd, launched.env)

    def _compiled(self) -> tuple[Compiled, ...]:
        """Bytecode of the patched file, by the headers; what cannot be read tells nothing."""
        folder, name = self._patched.path.rsplit("/", 1)
        stem = glob.escape(name.rsplit(".", 1)[0])
        try:
            source = self._ctx.host.read(self._patched.path, 0, 1)
            paths = self._ctx.host.glob(f"{glob.escape(folder)}/__pycache__/{stem}.*.pyc") + self._ctx.host.glob(
                f"{glob.escape(folder)}/{stem}.pyc"
            )
            pieces = [self._ctx.host.read(path, 0, 16) for path in paths[:20]]
        except RemoteError:
            return ()
        return tuple(read_compiled(piece.path, piece.data, piece.mtime, source.mtime, source.size) for piece in pieces)


def _merged(side: Channel, log: Channel) -> Channel:
    """Both channels' records, each once; torn lines count only where the side file is torn."""
    seen: dict[tuple[int, int, int], Hit] = {(hit.pid, hit.start, hit.seq): hit for hit in (*log.hits, *side.hits)}
    hits = sorted(seen.values(), key=lambda hit: (hit.time, -1 if hit.rank is None else hit.rank, hit.seq))
    return Channel(
        armed=side.armed or log.armed,
        hits=tuple(hits),
        silences=side.silences or log.silences,
        loaded=side.loaded or log.loaded,
        built=side.built or log.built,
        torn=side.torn or log.torn,
    )
