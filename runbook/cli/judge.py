"""`runbook judge`: derive the verdicts of a recorded run again, from its samples alone."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path
from typing import Any

import click
import msgspec

from runbook.cli.report import find
from runbook.engine.journal import JournalError
from runbook.engine.recording import load_recording
from runbook.engine.replay import Replayed, judge_again, waits
from runbook.model.event import RunStarted
from runbook.model.profile import Profile

CHANGED = 1


@click.command()
@click.argument("run")
@click.option("--rules", is_flag=True, help="Show each rule that was looked at, and why it fired or did not.")
@click.option("--step", help="Only the waits of this step.")
@click.option("--profile", "profile_file", metavar="FILE", help="Judge by this profile, as a copy with another threshold.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(run: str, rules: bool, step: str | None, profile_file: str | None, as_json: bool) -> int:
    """Judge each wait of RUN again: an id, its beginning, `last`, a folder, or an events.jsonl.

    By the same rules and profile the same samples give the same verdict. Exit 0: all are as recorded; 1: one differs.
    """
    folder, file = find(run)
    try:
        events = load_recording(folder, file)
    except JournalError as problem:
        raise click.UsageError(f"{run}: {problem}") from problem
    profile = _read(profile_file) if profile_file else None
    found = [wait for wait in waits(events) if step in (None, wait.step)]
    if not found:
        known = ", ".join(dict.fromkeys(wait.step for wait in waits(events)))
        hint = f"its waits are of: {known}" if known else "it waited for nothing, or was recorded by an older version"
        raise click.UsageError(f"{run} holds no wait{f' of step `{step}`' if step else ''} that can be judged again: {hint}")
    again = [judge_again(wait, profile) for wait in found]
    if as_json:
        header = next((event for event in events if isinstance(event, RunStarted)), None)
        click.echo(json.dumps(_object(again, header.run if header else None, rules), ensure_ascii=False))
    else:
        width = min(140, shutil.get_terminal_size((100, 24)).columns)
        for one in again:
            click.echo("\n".join(_lines(one, rules, width)))
    return CHANGED if any(one.same is False for one in again) else 0


def _read(file: str) -> Profile:
    from runbook.cli.profiles import profiles
    from runbook.render.diagnostics import as_text

    try:
        data = Path(file).read_bytes()
    except OSError as problem:
        raise click.UsageError(f"--profile {file}: {problem.strerror}: name a profile's file") from problem
    profile, found = profiles().check(file, data)
    if profile is None:
        raise click.UsageError("the profile is not valid:\n" + as_text(found, {file: data.decode("utf-8", "replace")}))
    return profile


def _object(again: list[Replayed], run: str | None, rules: bool) -> dict[str, Any]:
    rows = []
    for one in again:
        ended = one.wait.ended
        recorded = None if ended is None else {"verdict": ended.verdict, "kind": ended.kind, "rule": ended.rule, "ends": ended.ends}
        row: dict[str, Any] = {
            "step": one.wait.step,
            "host": one.wait.host,
            "profile": one.wait.profile.profile,
            "samples": len(one.wait.samples),
            "recorded": recorded,
            "derived": msgspec.to_builtins(one.diagnosis),
            "certain": one.certain,
            "same": one.same,
        }
        rows.append({**row, "rules": msgspec.to_builtins(one.trail)} if rules else row)
    return {"run": run, "same": all(one.same is not False for one in again), "waits": rows}


def _lines(one: Replayed, rules: bool, width: int) -> list[str]:
    ended, derived = one.wait.ended, one.diagnosis
    word = {True: "the same", False: "CHANGED", None: "not comparable"}[one.same]
    told = _name(ended.verdict, ended.kind, ended.rule) if ended is not None else "nothing: the wait did not end in this journal"
    goes_on = "" if one.certain else "; not certain then: it would have gone on"
    lines = [
        f"{one.wait.step} on {one.wait.host}: {word}",
        f"  recorded: {told}",
        f"  derived:  {_name(derived.verdict, derived.kind, derived.rule)} from {len(one.wait.samples)} samples{goes_on}",
        *textwrap.wrap(derived.reason, width, initial_indent="  reason:   ", subsequent_indent="            "),
    ]
    if one.same is None and ended is not None:
        lines.insert(1, "  the step decided by itself, beside the rules")
    for trace in one.trail if rules else ():
        mark = "fired" if trace.fired else "  -  "
        lines += textwrap.wrap(f"{trace.rule}: {trace.why}", width, initial_indent=f"  {mark} ", subsequent_indent="          ")
    return lines


def _name(verdict: str, kind: str | None, rule: str) -> str:
    return f"{verdict}{'/' + kind if kind else ''} (rule {rule})"
