"""`runbook judge`: the same samples under the same rules give the same verdict; another threshold may give another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runbook.cli.main import exit_code
from runbook.diagnose.judge import judge
from runbook.engine.memory import Memory
from runbook.engine.thread_rows import Packer
from runbook.model.event import SampleTaken, WaitBegan, WaitEnded
from runbook.model.profile import Profile
from runbook.model.question import Question
from runbook.model.sample import Sample
from runbook.model.units import enc_hook
from tests.cli.recorded import events, record
from tests.diagnose.stories import GENERIC, SGLANG, T0, WEIGHTS, Story, process, shard


def wait_of(samples: list[Sample], profile: Profile, question: Question, ends: str) -> list[Any]:
    """The events of a wait, as the loop writes them."""
    memory, packer = Memory(), Packer()
    written = [settled for sample in samples for settled in memory.add(sample)] + memory.rest()
    asked = msgspec.structs.replace(question, final=bool(ends))
    answer = judge(memory.view(), profile, asked, samples[-1].t)
    assert answer is not None
    plain = msgspec.to_builtins(profile, enc_hook=enc_hook)
    made: list[Any] = [WaitBegan(step="up", host="gpu", question=question, profile=plain, t=samples[0].t)]
    for sample in written:
        packed, gone = packer.pack(sample)
        made.append(SampleTaken(step="up", sample=packed, gone=gone, t=sample.t))
    ended = WaitEnded(
        step="up", host="gpu", verdict=answer.verdict, kind=answer.kind, rule=answer.rule, ends=ends, now=samples[-1].t, t=samples[-1].t
    )
    return [*made, ended]


@pytest.fixture
def slow_run(own_state: Path) -> Path:
    """A load that was still moving when its box ended, in a run of its own."""
    story = Story().at(0, log=WEIGHTS)
    for step in range(1, 12):
        story.at(10 * step, log=shard(step))
    question = Question(about="healthy", since=T0, box_s=110.0)
    made = events(verdict="slow")
    return record(
        own_state / "runbook" / "runs" / "20300317-010000-aaaa", [*made[:3], *wait_of(story.samples, SGLANG, question, "box"), *made[3:]]
    )


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = exit_code(["judge", *argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_the_record_gives_the_verdict_again(slow_run, capsys):
    for name in ("last", str(slow_run), str(slow_run / "events.jsonl")):
        code, answer = told(capsys, name)
        assert code == 0 and answer["same"] is True
        (row,) = answer["waits"]
        assert row["recorded"] == {"verdict": "slow", "kind": "on_track", "rule": "slow", "ends": "box"}
        assert (row["derived"]["verdict"], row["derived"]["rule"], row["same"]) == ("slow", "slow", True)


def test_the_trail_ends_with_the_rule_that_fired(slow_run, capsys):
    _, answer = told(capsys, "last", "--rules")
    rules = answer["waits"][0]["rules"]
    assert len(rules) > 5 and [row["fired"] for row in rules] == [False] * (len(rules) - 1) + [True]
    assert rules[-1]["rule"] == "slow"
    assert exit_code(["judge", "last", "--rules"]) == 0
    out = capsys.readouterr().out
    assert "the same" in out and "fired slow" in out and all(row["rule"] in out for row in rules)


def test_a_verdict_that_comes_out_otherwise_is_told_with_exit_1(slow_run, capsys):
    """As after a change of the rules: the record says hung, and the samples do not."""
    journal = slow_run / "events.jsonl"
    lines = journal.read_text().splitlines()
    journal.write_text(
        "\n".join(line.replace('"verdict":"slow"', '"verdict":"hung"') if '"wait_ended"' in line else line for line in lines) + "\n"
    )
    code, answer = told(capsys, "last")
    assert code == 1 and answer["same"] is False and answer["waits"][0]["same"] is False
    assert exit_code(["judge", "last"]) == 1
    assert "CHANGED" in capsys.readouterr().out


def test_another_profile_gives_another_verdict(own_state, tmp_path, capsys):
    """The ready mark of a copy: with it, equal answers are a wrong check at once."""
    from tests.diagnose.stories import answer as check

    story = Story(GENERIC)
    for step in range(8):
        story.at(
            2 * step, log="serving now\n" if step == 0 else "", check=check(404), processes=[process(state="R", rss=10**8 + 10**7 * step)]
        )
    question = Question(about="healthy", since=T0, box_s=14.0)
    made = events(verdict="slow")
    record(
        own_state / "runbook" / "runs" / "20300317-010000-bbbb", [*made[:3], *wait_of(story.samples, GENERIC, question, "box"), *made[3:]]
    )
    assert told(capsys, "last")[0] == 0
    copy = tmp_path / "copy.yaml"
    copy.write_text("profile: copy\nextends: generic\nready: serving now\n")
    code, answer = told(capsys, "last", "--profile", str(copy))
    assert code == 1
    assert answer["waits"][0]["derived"]["verdict"] == "wrong_check" != answer["waits"][0]["recorded"]["verdict"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("last", "--step", "nope"), "its waits are of: up"),
        (("last", "--profile", "/nope.yaml"), "/nope.yaml"),
        (("no-such-run",), "no run `no-such-run`"),
        (("",), "the name of the run is empty"),
    ],
)
def test_what_cannot_be_judged_is_a_usage_error(slow_run, capsys, argv, said):
    code, answer = told(capsys, *argv)
    assert code == 2 and said in answer["diagnostics"][0]["summary"]


def test_a_journal_without_waits_says_so(own_state, capsys):
    record(own_state / "runbook" / "runs" / "20300317-010000-cccc", events())
    code, answer = told(capsys, "last")
    assert code == 2 and "no wait" in answer["diagnostics"][0]["summary"]


def test_a_torn_journal_is_judged_by_what_is_left(slow_run, capsys):
    journal = slow_run / "events.jsonl"
    whole = journal.read_bytes()
    end = whole.index(b'{"event":"wait_ended"')
    journal.write_bytes(whole[: end - 40])
    code, answer = told(capsys, "last")
    assert code == 0
    assert answer["waits"][0]["recorded"] is None and answer["waits"][0]["derived"]["verdict"] == "slow"
