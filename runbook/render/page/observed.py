"""One fold over the samples and phases of a run: what the figures show. Its size does not grow with the length of the run."""

from __future__ import annotations

from array import array
from collections import deque

from runbook.model.event import AnyEvent, PhaseReached, Registered, SampleTaken, StepStarted
from runbook.model.sample import Absent, CheckSample, ExitSample, LogSample, ProcessSample, Sample, Seen
from runbook.render.page.curves import DRAWN, Curve, Spans, Total

TAIL = 80
"""Log lines that are kept of each server: the newest."""
STATES = {"T": "stopped", "t": "traced", "Z": "zombie", "D": "disk wait"}
OTHERS = "other processes"
READ, WEIGHTS, RUN, LOG, GPU = "bytes read", "mapped weights", "thread run time", "log lines", "GPU memory"

MOST_N = 2**31 - 1
"""A larger line number is damage."""


class Lane:
    """One rank of a server: its phases, the odd states of its process, and when it was last seen."""

    def __init__(self, name: str, rank: int | None) -> None:
        self.name = name
        self.rank = rank
        self.phases = Spans()
        self.states = Spans()
        self.gone: float | None = None


class Server:
    """A server of one host: phases, ranks, checks, curves by signal and line, the newest log lines."""

    def __init__(self, host: str, name: str) -> None:
        self.host = host
        self.name = name
        self.launched: float | None = None
        self.phases = Spans()
        self.lanes: dict[str, Lane] = {}
        self.checks = Spans()
        self.curves: dict[str, dict[str, Curve]] = {}
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.exit: tuple[float, ExitSample] | None = None
        self._totals: dict[tuple[str, str], Total] = {}
        self._places: dict[tuple[str, int, int], int] = {}
        self._lines = 0

    def lane(self, name: str, rank: int | None) -> Lane:
        """The lane of a rank."""
        if name not in self.lanes:
            self.lanes[name] = Lane(name, rank)
        return self.lanes[name]

    def curve(self, signal: str, line: str) -> Curve:
        """The curve of a signal and a line in it."""
        lines = self.curves.setdefault(signal, {})
        if line not in lines:
            lines[line] = Curve()
        return lines[line]

    def reach(self, event: PhaseReached) -> None:
        """A phase event."""
        spans = (
            self.phases if event.whole else self.lane(f"rank {event.rank}" if event.rank is not None else event.label, event.rank).phases
        )
        if event.ended:
            spans.leave(event.t, event.phase)
        else:
            spans.enter(event.phase, event.t)

    def read_log(self, t: float, log: LogSample) -> None:
        """New lines; a stretch that is sent again counts once."""
        place = (log.path, log.inode, log.offset)
        known = self._places.get(place, 0)
        if len(self._places) > DRAWN:
            self._places.clear()
        self._places[place] = max(known, len(log.lines))
        fresh = log.lines[known:]
        self.tail.extend(fresh)
        self._lines += len(fresh) + (0 if known else log.skipped)

    def read_check(self, t: float, check: CheckSample) -> None:
        """The outcome of a check, joined with equal ones before; it began when it was asked."""
        t = max(t - check.latency_s, self.checks[-1].begin if self.checks else 0.0)
        if check.outcome != "answer":
            self.checks.enter(check.outcome, t, "none")
        else:
            empty = ", empty body" if check.body_bytes == 0 else ""
            self.checks.enter(f"{check.status}{empty}", t, "good" if check.matched else "odd")

    def draw(self, t: float, processes: tuple[ProcessSample, ...]) -> None:
        """A point of each curve, and the states of the ranks."""
        self.curve(LOG, "log").add(t, self._lines)
        ranks = [process.rank for process in processes if process.rank is not None]
        present: set[str] = set()
        level: dict[str, int] = {}
        touched: set[tuple[str, str]] = set()
        for process in processes:
            line = _line(process, ranks)
            if process.rank is not None:
                present.add(line)
                self.lane(line, process.rank).states.enter(STATES.get(process.state, ""), t)
            key, io, weights = (process.pid, process.start), process.io, process.mapped_weights
            if isinstance(io, Seen):
                touched.add((READ, line))
                self._total(READ, line).add(key, max(io.value.rchar, io.value.read_bytes))
            if process.threads:
                touched.add((RUN, line))
                self._total(RUN, line).add(key, sum([thread.run_ns for thread in process.threads]))
            if isinstance(weights, Seen):
                level[line] = level.get(line, 0) + weights.value
            elif isinstance(weights, Absent) and line in self.curves.get(WEIGHTS, ()):
                level.setdefault(line, 0)
        for signal, line in touched:
            self.curve(signal, line).add(t, int(self._totals[signal, line]) / (1e9 if signal == RUN else 1))
        for line, value in level.items():
            self.curve(WEIGHTS, line).add(t, value)
        for name, lane in self.lanes.items():
            if lane.rank is not None and name not in present and lane.gone is None and lane.states:
                lane.gone = t
                lane.phases.leave(t)
                lane.states.leave(t)

    def _total(self, signal: str, line: str) -> Total:
        return self._totals.setdefault((signal, line), Total())


def _line(process: ProcessSample, ranks: list[int]) -> str:
    if process.rank is None:
        return OTHERS
    if ranks.count(process.rank) == 1:
        return f"rank {process.rank}"
    return process.title.partition("_")[2].replace("_", " ") or process.title  # several groups: "scheduler_DP0_TP1"


class Observed:
    """Everything that was seen of servers and GPUs in a run."""

    def __init__(self) -> None:
        self.servers: dict[tuple[str, str], Server] = {}
        self.watched: dict[tuple[str, str], Server] = {}
        """By step and host: the server that the step looked at."""
        self.gpus: dict[str, dict[str, Curve]] = {}
        self.gpu_names: dict[str, dict[int, tuple[str, int]]] = {}
        self.t = array("d")
        self.n = array("q")
        self._hosts: dict[str, str] = {}
        self._types: dict[str, str] = {}
        self._drawn: dict[tuple[str, str], tuple[float, float]] = {}
        self._held: dict[tuple[str, str], Sample] = {}

    def apply(self, event: AnyEvent) -> None:
        """Take one event in."""
        match event:
            case SampleTaken():
                self.t.append(event.sample.t)
                self.n.append(min(max(event.n, -1), MOST_N))
                self._take(event.sample, event.step)
            case StepStarted():
                self._types[event.step] = event.type
            case PhaseReached():
                self._server(self._hosts.get(event.server, ""), event.server).reach(event)
            case Registered(kind="launch"):
                self._server(event.host, event.step).launched = event.t
            case _:
                pass

    def finish(self) -> Observed:
        """Draw what was held back: the newest sample of each server."""
        for key, sample in self._held.items():
            self.servers[key].draw(sample.t, sample.processes.value if isinstance(sample.processes, Seen) else ())
        self._held.clear()
        return self

    def event_at(self, t: float) -> int | None:
        """Number of the first sample at `t` or later."""
        return next((n for at, n in zip(self.t, self.n, strict=True) if at >= t), None)

    def _server(self, host: str, name: str) -> Server:
        self._hosts[name] = host
        if (host, name) not in self.servers:
            self.servers[host, name] = Server(host, name)
        return self.servers[host, name]

    def _take(self, sample: Sample, step: str) -> None:
        self._take_gpus(sample)
        check = sample.check.value if isinstance(sample.check, Seen) and self._types.get(step) != "request" else None
        if not sample.server and check is None:
            return
        server = self._server(sample.host, sample.server or step)
        self.watched[step, sample.host] = server
        if check is not None:
            server.read_check(sample.t, check)
        if isinstance(sample.log, Seen):
            server.read_log(sample.t, sample.log.value)
        if isinstance(sample.exit, Seen) and server.exit is None:
            server.exit = (sample.t, sample.exit.value)
        processes = sample.processes.value if isinstance(sample.processes, Seen) else ()
        if isinstance(sample.processes, Absent) or processes:
            self._draw(server, sample, processes)

    def _draw(self, server: Server, sample: Sample, processes: tuple[ProcessSample, ...]) -> None:
        key = (server.host, server.name)
        # Looks that read the threads are rarer than others, so they go first.
        if self._due(key, sample.t, 1 if any(process.threads for process in processes) else 2):
            self._held.pop(key, None)
            server.draw(sample.t, processes)
        else:
            self._held[key] = sample

    def _due(self, key: tuple[str, str], t: float, gaps: int = 1) -> bool:
        """Whether a reading is drawn: when so many gaps have passed since the last drawn one. The gap grows with the time observed."""
        first, drawn = self._drawn.get(key, (t, float("-inf")))
        if t - drawn < gaps * (t - first) / DRAWN:
            return False
        self._drawn[key] = (first, t)
        return True

    def _take_gpus(self, sample: Sample) -> None:
        if isinstance(sample.gpus, Seen) and self._due(("gpus", sample.host), sample.t):
            curves = self.gpus.setdefault(sample.host, {})
            names = self.gpu_names.setdefault(sample.host, {})
            for gpu in sample.gpus.value:
                names[gpu.index] = (gpu.name, gpu.total)
                curve = curves.get(line := f"GPU {gpu.index}")
                if curve is None:
                    curve = curves[line] = Curve()
                curve.add(sample.t, gpu.used)
