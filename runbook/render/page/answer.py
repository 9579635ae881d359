"""What the reader came for: the verdict and why, its evidence, the step that decided and its last lines. Never cut from a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runbook.model.event import StepEnded
from runbook.model.units import format_duration, format_size
from runbook.model.verdict import Culprit, Diagnosis, Evidence
from runbook.render.page.clock import at, day
from runbook.render.page.markup import Markup, details, join, link, listing, mappings, plain, pre, prose, table, tag, text
from runbook.render.page.observed import Observed, Server
from runbook.render.story import Story

TONES = {"passed": "good", "slow": "wait", "undecided": "wait", "unreachable": "wait", "interrupted": "none", "running": "none"}
SIGNS = {"good": "✓", "wait": "?", "none": "–", "bad": "✗", "slow": "…"}
HEADLINES = {
    "wrong_check": "Wrong check",
    "wrong_server": "Wrong server",
    "invalid_experiment": "Invalid experiment",
    "resource_held": "Resource held",
}
SHOWN_LINES = 12
MOST_LINES_BYTES = 30_000
MOST_ITEMS = 12
MOST_EVIDENCE = 40
CLAIM_VALUE = 300


def tone(verdict: str | None) -> str:
    """The class of a verdict: good, wait, none or bad."""
    return TONES.get(verdict or "none", "bad") if verdict else "none"


def word(verdict: str | None, kind: str | None = None) -> Markup:
    """A verdict as a small mark, told by its word and not by its colour alone."""
    return tag("span", text(verdict or "–", 60), f" / {kind}" if kind else None, class_=f"word {tone(verdict)}")


def banner(story: Story, observed: Observed) -> Markup:
    """Verdict, reason, where, since when, what to do next."""
    closing = story.closing
    verdict = closing.verdict if closing else "running"
    name = HEADLINES.get(verdict) or verdict.capitalize()
    small = [closing.kind or "" if closing else "", "suspended" if story.state == "suspended" else ""]
    title = tag(
        "h1",
        tag("span", SIGNS.get(verdict, SIGNS[tone(verdict)]) + " ", aria_hidden="true"),
        text(name, 100),
        tag("small", text(" · ".join(part for part in small if part), 200)) if any(small) else None,
    )
    reason = _reason(story)
    known = list(_facts(story, observed))
    facts = tag("dl", *(tag("div", tag("dt", key), tag("dd", value)) for key, value in known), class_="facts") if known else None
    return tag(
        "section",
        title,
        tag("p", prose(reason, 3_000), class_="why") if reason else None,
        _before(story),
        facts,
        tag("p", text(_small_print(story), 400), class_="small"),
        _next(story),
        class_=f"verdict {tone(verdict)}",
        aria_label="Verdict",
        id="verdict",
    )


def _reason(story: Story) -> str:
    """The deciding step's own reason where it is the only one: its name stands among the facts."""
    closing, step = story.closing, story.deciding()
    if closing is None:
        return "the run goes on"
    return step.end.reason if step and step.end and step.end.reason and closing.reason.endswith(step.end.reason) else closing.reason


def _before(story: Story) -> Markup | None:
    """What it was suspended as, of a run that has ended since."""
    if story.suspended is None or story.ended is None:
        return None
    return tag("p", prose(f"Before that it was suspended as {story.suspended.verdict}: {story.suspended.reason}", 2_000))


def _facts(story: Story, observed: Observed) -> Iterator[tuple[str, Markup]]:
    step = story.deciding()
    end = step.end if step else None
    diagnosis = end.diagnosis if end else None
    if end is not None:
        host = f" on {end.host}" if end.host else ""
        phase = f", phase {diagnosis.phase}" if diagnosis and diagnosis.phase else ""
        yield "Where", join([link("step", tag("code", text(end.step, 80))), text(f" ({end.type}){host}{phase}", 300)])
    since = _since(diagnosis, end, observed)
    if since:
        yield "Since", text(since, 300)
    if diagnosis and diagnosis.culprit:
        yield "Who", text(named(diagnosis.culprit), 300)
    if diagnosis and diagnosis.progress:
        moving = "; ".join(f"{name} {value}" for name, value in list(diagnosis.progress.items())[:6])
        yield "Moving", text(moving, 400)
    if diagnosis and diagnosis.eta_s is not None:
        yield "To go", text(f"about {format_duration(diagnosis.eta_s)} in this phase", 100)


def _small_print(story: Story) -> str:
    """The rest in a line: how certain, how long, exit code, what is left."""
    closing, header, step = story.closing, story.header, story.deciding()
    diagnosis = step.end.diagnosis if step and step.end else None
    parts = [f"{diagnosis.confidence} by rule {diagnosis.rule}"] if diagnosis and diagnosis.confidence else []
    if header:
        parts.append(f"took {format_duration(story.last_t - header.t)}")
    if closing:
        parts.append(f"exit code {closing.exit_code}")
    if story.ended:
        count = len(story.ended.left_behind)
        left = f"{count} thing{'s' if count != 1 else ''} left behind" if count else "nothing left behind"
        parts.append(left if story.ended.cleanup == "none" else f"{left}, cleanup {story.ended.cleanup}")
    return " · ".join(parts)


def _since(diagnosis: Diagnosis | None, end: StepEnded | None, observed: Observed) -> str:
    """When it began to be so, in the words that fit the verdict; empty when nobody saw."""
    if diagnosis is None or end is None:
        return ""
    if diagnosis.verdict in ("hung", "undecided") and diagnosis.quiet_s is not None:
        return f"nothing has moved since {at(end.t - diagnosis.quiet_s)} UTC, {format_duration(diagnosis.quiet_s)} before the verdict"
    server = _server_of(end, observed)
    if server is None:
        return ""
    if diagnosis.verdict == "crashed" and server.exit:
        t, exit = server.exit
        return f"it ended at {at(t)} UTC, {format_duration(exit.lived_s)} after its start"
    if diagnosis.verdict in ("wrong_check", "wrong_server"):
        last = server.checks[-1] if server.checks else None
        return f"it has answered {last.name} since {at(last.begin)} UTC" if last and last.tone != "none" else ""
    if diagnosis.verdict == "slow" and server.phases:
        last = server.phases[-1]
        return f"in phase {last.name} since {at(last.begin)} UTC, {format_duration(end.t - last.begin)} before the end of the box"
    return ""


def _server_of(end: StepEnded, observed: Observed) -> Server | None:
    """The server that a step watched; of a step that watched none, the newest one on its host."""
    mine = [server for server in observed.servers.values() if server.host == end.host]
    return observed.watched.get((end.step, end.host)) or (mine[-1] if mine else None)


def named(culprit: Culprit) -> str:
    """A process or rank, as people name it."""
    parts = [f"rank {culprit.rank}" if culprit.rank is not None else "", culprit.title, f"pid {culprit.pid}" if culprit.pid else ""]
    return ", ".join(part for part in (*parts, culprit.note) if part)


def _next(story: Story) -> Markup | None:
    closing = story.closing
    if closing is None:
        return None
    items = [prose(line, 500) for line in closing.next[:MOST_ITEMS]]
    left = [prose(line, 400) for line in closing.left_behind[:MOST_ITEMS]]
    more = len(closing.left_behind) - len(left)
    if more > 0:
        left.append(text(f"and {more} more, in events.jsonl"))
    if story.suspended and not story.ended:
        items.append(text(f"left as it is until {day(story.suspended.expires)}, then stopped and restored"))
    parts = [tag("h2", "Next"), listing(items)] if items else []
    if left:
        parts += [tag("h2", "Left behind"), listing(left)]
    return tag("div", *parts, class_="next") if parts else None


def evidence(story: Story, observed: Observed) -> Markup:
    """The observations that the verdict rests on, and what could not be seen."""
    step = story.deciding()
    diagnosis = step.end.diagnosis if step and step.end else None
    if diagnosis is None or step is None or step.end is None:
        return Markup()
    parts: list[Markup | None] = []
    plainly = [item for item in diagnosis.evidence if not is_stacks(item)]
    if plainly:
        rows = [_evidence_row(item, step.end, observed) for item in plainly[:MOST_EVIDENCE]]
        parts.append(table(("signal", "value", "points to", "seen in"), rows, caption="Evidence"))
        if len(plainly) > MOST_EVIDENCE:
            parts.append(tag("p", f"and {len(plainly) - MOST_EVIDENCE} more, in events.jsonl", class_="soft"))
    parts += [_stacks(item) for item in diagnosis.evidence if is_stacks(item)][:3]
    if diagnosis.blind:
        parts += [tag("h3", "Could not be seen"), listing(prose(line, 300) for line in diagnosis.blind[:MOST_ITEMS])]
    return join(parts)


def _evidence_row(item: Evidence, end: StepEnded, observed: Observed) -> tuple[object, ...]:
    over = f" over {format_duration(item.window_s)}" if item.window_s is not None else ""
    n = observed.event_at(end.t - item.window_s) if item.window_s is not None else None
    points = word(item.points_to) if item.points_to != "nothing" else ""
    where = join([link(f"e{n}", f"#{n}"), text("–"), link(f"e{end.n}", f"#{end.n}")]) if n is not None else link(f"e{end.n}", f"#{end.n}")
    return (
        tag("code", text(item.signal, 120)),
        join([text(_measured(item), 800), tag("span", over, class_="soft") if over else None]),
        points,
        where,
    )


def _measured(item: Evidence) -> str:
    """A value with its unit, as people write it."""
    number = isinstance(item.value, (int, float)) and not isinstance(item.value, bool)
    if number and item.unit == "B":
        return format_size(item.value)
    if number and item.unit == "s":
        return format_duration(item.value)
    return plain(item.value) + (f" {item.unit}" if item.unit else "")


def is_stacks(item: Evidence) -> bool:
    """Whether it is groups of equal stacks: a list of mappings with `frames`, and `ranks` or `pids`."""
    return isinstance(item.value, (list, tuple)) and bool(item.value) and all(isinstance(g, dict) and "frames" in g for g in item.value)


def _stacks(item: Evidence) -> Markup:
    groups = []
    for group in list(item.value)[:MOST_ITEMS]:
        who = ", ".join(
            f"{key} {', '.join(map(str, group[key]))}" for key in ("ranks", "pids") if isinstance(group.get(key), (list, tuple))
        )
        frames = group["frames"] if isinstance(group["frames"], (list, tuple)) else [group["frames"]]
        groups.append(details(text(who or "a group", 200), pre("\n".join(map(str, frames)), 4_000), open_=len(item.value) <= 3))
    return join([tag("h3", f"Stacks: {len(item.value)} groups"), *groups])


def step(story: Story, observed: Observed) -> Markup:
    """The step that decided: its reason, its claims, its last lines."""
    found = story.deciding()
    if found is None or found.end is None:
        return Markup()
    end = found.end
    box = f"of {format_duration(found.start.box_s)}" if found.start and found.start.box_s not in (None, float("inf")) else ""
    took = f"{end.type}{' on ' + end.host if end.host else ''}, {format_duration(end.seconds)} {box}".strip()
    name = f" – {found.start.name}" if found.start and found.start.name else ""
    lead = tag(
        "p", tag("code", text(end.step, 100)), text(f"{name} ({took}) "), word(end.verdict, end.kind), " ", link(f"e{end.n}", f"#{end.n}")
    )
    parts = [lead]
    if end.type == "assert":
        parts += [claim(one) for one in mappings(end.result.get("claims"))[:MOST_ITEMS] if one.get("outcome") != "true"]
    if isinstance(end.result.get("argv"), list):
        parts.append(pre(" ".join(map(str, end.result["argv"])), 2_000))
    for field in ("stderr", "stdout", "text"):
        if isinstance(end.result.get(field), str) and end.result[field].strip():
            parts += last_lines(field, end.result[field].splitlines(), end)
    server = _server_of(end, observed)
    if server is not None and server.tail and end.type != "assert":
        run = story.header.run if story.header else ""
        told = [line for line in server.tail if not (run and line.startswith('{"runbook": "' + run))]
        parts += last_lines(f"the log of {server.name}", told, end)
        if len(told) < len(server.tail):
            hidden = len(server.tail) - len(told)
            parts.append(tag("p", f"{hidden} line{'s' if hidden > 1 else ''} of our own probes not shown here", class_="soft"))
    return join(parts)


def last_lines(what: str, lines: list[str], end: StepEnded) -> Iterator[Markup]:
    """The newest lines, those that the reason quotes marked; the ones before them folded away."""
    older, newest = lines[-80:-SHOWN_LINES], lines[-SHOWN_LINES:]
    yield tag("h3", "Last lines of ", text(what, 200))
    if older:
        yield details(f"{len(older)} lines before", pre("\n".join(older), MOST_LINES_BYTES))
    each = MOST_LINES_BYTES // SHOWN_LINES
    shown = [tag("mark", text(line, each)) if _quoted(line, end) else text(line, each) for line in newest]
    yield tag("pre", tag("code", Markup("\n".join(shown))), tabindex="0")


def _quoted(line: str, end: StepEnded) -> bool:
    """Whether the reason or the evidence quotes the line, or its end: a log's own prefix is not quoted."""
    quotes = [str(item.value) for item in end.diagnosis.evidence if isinstance(item.value, str)] if end.diagnosis else []
    return any(len(quote) >= 12 and (quote.rstrip("…") in line) for quote in quotes)


def claim(one: dict[str, Any]) -> Markup:
    """A claim that does not hold: itself, why it matters, the values of its parts."""
    verb = "does not hold" if one.get("outcome") == "false" else "cannot be decided"
    note = f": {one['note']}" if one.get("note") else ""
    parts = [tag("p", tag("code", text(one.get("that"), 600)), f" {verb}", text(note, 400))]
    if one.get("because"):
        parts.append(tag("blockquote", prose(str(one["because"]), 800)))
    rows = [
        (tag("code", text(part.get("source"), 200)), tag("code", text(part.get("value"), CLAIM_VALUE)))
        for part in mappings(one.get("parts"))[:20]
    ]
    return join([*parts, table(("part", "value"), rows, caption="Values of the parts") if rows else None])
