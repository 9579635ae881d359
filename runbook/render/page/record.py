"""Everything else that a reader may want: probe hits, changes, all steps, environment, findings, files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from runbook.model.event import StepEnded
from runbook.model.units import format_duration, format_size
from runbook.render.page.answer import tone, word
from runbook.render.page.clock import at, day
from runbook.render.page.markup import Markup, details, join, link, listing, mappings, plain, pre, prose, table, tag, text
from runbook.render.page.observed import Observed
from runbook.render.story import StepStory, Story

MOST_HITS = 60
OPEN_HITS = 8
MOST_TABLES = 8
MOST_DIFFS = 8
DIFF_BYTES = 20_000
MOST_STEPS = 400
MOST_ROWS = 200
PLAYBOOK_BYTES = 60_000
OWN = ("time", "rank", "pid", "probe", "seq", "process_start")
STATISTICS = ("mean", "std", "min", "max", "nan", "inf")


def ends(story: Story, kind: str) -> Iterator[StepEnded]:
    """The ends of all steps of a type."""
    return (step.end for step in story.steps if step.end is not None and step.end.type == kind)


def probes(story: Story, most: int = MOST_HITS) -> Markup:
    """What each expect_probe found: the outcome, then its hits as a table, or what excludes the other explanations of a silence."""
    parts = []
    for end in list(ends(story, "expect_probe"))[:MOST_TABLES]:
        hits = mappings(end.result.get("hits"))
        parts.append(tag("p", tag("code", text(end.step, 80)), " ", word(end.verdict), " ", prose(end.reason, 600)))
        if hits:
            shown = list(dict.fromkeys(key for hit in hits[:most] for key in hit if key not in OWN))[:8]
            rows = [_hit(hit, shown) for hit in hits[:most]]
            head = ("time", "rank", "pid", *(text(name, 80) for name in shown))
            parts.append(table(head, rows[:OPEN_HITS], caption=f"Hits of {end.step[:80]}"))
            if rows[OPEN_HITS:]:
                more = table(head, rows[OPEN_HITS:], caption=f"More hits of {end.step[:80]}")
                parts.append(details(f"{len(rows) - OPEN_HITS} hits after these", more))
        if len(hits) > most:
            parts.append(tag("p", f"and {len(hits) - most} more hits, in events.jsonl", class_="soft"))
        excluded = [(text(row.get("explanation"), 200), text(row.get("by"), 300)) for row in mappings(end.result.get("excluded"))]
        if excluded:
            what = table(("explanation", "excluded by"), excluded[:MOST_HITS], caption=f"Other explanations for {end.step[:80]}")
            parts.append(details("what excludes each other explanation", what))
    return join(parts)


def _hit(hit: dict[str, Any], shown: Sequence[str]) -> tuple[object, ...]:
    t = hit.get("time")
    clock = at(t) + f".{int(t % 1 * 1000):03d}" if isinstance(t, float) and 0 < t < 1e11 else plain(t)
    return clock, text(hit.get("rank"), 20), text(hit.get("pid"), 20), *(value(hit.get(name)) for name in shown)


def value(shown: object) -> Markup:
    """A value that a probe wrote down: of a tensor its shape and type, then its figures."""
    if not isinstance(shown, dict) or not isinstance(shown.get("shape"), list):
        return text(shown, 300)
    shape = " × ".join(map(str, shown["shape"][:12])) or "scalar"
    where = ", ".join(str(shown[key]) for key in ("dtype", "device") if shown.get(key))
    figures = ", ".join(f"{key} {plain(_short(shown[key]))}" for key in STATISTICS if shown.get(key) not in (None, 0))
    return join(
        [tag("strong", text(f"[{shape}]", 120)), " ", text(where, 60), tag("br") if figures else None, tag("small", text(figures, 300))]
    )


def _short(number: object) -> object:
    return float(f"{number:.4g}") if isinstance(number, float) else number


def changes(story: Story) -> Markup:
    """The diff of each patch."""
    parts = []
    for end in list(ends(story, "patch"))[:MOST_DIFFS]:
        if isinstance(end.result.get("diff"), str) and end.result["diff"]:
            summary = join([tag("code", text(end.step, 80)), " ", text(end.result.get("path"), 400)])
            parts.append(details(summary, diff(end.result["diff"])))
    return join(parts)


def diff(changed: str) -> Markup:
    """A unified diff; lines that came and went are told by their sign, the colour only helps."""
    marked, left = [], DIFF_BYTES
    for line in changed.splitlines():
        shown = text(line, 600)
        name = "b" if line.startswith(("+++", "---", "@@")) else "ins" if line.startswith("+") else "del" if line.startswith("-") else None
        marked.append(tag(name, shown) if name else shown)
        left -= len(marked[-1].encode()) + 1
        if left < 0:
            marked.append(Markup("… the rest is in events.jsonl"))
            break
    return tag("pre", tag("code", Markup("\n".join(marked))), class_="diff", tabindex="0")


def steps(story: Story, *, passed: bool = True) -> Markup:
    """All steps with bars on the run's own time; without `passed` only those that did not pass."""
    begin = story.header.t if story.header else min((s.start.t for s in story.steps if s.start), default=0.0)
    span = max(story.last_t - begin, 0.001)
    chosen = [(number, step) for number, step in enumerate(story.steps, 1) if passed or _verdict(step) != "passed"]
    shown = _ends_of(chosen)
    rows = [_step_row(number, step, begin, span) for number, step in shown]
    head = ("#", "step", "type", "host", "verdict", "took", "when", "what")
    left = len(story.steps) - len(shown)
    note = tag("p", f"{left} steps are left out here; events.jsonl has them", class_="soft") if left else None
    return join([table(head, rows, caption="All steps", class_="steps"), note]) if rows else Markup()


def _ends_of(chosen: list[tuple[int, StepStory]]) -> list[tuple[int, StepStory]]:
    """At most MOST_STEPS of them: the first and the last ones, and in between those that did not pass."""
    if len(chosen) <= MOST_STEPS:
        return chosen
    third = MOST_STEPS // 3
    inner = [pair for pair in chosen[third:-third] if _verdict(pair[1]) != "passed"]
    return [*chosen[:third], *inner[:third], *chosen[-third:]]


def _verdict(step: StepStory) -> str:
    return (step.end.verdict or step.end.status) if step.end else "running"


def _step_row(number: int, step: StepStory, begin: float, span: float) -> tuple[object, ...]:
    start, end = step.start, step.end
    one = end or start
    assert one is not None, "a story has no step without a start and an end"
    at_s = (start.t if start else end.t - end.seconds if end else begin) - begin
    took = end.seconds if end else span - at_s
    left = min(99.5, max(0.0, at_s / span * 100))
    style = f"left:{left:.2f}%;width:{min(100 - left, max(0.0, took / span * 100)):.2f}%"
    bar = tag("span", tag("i", style=style, class_=tone(_verdict(step))), class_="bar", aria_hidden="true")
    part = f" [{one.part}]" if one.part != "main" else ""
    item = f" item {one.item + 1}" if one.item is not None else ""
    attempt = f" attempt {one.attempt}" if one.attempt > 1 else ""
    name = join([link(f"e{one.n}", tag("code", text(one.step, 100))), text(part + item + attempt)])
    verdict = word(_verdict(step), end.kind if end else None)
    ignored = " (ignored)" if end and end.ignored else " (rescued)" if end and end.rescued else ""
    reason = prose(end.reason if end else "", 240)
    took_text = format_duration(took) if end else "–"
    return number, name, text(one.type, 40), text(one.host, 80), join([verdict, ignored]), took_text, bar, reason


def environment(story: Story, observed: Observed) -> Markup:
    """Targets, GPUs, launches with their versions, the controller: what a maintainer asks back for."""
    parts: list[Markup | None] = [_targets(story)]
    gpus = _gpus(observed)
    if gpus:
        parts.append(table(("host", "GPUs", "name", "memory"), gpus[:MOST_ROWS], caption="GPUs"))
    for end in list(ends(story, "launch"))[:MOST_TABLES]:
        parts.append(_launch(end))
    if story.header:
        header = story.header
        who = " ".join(f"{key} {header.controller[key]}" for key in ("user", "host", "pid") if key in header.controller)
        rows = [
            ("runbook", text(header.version, 60)),
            ("playbook", join([tag("code", text(header.playbook, 300)), text(f" sha256 {header.playbook_sha256[:12]}", 60)])),
            ("command", tag("code", text(" ".join(header.argv), 600)) if header.argv else "–"),
            ("overrides", tag("code", text(header.overrides, 1_000)) if header.overrides else "–"),
            ("secrets", text(", ".join(header.secrets), 400) if header.secrets else "–"),
            ("masked", text(story.masks or "–", 600)),
            ("controller", text(who or "–", 200)),
            ("started", day(header.t)),
        ]
        parts.append(table(("", ""), rows, caption="The run", class_="known"))
    return join(parts)


def _gpus(observed: Observed) -> list[tuple[object, ...]]:
    """The GPUs of each host; equal ones stand in one row."""
    rows: list[tuple[object, ...]] = []
    for host, known in observed.gpu_names.items():
        equal: dict[tuple[str, int], list[int]] = {}
        for index, kind in sorted(known.items()):
            equal.setdefault(kind, []).append(index)
        rows += [
            (text(host, 80), text(", ".join(map(str, indexes)), 200), text(name, 120), format_size(total))
            for (name, total), indexes in equal.items()
        ]
    return rows


def _targets(story: Story) -> Markup | None:
    rows = []
    for name, host in list(story.hosts.items())[:MOST_ROWS]:
        facts = host.facts
        named = (text(facts.get(key), 200) for key in ("hostname", "user", "python_version", "cpus"))
        offset = facts.get("clock_offset_s")
        skew = f"{offset * 1000:+.0f}ms" if isinstance(offset, float) else "–"
        rows.append((text(name, 80), *named, skew, text(host.address, 200)))
    return table(("target", "host", "user", "python", "cpus", "clock", "address"), rows, caption="Targets") if rows else None


def _launch(end: StepEnded) -> Markup:
    parts: list[Markup | None] = [tag("h3", tag("code", text(end.step, 80)), " was started as")]
    if isinstance(end.result.get("argv"), list):
        parts.append(pre(" ".join(map(str, end.result["argv"])), 4_000))
    known: list[tuple[object, ...]] = []
    for key, between in (("env", "="), ("versions", " ")):
        found = end.result.get(key)
        if isinstance(found, dict) and found and "~unknown" not in found:
            pairs = (tag("code", text(f"{name}{between}{plain(shown)}", 300)) for name, shown in list(found.items())[:60])
            known.append((key, join(part for pair in pairs for part in (pair, " "))))
    for key in ("pid", "port", "interpreter", "log"):
        if end.result.get(key) is not None:
            known.append((key, tag("code", text(end.result[key], 400))))
    parts.append(table(("", ""), known, caption=f"Launch of {end.step[:80]}", class_="known") if known else None)
    return join(parts) if len(parts) > 2 or known else Markup()


def playbook(story: Story) -> Markup:
    """The playbook's text as it ran, and the texts of what it includes."""
    if story.header is None or not story.header.playbook_text:
        return Markup()
    texts = {story.header.playbook: story.header.playbook_text, **story.header.files}
    return join(details(text(file, 300), pre(content, PLAYBOOK_BYTES // len(texts))) for file, content in texts.items())


def findings(story: Story) -> Markup:
    """What was noticed on the way."""
    rows = [(tag("code", text(one.code, 80)), prose(one.text, 600), text(one.step or "", 80)) for one in story.findings[:MOST_ROWS]]
    more = len(story.findings) - len(rows)
    note = tag("p", f"and {more} more, in events.jsonl", class_="soft") if more > 0 else None
    return join([table(("code", "finding", "step"), rows, caption="Findings"), note]) if rows else Markup()


def files(story: Story) -> Markup:
    """The files of the run folder that belong to this page; the links work while the page lies beside them."""
    rows: list[Iterable[object]] = [(_file("events.jsonl"), "", "every event; all else is made from it")]
    rows += [(_file(saved.file), format_size(saved.bytes), prose(saved.about, 300)) for saved in story.evidence[:MOST_ROWS]]
    more = len(story.evidence) - MOST_ROWS
    note = listing([f"and {more} more files, in events.jsonl"]) if more > 0 else None
    return join([table(("file", "size", "what"), rows, caption="Files"), note])


def _file(name: str) -> Markup:
    """A link below the page's own folder; a name that leads elsewhere is only shown."""
    shown = tag("code", text(name, 300))
    inside = name and not name.startswith("/") and ".." not in name.split("/") and len(name) < 300
    return tag("a", shown, href="./" + quote(name.encode("utf-8", "surrogatepass"))) if inside else shown
