"""Going on with a run whose controller died: what has ended is not run again, what was in flight is, or it is asked for."""

import msgspec
import pytest

from runbook.engine.execute import execute
from runbook.engine.journal import Journal, JournalError, load_events
from runbook.engine.redact import Mask
from runbook.engine.resume import past_of, resume
from runbook.engine.runtime import Options, Runtime
from runbook.hosts.base import Host
from runbook.model.clock import SystemClock
from runbook.model.event import ActionEnded, ActionStarted, Resumed, RunEnded, RunSuspended, StepEnded, StepStarted
from runbook.playbook.build import load_playbook
from tests.engine.play import FACTS, FAILURES, SAID, TABLE, Say, SilentTransport


class Send(Say, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step that must not be repeated by itself."""

    TYPE = "send"
    RESUME = "unknown"


STEPS = {**TABLE, "send": Send}


class Dies(BaseException):
    """Stands for kill -9: nothing behind it is carried out."""


def runtime(text, folder, first=0, die_at=None):
    """A runtime that dies when it would write the event for which `die_at` holds."""
    playbook, problems = load_playbook(text.encode(), "t.yaml", table=STEPS, profiles=["generic"])
    assert playbook is not None, problems
    journal = Journal(folder, SystemClock(), Mask({}), first=first)
    if die_at is not None:
        append = journal.append

        def dying(event):
            if die_at(event):
                raise Dies
            return append(event)

        journal.append = dying
    return Runtime(
        playbook=playbook,
        options=Options(run="r1", dir=str(folder)),
        journal=journal,
        table=STEPS,
        profile=lambda name: None,
        connect=lambda target, cancel, note: Host(target.target, target.target, SilentTransport(), FACTS, None),
        secrets={},
        environ={},
        clock=SystemClock(),
    )


def started(step, host="a"):
    return lambda event: isinstance(event, StepStarted) and event.step == step and event.host == host


def ended(step, **more):
    return lambda event: isinstance(event, StepEnded) and event.step == step and all(getattr(event, k) == v for k, v in more.items())


def dies(text, folder, at):
    """The steps that ran before the death."""
    SAID.clear()
    FAILURES.clear()
    with pytest.raises(Dies):
        execute(runtime(text, folder, die_at=at), lambda *_: None, {"pid": 1})
    return list(SAID)


def goes_on(text, folder, die_at=None, **how):
    """(last event, steps that ran after the resume)."""
    SAID.clear()
    events = load_events(folder)
    again = runtime(text, folder, len(events), die_at)
    last = resume(again, events, past_of(again.playbook, events, **how), lambda *_: None, {"pid": 2})
    return last, list(SAID)


PLAIN = """
runbook: 1
hosts: {h: a}
vars: {n: 0}
steps:
  - id: one
    say: {value: 5}
  - id: count
    set: {n: '${{ vars.n + 1 }}'}
  - block:
      - id: two
        say: {value: '${{ steps.one.value + vars.n }}'}
    always:
      - id: inner
        say: passed
  - assert: steps.two.value == 6
always:
  - id: last
    say: passed
"""
WHERE = {
    "before one": started("one"),
    "in one": ended("one"),
    "in count": ended("count"),
    "in two": ended("two"),
    "in inner": ended("inner"),
    "between": started("inner"),
    "before last": started("last"),
    "in last": ended("last"),
    "before the end": lambda event: isinstance(event, RunEnded),
}


@pytest.mark.parametrize("where", WHERE)
def test_wherever_it_dies_it_ends_as_it_would_have(where, tmp_path):
    before = dies(PLAIN, tmp_path, WHERE[where])
    last, after = goes_on(PLAIN, tmp_path)
    assert (last.verdict, last.cleanup) == ("passed", "passed")
    in_flight = [before[-1]] if where.startswith("in ") and where != "in count" else []
    assert [*before, *after] == [*before[: len(before) - len(in_flight)], *in_flight * 2, *after[len(in_flight) :]]
    whole = [("one", "a"), ("two", "a"), ("inner", "a"), ("last", "a")]
    assert sorted(set([*before, *after])) == sorted(whole) and len(before) + len(after) == 4 + len(in_flight)
    events = load_events(tmp_path)
    assert [event.n for event in events] == list(range(len(events)))
    starts = sum(isinstance(event, StepStarted) for event in events)
    assert starts == sum(isinstance(event, StepEnded) for event in events)
    assert last.seconds >= 0 and sum(isinstance(event, Resumed) for event in events) == 1


def test_a_resume_that_dies_is_resumed(tmp_path):
    dies(PLAIN, tmp_path, ended("one"))
    with pytest.raises(Dies):
        goes_on(PLAIN, tmp_path, die_at=ended("two"))
    with pytest.raises(Dies):
        goes_on(PLAIN, tmp_path, die_at=ended("two", verdict="passed"))
    last, after = goes_on(PLAIN, tmp_path)
    assert last.verdict == "passed" and [step for step, _ in after] == ["two", "inner", "last"]


def test_the_failure_of_before_is_the_verdict_and_rescue_has_not_two_chances(tmp_path):
    text = """
runbook: 1
hosts: {h: a}
steps:
  - block:
      - id: bad
        say: failed
      - id: never
        say: passed
    rescue:
      - id: help
        say: failed
  - id: after
    say: passed
always: [{id: last, say: passed}]
"""
    dies(text, tmp_path, started("last"))
    last, after = goes_on(text, tmp_path)
    assert (last.verdict, last.failed_step) == ("failed", "help") and after == [("last", "a")]


RETRIED = """
runbook: 1
hosts: {h: a}
steps:
  - id: shaky
    say: {fails_first: 2}
    retry: {for: 1m, every: 10ms}
  - id: each
    say: {value: '${{ item }}'}
    loop: [1, 2, 3]
  - assert: steps.shaky.status == 'passed' and [i.value for i in steps.each.items] == [1, 2, 3]
"""


@pytest.mark.parametrize("at", [ended("shaky", attempt=2), started("each"), ended("each", item=1), ended("each", item=2)])
def test_attempts_and_loop_items_that_have_ended_are_not_repeated(tmp_path, at):
    before = dies(RETRIED, tmp_path, at)
    last, after = goes_on(RETRIED, tmp_path)
    assert last.verdict == "passed", last.reason
    counts = [step for step, _ in [*before, *after]]
    assert counts.count("shaky") <= 4 and counts.count("each") <= 4 and len(counts) <= 7


MANY = """
runbook: 1
hosts: {h: [a, b, c]}
steps:
  - id: all
    say: {value: '${{ host.name }}'}
  - assert: steps.all.hosts['b'].value == 'b'
"""


def test_of_several_hosts_only_those_in_flight_are_run_again(tmp_path):
    dies(MANY, tmp_path, lambda event: isinstance(event, StepEnded) and event.step == "all" and event.host == "b")
    done = {event.host for event in load_events(tmp_path) if isinstance(event, StepEnded)}
    last, after = goes_on(MANY, tmp_path)
    assert last.verdict == "passed", last.reason
    assert {host for _, host in after} == {"a", "b", "c"} - done


SENDING = """
runbook: 1
hosts: {h: a}
steps:
  - block:
      - id: post
        send: {value: 1}
        retry: {for: 1m}
        ignore_errors: true
    rescue: [{id: help, say: passed}]
  - id: after
    say: {value: '${{ default(steps.post.value, 7) }}'}
always: [{id: last, say: passed}]
"""


def test_what_may_have_had_its_effect_stops_the_run_until_somebody_decides(tmp_path):
    dies(SENDING, tmp_path, ended("post"))
    last, after = goes_on(SENDING, tmp_path)
    assert isinstance(last, RunSuspended) and (last.verdict, last.exit_code, last.step) == ("undecided", 9, "post") and after == []
    assert [line.split("#")[0].strip() for line in last.next if "resume" in line] == [
        "runbook resume r1 --redo post",
        "runbook resume r1 --skip post",
    ]
    again, after = goes_on(SENDING, tmp_path)
    assert isinstance(again, RunSuspended) and after == []
    last, after = goes_on(SENDING, tmp_path, redo=["post"])
    assert last.verdict == "passed" and [step for step, _ in after] == ["post", "after", "last"]


def test_a_step_that_is_skipped_gives_nothing(tmp_path):
    dies(SENDING, tmp_path, ended("post"))
    last, after = goes_on(SENDING, tmp_path, skip=["post"])
    assert last.verdict == "passed" and [step for step, _ in after] == ["after", "last"]
    value = next(event.result["value"] for event in load_events(tmp_path) if isinstance(event, StepEnded) and event.step == "after")
    assert value == 7


def test_a_condition_is_not_asked_again_when_the_run_went_on_from_it(tmp_path):
    text = """
runbook: 1
hosts: {h: a}
vars: {go: false}
steps:
  - block: [{id: inside, say: passed}]
    when: vars.go
  - id: skipped
    say: passed
    when: vars.go
  - set: {go: true}
  - id: after
    say: passed
"""
    dies(text, tmp_path, ended("after"))
    last, after = goes_on(text, tmp_path)
    assert last.verdict == "passed" and after == [("after", "a")]


def test_a_block_that_was_entered_goes_on_though_its_condition_has_changed(tmp_path):
    text = """
runbook: 1
hosts: {h: a}
vars: {go: true}
steps:
  - block:
      - set: {go: false}
      - id: inside
        say: passed
    when: vars.go
"""
    dies(text, tmp_path, started("inside"))
    last, after = goes_on(text, tmp_path)
    assert last.verdict == "passed" and after == [("inside", "a")]


def test_actions_in_flight_get_their_end(tmp_path):
    dies(PLAIN, tmp_path, ended("one"))
    events = load_events(tmp_path)
    book = Journal(tmp_path, SystemClock(), Mask({}), first=len(events))
    book.append(ActionStarted(id="a1", step="one", host="a", action="launch"))
    goes_on(PLAIN, tmp_path)
    ends = [event for event in load_events(tmp_path) if isinstance(event, ActionEnded)]
    assert [(end.id, end.ok) for end in ends] == [("a1", False)] and "died" in ends[0].error


def test_a_torn_line_is_cut_and_the_journal_goes_on(tmp_path):
    from runbook.engine.journal import EVENTS, repair_torn_line

    dies(PLAIN, tmp_path, ended("two"))
    with open(tmp_path / EVENTS, "ab") as file:
        file.write(msgspec.json.encode({"event": "step_ended"})[:9])
    repair_torn_line(tmp_path)
    assert goes_on(PLAIN, tmp_path)[0].verdict == "passed"


FULL = """
runbook: 1
hosts: {h: a}
steps:
  - id: one
    say: passed
  - id: two
    say: passed
always: [{id: last, say: passed}]
"""


@pytest.mark.parametrize("at", [started("one"), ended("two"), started("last"), lambda event: isinstance(event, RunEnded)])
def test_a_disk_that_is_full_at_any_event_costs_no_cleanup(tmp_path, at):
    SAID.clear()
    made = runtime(FULL, tmp_path)
    append, room = made.journal.append, [True]

    def full(event):
        if at(event) and room.pop():
            room.append(False)
            raise JournalError("cannot write: No space left on device")
        return append(event)

    made.journal.append = full
    last = execute(made, lambda *_: None, {"pid": 1})
    assert (last.verdict, last.exit_code, last.cleanup) == ("error", 70, "passed") and "No space left" in last.reason
    assert ("last", "a") in SAID
    assert isinstance(load_events(tmp_path)[-1], RunEnded), "there was room again at the end"
