"""What a run was, as flat tables that can be compared: environment, versions, flags, durations, values, log lines."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from runbook.model.event import ActionStarted, AnyEvent, HostConnected, RunStarted, SampleTaken, StepEnded
from runbook.model.sample import Seen
from runbook.render.inert import ESCAPES, one_line
from runbook.render.junit import last_attempts, title
from runbook.render.phases import phase_spans
from runbook.render.story import Story, tell

NUMBER = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|\d+(?:[.:]\d+)*")
MOST_LINES = 50_000
"""Different log lines that are remembered."""
OURS = '{"runbook": '
"""How a line of our own probes begins: what they saw is compared as values."""
LONGEST = 500
HOST_FACTS = ("hostname", "user", "python_version", "cpus", "kernel", "driver", "cuda")

Table = dict[str, str]


class Facts(NamedTuple):
    """One run. `seconds` are durations; `lines` maps a log line with its numbers masked to its first wording."""

    run: str
    name: str
    started: float | None
    verdict: str
    kind: str
    reason: str
    tables: dict[str, Table]
    seconds: dict[str, float]
    lines: dict[str, str]
    skipped_lines: int
    findings: Table


def facts(events: Iterable[AnyEvent]) -> Facts:
    """Read a run once."""
    seen = list(events)
    story = tell(seen)
    header, closing = story.header, story.closing
    lines, skipped = _log_lines(seen)
    seconds = dict(_durations(story))
    return Facts(
        run=one_line(header.run, LONGEST) if header else "",
        name=one_line(header.name or header.playbook, LONGEST) if header else "",
        started=header.t if header else None,
        verdict=one_line(closing.verdict, LONGEST) if closing else story.state,
        kind=one_line(closing.kind or "", LONGEST) if closing else "",
        reason=one_line(closing.reason) if closing else "",
        tables={
            "environment": dict(_environment(seen, story)),
            "versions": dict(_versions(story)),
            "variables": dict(_variables(header)),
            "launch": dict(_launches(seen, story)),
            "probes": dict(_probes(story)),
            "metrics": dict(_metrics(story)),
        },
        seconds=seconds,
        lines=lines,
        skipped_lines=skipped,
        findings={one_line(item.code, LONGEST): one_line(item.text, LONGEST) for item in story.findings},
    )


def _environment(events: list[AnyEvent], story: Story) -> Iterator[tuple[str, str]]:
    for event in events:
        if isinstance(event, HostConnected):
            for key in HOST_FACTS:
                if event.facts.get(key) not in (None, ""):
                    yield f"{event.host} {key}", one_line(event.facts[key], LONGEST)
        if isinstance(event, SampleTaken) and isinstance(event.sample.gpus, Seen):
            for gpu in event.sample.gpus.value:
                yield f"{event.sample.host} GPU {gpu.index}", one_line(f"{gpu.name}, {gpu.total} bytes", LONGEST)
    if story.header:
        for role, targets in story.header.targets.items():
            yield f"role {role}", one_line(", ".join(str(target.get("target", "")) for target in targets), LONGEST)


def _versions(story: Story) -> Iterator[tuple[str, str]]:
    if story.header:
        yield "runbook", one_line(story.header.version, LONGEST)
        yield "playbook sha256", one_line(story.header.playbook_sha256[:12], LONGEST)
    for end in _ends(story, "launch"):
        versions = end.result.get("versions")
        if isinstance(versions, dict) and "~unknown" not in versions:
            yield from ((one_line(f"{end.step} {name}", LONGEST), one_line(value, LONGEST)) for name, value in versions.items())
    for end in _ends(story, "wait_healthy"):
        info = end.result.get("server_info")
        if isinstance(info, dict) and "version" in info:
            yield one_line(f"{end.step} server", LONGEST), one_line(info["version"], LONGEST)


def _variables(header: RunStarted | None) -> Iterator[tuple[str, str]]:
    for name, value in ({**header.vars, **header.overrides} if header else {}).items():
        yield one_line(name, LONGEST), one_line(value, LONGEST)


def _launches(events: list[AnyEvent], story: Story) -> Iterator[tuple[str, str]]:
    """Each flag by itself: so that an order or one new flag is not a whole new command line."""
    argv = {event.step: event.detail.get("argv") for event in events if isinstance(event, ActionStarted) and event.action == "launch"}
    for end in _ends(story, "launch"):
        told = end.result.get("argv")
        for name, value in flags(told if isinstance(told, list) and told else argv.get(end.step)):
            yield one_line(f"{end.step} {name}", LONGEST), one_line(value, LONGEST)
        env = end.result.get("env")
        for name, value in (env if isinstance(env, dict) else {}).items():
            yield one_line(f"{end.step} env {name}", LONGEST), one_line(value, LONGEST)


def flags(argv: Any) -> Iterator[tuple[str, str]]:
    """`--a 1 --b=2 --c x y` as (--a, 1), (--b, 2), (--c, x), (argument 1, y). A shell line is split into words first."""
    words = [str(word) for word in argv] if isinstance(argv, list) else []
    if len(words) == 1 and " " in words[0]:
        words = _split(words[0])
    free = 0
    place = 0
    while place < len(words):
        word, following = words[place], words[place + 1] if place + 1 < len(words) else None
        place += 1
        if not word.startswith("-") or word == "-":
            yield f"argument {free}", word
            free += 1
        elif "=" in word:
            name, _, value = word.partition("=")
            yield name, value
        elif following is not None and (not following.startswith("-") or re.fullmatch(r"-\d[\d.]*", following)):
            yield word, following
            place += 1
        else:
            yield word, "set"


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()  # an open quote


def _probes(story: Story) -> Iterator[tuple[str, str]]:
    """Of each shown tensor its widths, types, mean and NaN count over all hits; of other values the few that there were."""
    for end in _ends(story, "expect_probe"):
        if "outcome" in end.result:
            yield one_line(f"{end.step} outcome", LONGEST), one_line(end.result["outcome"], LONGEST)
        hits = end.result.get("hits")
        hits = [hit for hit in hits if isinstance(hit, dict)] if isinstance(hits, list) else []
        yield one_line(f"{end.step} hits", LONGEST), str(len(hits))
        own = {"probe", "pid", "process_start", "rank", "seq", "time"}
        for name in sorted({str(key) for hit in hits for key in hit} - own):
            values = [hit[name] for hit in hits if name in hit]
            yield from ((one_line(f"{end.step} {name} {part}", LONGEST), value) for part, value in _shown(values))


def _shown(values: list[Any]) -> Iterator[tuple[str, str]]:
    tensors = [value for value in values if isinstance(value, dict) and isinstance(value.get("shape"), list)]
    if not tensors:
        yield "value", one_line(", ".join(sorted({one_line(value, 80) for value in values})), LONGEST)
        return
    yield "width", _set(tensor["shape"][-1] if tensor["shape"] else "scalar" for tensor in tensors)
    for key in ("dtype", "device"):
        yield key, _set(tensor[key] for tensor in tensors if key in tensor)
    for key in ("mean", "std"):
        numbers = [tensor[key] for tensor in tensors if _is_number(tensor.get(key))]
        if numbers:
            yield key, f"{sum(numbers) / len(numbers):.4g}"
    yield "NaN", str(sum(tensor["nan"] for tensor in tensors if _is_number(tensor.get("nan"))))


def _set(values: Iterable[Any]) -> str:
    return one_line(", ".join(sorted({one_line(value, 80) for value in values})), LONGEST)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _metrics(story: Story) -> Iterator[tuple[str, str]]:
    for end in _ends(story, "request"):
        metrics = end.result.get("metrics")
        named = {**{key: end.result.get(key) for key in ("http_status", "latency", "ttft", "tokens", "tokens_per_s")}}
        named |= metrics if isinstance(metrics, dict) else {}
        for name, value in named.items():
            if _is_number(value):
                yield one_line(f"{end.step} {name}", LONGEST), f"{value:.4g}" if isinstance(value, float) else str(value)


def _durations(story: Story) -> Iterator[tuple[str, float]]:
    for step in last_attempts(story):
        if step.end is None:
            continue
        yield one_line(f"step {title(step)}", LONGEST), step.end.seconds
        told = step.end.result.get("phases")
        phases = [phase for phase in told if isinstance(phase, dict)] if isinstance(told, list) else []
        for phase in phases:
            if _is_number(phase.get("seconds")):
                yield one_line(f"phase {title(step)} {phase.get('name')}", LONGEST), phase["seconds"]
        for span in [] if phases else phase_spans(step, story.last_t):
            yield one_line(f"phase {span.lane} {span.phase.phase}", LONGEST), span.end - span.phase.t


def _ends(story: Story, kind: str) -> Iterator[StepEnded]:
    for step in last_attempts(story):
        if step.end is not None and step.end.type == kind:
            yield step.end


def _log_lines(events: list[AnyEvent]) -> tuple[dict[str, str], int]:
    """Each different line of the servers' logs, numbers masked; and how many lines the samples left out."""
    found: dict[str, str] = {}
    skipped = 0
    for event in events:
        if isinstance(event, SampleTaken) and isinstance(event.sample.log, Seen):
            skipped += event.sample.log.value.skipped
            for line in event.sample.log.value.lines:
                key = "" if OURS in line else masked(line)
                if key and len(found) < MOST_LINES:
                    found.setdefault(key, one_line(line, LONGEST))
    return found, skipped


def masked(line: str) -> str:
    """The line with its numbers masked: two runs never log the same times, pids and addresses."""
    return NUMBER.sub("#", ESCAPES.sub("", line[:4_000])).strip()
