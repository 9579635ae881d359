"""The JSON object of `run --json` and `show --json`: public keys, bounded texts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from runbook.model.answer import Cleanup, RunAnswer, StepRow, Transcript
from runbook.model.event import AnyEvent, StepEnded
from runbook.render.story import Story, tell

TEXT_CAP = 2048
OBJECT_CAP = 32 * 1024
RESULT_HINT = "in events.jsonl"


def summary(events: Iterable[AnyEvent], folder: str, files: dict[str, str | None]) -> dict[str, Any]:
    """The object for a run. `files` maps markdown and html to their paths, null where there is none."""
    story = tell(events)
    closing = story.closing
    header = story.header
    deciding = story.deciding()
    answer = RunAnswer(
        run=header.run if header else None,
        playbook=header.playbook if header else None,
        state=story.state,
        verdict=closing.verdict if closing else None,
        kind=closing.kind if closing else None,
        exit_code=closing.exit_code if closing else None,
        reason=closing.reason if closing else "",
        steps=[_step(step.end) for step in story.steps if step.end is not None],
        findings=story.findings,
        cleanup=Cleanup(status=story.ended.cleanup if story.ended else "none"),  # type: ignore[arg-type]
        left_behind=closing.left_behind if closing else [],
        next=closing.next if closing else [],
        transcript=Transcript(dir=folder, events=f"{folder}/events.jsonl", markdown=files.get("markdown"), html=files.get("html")),
        diagnosis=deciding.end.diagnosis or UNSET if deciding and deciding.end else UNSET,
        expires=_expires(story),
    )
    return bounded(cut(msgspec.to_builtins(answer)))


def _expires(story: Story) -> float | UnsetType:
    if story.ended is not None:
        return UNSET if story.ended.kept_until is None else story.ended.kept_until
    return story.suspended.expires if story.suspended is not None else UNSET


def _step(end: StepEnded) -> StepRow:
    return StepRow(
        id=end.step,
        type=end.type,
        host=end.host,
        status=end.status,  # type: ignore[arg-type]
        verdict=end.verdict,
        seconds=round(end.seconds, 3),
        kind=end.kind or UNSET,
        reason=end.reason or UNSET,
        item=UNSET if end.item is None else end.item,
        ignored=end.ignored or UNSET,
        attempt=end.attempt if end.attempt > 1 else UNSET,
        part=end.part if end.part != "main" else UNSET,  # type: ignore[arg-type]
    )


def cut(value: Any, cap: int = TEXT_CAP) -> Any:
    """The same data with each text at most `cap` bytes; a cut one says where the whole is."""
    if isinstance(value, str):
        data = value.encode()
        return value if len(data) <= cap else data[: cap - 40].decode("utf-8", "ignore") + f" … [cut, whole {RESULT_HINT}]"
    if isinstance(value, dict):
        return {key: cut(item, cap) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cut(item, cap) for item in value]
    return value


def bounded(answer: dict[str, Any]) -> dict[str, Any]:
    """At most 32 KB: passed steps go first, then findings, then evidence; `cut` names what went and its file."""
    gone: list[str] = list(answer.get("cut", ()))
    order = (
        ("steps that passed", lambda a: a.update(steps=[s for s in a["steps"] if s["verdict"] != "passed"])),
        ("findings", lambda a: a.update(findings=a["findings"][:5])),
        ("diagnosis.evidence", lambda a: a.get("diagnosis", {}).update(evidence=a.get("diagnosis", {}).get("evidence", [])[:5])),
        ("steps", lambda a: a.update(steps=a["steps"][-5:])),
        ("left_behind", lambda a: a.update(left_behind=a["left_behind"][:10])),
        ("next", lambda a: a.update(next=a["next"][:10])),
        ("diagnosis", lambda a: a.pop("diagnosis", None)),
        ("posts", lambda a: a.pop("posts", None)),
    )
    for name, drop in order:
        if printed_bytes(answer) <= OBJECT_CAP - 512:
            break
        drop(answer)
        gone.append(f"{name} ({RESULT_HINT})")
    if gone:
        answer["cut"] = gone
    return answer if printed_bytes(answer) <= OBJECT_CAP else cut(answer, TEXT_CAP // 8)


def printed_bytes(value: Any) -> int:
    """How long data is as the commands print it."""
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def running(story: Story) -> dict[str, Any]:
    """Where a run in progress stands: its step, phase and what moved last."""
    step = next(iter(story.running()), None)
    moved = step.moved if step else None
    return {
        "step": step.start.step if step and step.start else None,
        "phase": moved.phase if moved else None,
        "moved": moved.text if moved else "",
    }
