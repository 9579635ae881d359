"""The one loop that waits: it ends on a certain answer, at the end of its box, or when the run is interrupted."""

import pytest

from runbook.engine.boxes import NO_BOX, nested
from runbook.engine.watch import watch
from runbook.hosts.base import Cancelled, CancelToken, HostKeyRefused, LinkLost
from runbook.model.event import Moved, PhaseReached, SampleTaken, WaitEnded
from runbook.model.sample import Absent, Sample, Seen
from runbook.model.verdict import Diagnosis
from runbook.steps.base import RankPhase


class MovingClock:
    """A clock that only moves when somebody waits; `act(t)` is called on each wait."""

    def __init__(self, act=None):
        self.t = 1000.0
        self.act = act or (lambda t: None)

    def now(self):
        return self.t

    def monotonic(self):
        return self.t

    def wait(self, event, seconds):
        self.t += seconds
        self.act(self.t)
        return event.is_set()


class Waiter:
    step = "up"
    target = "box"

    def __init__(self, clock, box_s):
        self.clock = clock
        self.cancel = CancelToken()
        self._end = clock.t + box_s
        self.events = []

    def remaining_s(self):
        return self._end - self.clock.t

    def emit(self, event):
        self.events.append(event)

    def lost(self, why):
        self.why = why
        return isinstance(why, HostKeyRefused)


class Goal:
    every_s = 2.0

    def __init__(self, answer_after=None, look=None, phase=None):
        self.answer_after = answer_after
        self._look = look
        self.phase = phase
        self.finals = []

    def look(self):
        if self._look:
            self._look()
        return Sample(t=0.0, host="", host_t=1.0, boot_id="b", exit=Absent())

    def judge(self, samples, now, *, final):
        self.finals.append(final)
        if self.answer_after is not None and len(samples) >= self.answer_after:
            return Diagnosis(verdict="passed", rule="r", reason="there")
        return Diagnosis(verdict="undecided", rule="end", reason="not seen") if final else None

    def moved(self, samples):
        return self.phase, f"{len(samples)} looks"


def test_a_look_that_saw_no_host_decides_nothing_while_there_is_time():
    """A goal whose own time is over during the loss would else speak of what it could not see."""
    clock = MovingClock()

    def look():
        if 1002.0 <= clock.t < 1020.0:
            raise LinkLost("gone")

    goal = Goal(answer_after=2, look=look)
    waiter = Waiter(clock, 600)
    assert watch(goal, waiter).verdict == "passed" and clock.t == 1020.0


def test_it_ends_on_the_first_certain_answer():
    waiter = Waiter(MovingClock(), 600)
    assert watch(Goal(answer_after=3), waiter).verdict == "passed"
    assert len([e for e in waiter.events if isinstance(e, SampleTaken)]) == 3


def test_at_the_end_of_the_box_the_goal_must_answer_and_is_told_so():
    goal = Goal()
    waiter = Waiter(MovingClock(), 9)
    assert watch(goal, waiter).rule == "end"
    assert goal.finals[-1] is True and not any(goal.finals[:-1])
    assert waiter.clock.t == pytest.approx(1009, abs=0.1)


def test_a_goal_that_gives_no_answer_at_the_end_is_a_bug_not_a_silent_pass():
    goal = Goal()
    goal.judge = lambda samples, now, final: None
    with pytest.raises(AssertionError, match="no answer"):
        watch(goal, Waiter(MovingClock(), 1))


def test_an_interrupt_ends_the_wait_at_once():
    clock = MovingClock()
    waiter = Waiter(clock, 600)
    clock.act = lambda t: waiter.cancel.set() if t > 1005 else None
    with pytest.raises(Cancelled):
        watch(Goal(), waiter)
    assert clock.t < 1010


def test_a_lost_host_is_a_sample_with_no_link_not_an_empty_one():
    def lost():
        raise LinkLost("gone")

    seen = []
    goal = Goal(look=lost)
    goal.judge = lambda samples, now, final: seen.extend(samples) or Diagnosis(verdict="unreachable", rule="link", reason="x")
    watch(goal, Waiter(MovingClock(), 60))
    assert isinstance(seen[0].link, Absent) and "link" in seen[0].link.reason
    assert not isinstance(seen[0].processes, Seen)


def test_a_lost_host_is_looked_for_until_the_box_ends_and_no_longer_when_that_is_pointless():
    def lost(error):
        def look():
            raise error

        return look

    ends = {}
    for error in (LinkLost("gone"), HostKeyRefused("another key")):
        clock = MovingClock()
        goal = Goal(look=lost(error))
        goal.judge = lambda samples, now, final: Diagnosis(verdict="unreachable", rule="link", reason="x") if final else None
        waiter = Waiter(clock, 600)
        assert watch(goal, waiter).verdict == "unreachable" and waiter.why is error
        [ended] = [event for event in waiter.events if isinstance(event, WaitEnded)]
        ends[type(error)] = (ended.ends, clock.t - 1000)
    assert ends[LinkLost][0] == "box" and ends[LinkLost][1] >= 600
    assert ends[HostKeyRefused][0] == "link" and ends[HostKeyRefused][1] < 5


def test_people_hear_of_a_new_phase_at_once_and_of_movement_every_ten_seconds():
    waiter = Waiter(MovingClock(), 61)
    watch(Goal(phase="weights"), waiter)
    assert [e.phase for e in waiter.events if isinstance(e, PhaseReached)] == ["weights"]
    assert 5 <= len([e for e in waiter.events if isinstance(e, Moved)]) <= 8


def test_the_smallest_rest_of_all_boxes_counts_and_names_itself():
    clock = MovingClock()
    outer = nested(clock, NO_BOX, 10, "playbook")
    assert nested(clock, outer, 60, "step").label == "playbook"
    assert nested(clock, outer, 5, "step").label == "step"
    assert nested(clock, outer, None, "step") == outer


class RankGoal(Goal):
    """Reads one more mark at each of its first looks."""

    MARKS = (
        RankPhase(1000.0, "weights", "TP0", 0),
        RankPhase(1002.0, "weights", "DP0 TP1", None),
        RankPhase(1004.0, "weights", "TP0", 0, ended=True),
    )

    def rank_phases(self):
        return self.MARKS[: len(self.finals)]


def test_what_each_rank_enters_and_leaves_is_written_once_with_the_time_it_was_read():
    waiter = Waiter(MovingClock(), 600)
    watch(RankGoal(answer_after=6), waiter)
    told = [event for event in waiter.events if isinstance(event, PhaseReached)]
    assert [(event.t, event.rank, event.label, event.ended) for event in told] == [
        (1000.0, 0, "TP0", False),
        (1002.0, None, "DP0 TP1", False),
        (1004.0, 0, "TP0", True),
    ]
    assert not any(event.whole for event in told), "a rank's phase is not the server's"
