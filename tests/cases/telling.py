"""Words to tell a case in: processes, threads and sources of one look, and looks in a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from runbook.cli.profiles import profiles
from runbook.diagnose.check import check_sample
from runbook.diagnose.judge import judge
from runbook.model.gpu import GpuSample, ToolSample
from runbook.model.profile import Profile
from runbook.model.question import Expectation, Question
from runbook.model.sample import (
    Absent,
    Blind,
    CheckSample,
    EngineSample,
    ExitSample,
    FolderSample,
    IoSample,
    ListenerSample,
    LogSample,
    PipeSample,
    ProcessSample,
    Sample,
    Seen,
    SocketSample,
    ThreadSample,
)
from runbook.model.verdict import Diagnosis
from runbook.model.waits import StackSample

T0 = 1_950_000_000.0
KNOWN = profiles()
SECOND = 10**9
MIB, GIB = 2**20, 2**30
BORN = 50_000
"""Start time of the oldest process, clock ticks."""


class Told(NamedTuple):
    """A case as samples, and the question that is asked of them. `partial`: a signal of the case has no place in a sample."""

    samples: list[Sample]
    profile: Profile
    question: Question
    partial: str = ""

    def judged(self) -> Diagnosis:
        """The answer at the end of the box."""
        found = judge(self.samples, self.profile, self.question, self.question.since + self.question.box_s)
        assert found is not None, "the end of a box always has an answer"
        return found


def tell(
    look: Callable[[float], Mapping[str, Any]],
    profile: str,
    *,
    seconds: float = 180.0,
    every: float = 10.0,
    about: str = "healthy",
    partial: str = "",
    **question: Any,
) -> Told:
    """Looks every so often: `look(second)` gives the sources. `log` is text that is new since the look before; None: not read."""
    samples, offset, second = [], 0, 0.0
    while second <= seconds:
        sources = dict(look(second))
        text = sources.pop("log", "")
        if isinstance(text, str):
            lines = tuple(line for line in text.replace("\r", "\n").split("\n") if line)
            end = offset + len(text)
            sources["log"] = Seen(LogSample(path="/tmp/s.log", inode=7, size=end, offset=offset, end=end, lines=lines))
            offset = end
        elif text is not None:
            sources["log"] = text
        rows = sources.pop("processes", None)
        sources["processes"] = Seen(tuple(rows)) if isinstance(rows, (list, tuple)) else rows or Blind("not asked")
        sources.setdefault("exit", Absent())
        samples.append(Sample(t=T0 + second, host="gpu", host_t=T0 + second, boot_id="b", server="server", **sources))
        second += every
    asked = Question(about=about, since=T0, box_s=seconds, final=True, **question)
    return Told(samples, KNOWN.read(profile), asked, partial)


def proc(
    pid: int = 100,
    title: str = "python server.py",
    *,
    ppid: int = 1,
    state: str = "S",
    run_s: float = 1.0,
    switches: int = 500,
    wchan: str = "",
    read: int = 0,
    wrote: int = 0,
    rss: int = GIB,
    age_s: float = 600.0,
    others: tuple[ThreadSample, ...] = (),
    **more: Any,
) -> ProcessSample:
    """A process whose main thread has run so long and switched so often; `read` and `wrote` are bytes so far."""
    main = ThreadSample(tid=pid, state=state, run_ns=int(run_s * SECOND), wait_ns=0, switches=switches, wchan=wchan)
    more.setdefault("io", Seen(IoSample(rchar=read, read_bytes=read, wchar=wrote)))
    more.setdefault("mapped_weights", Seen(0))
    more.setdefault("stdin", "null")
    more.setdefault("pipes", Seen(()))
    more.setdefault("files", Seen(()))
    return ProcessSample(
        pid=pid, start=BORN + pid, ppid=ppid, state=state, title=title, rss=rss, threads=(main, *others), age_s=age_s, **more
    )


def thread(tid: int, run_s: float, switches: int, wchan: str = "") -> ThreadSample:
    """A thread beside the main one."""
    return ThreadSample(tid=tid, state="S", run_ns=int(run_s * SECOND), wait_ns=0, switches=switches, wchan=wchan)


def full(**sources: Any) -> dict[str, Any]:
    """A full look: what is not told was looked at, and nothing was there."""
    nothing = {name: Seen(()) for name in ("sockets", "locks", "folders", "disks", "kernel", "peers")}
    return {**nothing, "gpu_tool": Absent(), **sources}


def at(second: float, lines: Mapping[float, str], every: float = 10.0) -> str:
    """Lines of a log by the second at which they came, since the look before."""
    return "".join(f"{text}\n" for when, text in lines.items() if second - every < when <= second)


def answered(status: int = 200, body: bytes = b"", *, path: str = "/health", latency_s: float = 0.01, **expect: Any) -> Seen[CheckSample]:
    """A check that brought an answer."""
    headers = expect.pop("headers", {})
    wanted = Expectation(**expect)
    return Seen(check_sample(f"http://127.0.0.1:8000{path}", "answer", latency_s, wanted, status=status, body=body, headers=headers))


def refused(url: str = "http://127.0.0.1:8000/health") -> Seen[CheckSample]:
    """A check that nobody took."""
    return Seen(CheckSample(url=url, outcome="refused", latency_s=0.001, error="Connection refused"))


def listens(address: str = "0.0.0.0:8000", pid: int = 100, *, ours: bool = True) -> Seen[tuple[ListenerSample, ...]]:
    """One listener on the port."""
    return Seen((ListenerSample(pid=pid, start=BORN + pid, title="server", ours=ours, address=address, age_s=300.0),))


def socket(
    pid: int, *, received: int, sent: int = 400, quiet_s: float = 0.1, state: str = "ESTAB", peer_pid: int | None = None,
    local: str = "10.0.0.7:40112",
) -> SocketSample:  # fmt: skip
    """A TCP connection of a process."""
    return SocketSample(
        pid=pid, local=local, peer="10.0.0.9:443", state=state, received=received, sent=sent, quiet_s=quiet_s, unread=0, unsent=0,
        peer_pid=peer_pid,
    )  # fmt: skip


def stacks(second: float, rows: Mapping[int, tuple[int | None, tuple[str, ...]]], first: float = 120.0) -> Any:
    """Main-thread stacks of processes, taken twice, 10 s apart: pid to (rank, frames innermost first)."""
    look = {first: 1, first + 10.0: 2}.get(second)
    if look is None:
        return Blind("not asked")
    found = [StackSample(pid=pid, tid=pid, rank=rank, source="py-spy", frames=frames, thread="MainThread", main=True, look=look) for pid, (rank, frames) in rows.items()]  # fmt: skip
    return Seen(tuple(found))


def engine(tokens: int, running: int, waiting: int = 0) -> Seen[EngineSample]:
    """The engine's own counters."""
    return Seen(EngineSample(tokens=tokens, running=running, waiting=waiting))


def gpu(index: int = 0, *, used: int = 0, **more: Any) -> GpuSample:
    """One GPU of 80 GiB."""
    return GpuSample(index=index, name="H", used=used, total=80 * GIB, **more)


def ended(lived_s: float, *, code: int | None = None, signal: str | None = None, **more: Any) -> Seen[ExitSample]:
    """How the main process ended."""
    return Seen(ExitSample(code=code, signal=signal, lived_s=lived_s, **more))


def folder(path: str, files: int, size: int, newest_s: float | None = 1.0) -> Seen[tuple[FolderSample, ...]]:
    """A folder that may grow."""
    return Seen((FolderSample(path=path, files=files, bytes=size, newest_s=newest_s),))


def full_pipe(fd: int, peers: tuple[int, ...]) -> PipeSample:
    """The write end of a pipe that holds no more."""
    return PipeSample(fd=fd, end="write", name="pipe:[9001]", fill=65536, capacity=65536, peers=peers, peers_known=True)


def tool(state: str, age_s: float) -> Seen[ToolSample]:
    """A GPU tool that has not ended."""
    return Seen(ToolSample(pid=41190, state=state, age_s=age_s, wchan="rwsem_down_read_slowpath" if state == "D" else ""))
