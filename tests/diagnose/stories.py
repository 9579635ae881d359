"""Builds sample histories in a few words, and loads the packaged profiles."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import runbook
from runbook.diagnose.check import check_sample
from runbook.diagnose.judge import judge
from runbook.model.profile import Profile
from runbook.model.question import Expectation, Question
from runbook.model.sample import Absent, CheckSample, IoSample, ListenerSample, LogSample, ProcessSample, Sample, Seen, ThreadSample
from runbook.model.verdict import Diagnosis
from runbook.playbook import profiles

READY_STATUS = Expectation()
T0 = 1_900_000_000.0
BOX_S = 600.0


def load_profile(name: str) -> Profile:
    """A packaged profile, without a fault in it."""
    source = _find(name, ())
    profile, diagnostics = profiles.load_profile(source.data, source.file, _find)
    assert profile is not None, diagnostics
    return profile


def _find(name: str, without: Collection[str]) -> profiles.Source:
    path = Path(runbook.__file__).parent / "profiles" / f"{name}.yaml"
    return profiles.Source(path.name, path.read_bytes())


SGLANG = load_profile("sglang")
GENERIC = load_profile("generic")


class Story:
    """A history that is told sample by sample: `at(second, …)`. Process and log states hold on until they are changed."""

    def __init__(self, profile: Profile = SGLANG) -> None:
        self.profile = profile
        self.samples: list[Sample] = []
        self._offset = 0

    def at(self, second: float, *, log: str | None = "", processes: Any = None, **sources: Any) -> Story:
        """One look. `log` is new text (None: not read), `processes` a list of ProcessSample."""
        if log is not None:
            lines = tuple(line for line in log.replace("\r", "\n").split("\n") if line)
            end = self._offset + len(log)
            sources["log"] = Seen(LogSample(path="/tmp/server.log", inode=7, size=end, offset=self._offset, end=end, lines=lines))
            self._offset = end
        rows = [process()] if processes is None else processes
        sources.setdefault("processes", Seen(tuple(rows)) if isinstance(rows, list) else rows)
        sources.setdefault("exit", Absent())
        self.samples.append(Sample(t=T0 + second, host="gpu", host_t=T0 + second, boot_id="b", server="server", **sources))
        return self

    def judge(
        self, *, final: bool = False, about: str = "healthy", box_s: float = BOX_S, now: float | None = None, **question: Any
    ) -> Diagnosis | None:
        """The verdict on the story so far."""
        asked = Question(about=about, since=T0, box_s=box_s, final=final, **question)
        return judge(self.samples, self.profile, asked, self.samples[-1].t if now is None else T0 + now)


def state(story: Story, **question: Any) -> Diagnosis | None:
    """The verdict on a server that is only looked at."""
    return story.judge(about="state", **question)


def process(
    pid: int = 100, *, ppid: int = 1, state: str = "S", title: str = "python -m sglang.launch_server", rank: int | None = None, **more: Any
) -> ProcessSample:
    """One process of the tree. `read`: bytes read so far. Of a stopped one the threads were read too."""
    if state == "T":
        more.setdefault("threads", (ThreadSample(tid=pid, state=state, run_ns=10**9, wait_ns=0, switches=50),))
    if "read" in more:
        read = more.pop("read")
        more["io"] = Seen(IoSample(rchar=read, read_bytes=read, wchar=more.pop("wrote", 0)))
    return ProcessSample(pid=pid, start=1000 + pid, ppid=ppid, state=state, title=title, rss=more.pop("rss", 10**8), rank=rank, **more)


def answer(status: int = 200, body: bytes = b"", *, expect: Expectation = READY_STATUS, path: str = "/health", **more: Any) -> Seen:
    """A check that was answered, judged by `expect`."""
    url = f"http://127.0.0.1:30000{path}"
    return Seen(check_sample(url, "answer", more.pop("latency_s", 1.0), expect, status=status, body=body, **more))


def no_answer(outcome: str = "refused") -> Seen:
    """A check that brought no answer."""
    return Seen(CheckSample(url="http://127.0.0.1:30000/health", outcome=outcome, latency_s=0.001))


def listener(pid: int = 100, *, ours: bool = True, address: str = "127.0.0.1:30000", age_s: float = 30.0) -> Seen:
    """One process that listens on the port."""
    title = "python -m sglang.launch_server"
    return Seen((ListenerSample(pid=pid, start=1000 + pid, title=title, ours=ours, address=address, age_s=age_s),))


WEIGHTS = "[2031-04-02 08:11:02] server_args=ServerArgs(model_path='m')\n[2031-04-02 08:11:09 TP0] Load weight begin. avail mem=78.1 GB\n"
READY = "[2031-04-02 08:14:09] The server is fired up and ready to roll!\n"


def shard(done: int, total: int = 22) -> str:
    """A line of the shard bar."""
    return f"\rLoading safetensors checkpoint shards: {100 * done // total:3d}% Completed | {done}/{total} [00:01<00:01,  3.16it/s]\n"
