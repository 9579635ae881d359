"""Sentences for people: reasons, hints, next looks. Nothing parses them; code compares kinds."""

from __future__ import annotations

from collections.abc import Sequence

from runbook.diagnose.motion import Motion
from runbook.model.gpu import GpuHolder, GpuSample
from runbook.model.question import Question
from runbook.model.sample import CheckSample, ListenerSample
from runbook.model.units import format_duration, format_size

LONGEST_QUOTE = 300
BYTE_SIGNALS = ("read", "written", "weights", "rss", "gpu_memory")
NO_SUCH_PATH = (404, 405)
"""Statuses of a path that a server does not have."""


def quote(text: str) -> str:
    """A host's line, short enough for a sentence."""
    text = text.strip()
    return text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + "…"


def ask_another_path(check: CheckSample, about: str) -> str:
    """What to do about an address that is not there: a wait has keys, a look may be that of the command as well."""
    where = "`path:` or `url:`" if about == "healthy" else "`--url`; in a playbook by `url:`"
    return f"{check.url} does not exist there ({check.status}), so it answers: name its health address by {where}"


def answer(check: CheckSample) -> str:
    """What a check brought: "200 with 0 bytes after 1s", "no answer within 30s", "refused"."""
    if check.outcome == "answer":
        return f"{check.status} with {check.body_bytes or 0} bytes after {format_duration(check.latency_s)}"
    if check.outcome == "timeout":
        return f"no answer within {format_duration(check.latency_s)}"
    return check.outcome + (f" ({quote(check.error)})" if check.error else "")


def holder(one: GpuHolder) -> str:
    """A process that holds GPU memory, as people name it."""
    parts = [f"pid {one.pid}"]
    if one.title:
        parts.append(f"`{quote(one.title)[:80]}`")
    if one.user:
        parts.append(f"of {one.user}")
    if one.age_s is not None:
        parts.append(f"up {format_duration(one.age_s)}")
    if one.used is not None:
        parts.append(f"holds {format_size(one.used)}")
    return " ".join(parts)


def gpu(one: GpuSample) -> str:
    """A GPU with its memory and holders."""
    held = "; ".join(holder(each) for each in one.holders) or "no visible holder"
    return f"GPU {one.index} uses {format_size(one.used)} of {format_size(one.total)}: {held}"


def listener(one: ListenerSample) -> str:
    """Who listens, as people name it."""
    title = f" `{quote(one.title)[:80]}`" if one.title else ""
    age = f", up {format_duration(one.age_s)}" if one.age_s is not None else ""
    return f"pid {one.pid}{title} on {one.address or 'that port'}{age}"


def rates(motions: Sequence[Motion], window_s: float) -> dict[str, str]:
    """Each signal that moved with its rate: {"bar": "shards 12/22", "read": "1.9GiB/s"}."""
    found: dict[str, str] = {}
    for signal in dict.fromkeys(motion.signal for motion in motions):
        mine = [motion for motion in motions if motion.signal == signal]
        total = sum(motion.amount for motion in mine)
        if signal in BYTE_SIGNALS:
            found[signal] = f"{format_size(total / max(window_s, 0.001))}/s"
        elif signal in ("bar", "compiler"):
            found[signal] = quote(mine[-1].text)
        else:
            found[signal] = f"{len(mine)} new lines, last: {quote(mine[-1].text)[:120]}"
    return found


def holding_note(question: Question, elapsed_s: float) -> str:
    """How the wait ended, for the start of a sentence: names the box and what set it."""
    box = f"the time box of {format_duration(question.box_s)}"
    by = f" (set by the {question.limited_by})" if question.limited_by else ""
    return f"after {format_duration(elapsed_s)}, at the end of {box}{by}"


NEXT = {
    "processes": "look at the process table as the server's user: `ps -o pid,ppid,stat,etime,cmd`",
    "exit": "ask the keeper: `runbook show RUN`",
    "log": "read the log as its owner: `tail -n 50 LOG`",
    "check": "ask by hand from the host: `curl --noproxy '*' -sv URL`",
    "listeners": "see who listens, as root: `ss -ltnp`",
    "gpus": "run `nvidia-smi` by hand, once, and see whether it returns",
    "io": "sample as the server's user or as root: /proc/PID/io is private to them",
    "sockets": "see the connections as root: `ss -tinp`",
    "locks": "read /proc/locks, and who has the file open: `fuser -v FILE`",
    "kernel": "read the kernel's log as root: `dmesg -T | tail`",
    "pressure": "read /proc/pressure on the host",
}
"""The cheapest next look for each source that could not be read."""

RESTART = "it cannot go on by itself: read the stacks in the evidence, then end it and start it again"
STACKS = "take the stacks of all ranks twice, 10 s apart: `py-spy dump --nonblocking --pid PID`"

RANKS = "diagnose the ranks that are not seen as well: by `--match REGEX` on this host, or on the other host"


def next_looks(blind: Sequence[str]) -> tuple[str, ...]:
    """What to look at next, for each source that was blind; the stacks when nothing was."""
    found = [NEXT[source] for text in blind if (source := text.split(":")[0].split(" ")[0]) in NEXT]
    return tuple(dict.fromkeys(found)) or (STACKS,)
