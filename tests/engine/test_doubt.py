"""What a wait does while something looks like a hang: it says so, looks closer, goes on; and ends where the author wants that."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from runbook.diagnose.judge import judge
from runbook.diagnose.suspicion import suspicion
from runbook.diagnose.view import View
from runbook.engine.watch import watch
from runbook.model.event import Moved, Suspected, WaitBegan, WaitEnded
from runbook.model.profile import Profile
from runbook.model.question import Question
from runbook.model.sample import LogSample, ProcessSample, Sample, Seen, ThreadSample
from tests.diagnose.stories import GENERIC
from tests.engine.test_watch import MovingClock, Waiter

STALL_S = 60.0


@dataclass
class Server:
    """A goal over a process that runs until `frozen_at` and, perhaps, again from `thawed_at` on. What is wanted comes a look later."""

    clock: MovingClock
    on_suspect: str = "collect"
    frozen_at: float = 20.0
    thawed_at: float = 1e9
    every_s: float = 2.0
    profile: Profile = GENERIC
    wanted: list[tuple[str, ...]] = field(default_factory=list)
    under_way: int = 0
    run_ns: int = 0
    lines: int = 0

    def look(self) -> Sample:
        self.under_way = max(0, self.under_way - 1)
        t = self.clock.t - 1000.0
        moving = t < self.frozen_at or t >= self.thawed_at
        self.run_ns += 10**8 if moving else 0
        thread = ThreadSample(tid=9, state="S", run_ns=self.run_ns, wait_ns=0, switches=self.run_ns // 10**6, wchan="futex_wait_queue")
        process = ProcessSample(pid=9, start=1, ppid=1, state="S", title="python", rss=10**8, threads=(thread,))
        before, self.lines = self.lines, self.lines + moving
        text = tuple(f"{number} of 1000 shards" for number in range(before, self.lines))
        log = LogSample(path="/l", inode=1, size=self.lines, offset=before, end=self.lines, lines=text)
        full = {"sockets": Seen(()), "locks": Seen(()), "disks": Seen(())}
        return Sample(t=0.0, host="", host_t=self.clock.t, boot_id="b", processes=Seen((process,)), log=Seen(log), **full)

    def judge(self, samples, now, *, final):
        answer = judge(samples, self.profile, self.question(final), now)
        return answer if final or answer is None or answer.verdict != "hung" else None  # what is under test goes on without a verdict

    def moved(self, samples):
        return None, "what moved"

    def view(self, samples, now):
        return View(samples, self.profile, self.question(False), now)

    def question(self, final):
        return Question(about="state", since=1000.0, box_s=600.0, final=final, stall_after_s=STALL_S, on_suspect=self.on_suspect)

    def want(self, looks):
        if not self.under_way:
            self.wanted.append(looks)
            self.under_way = 6

    def inquiring(self):
        return self.under_way > 0


def run(box_s: float = 200.0, **server):
    """(the goal, the waiter, the answer)."""
    clock = MovingClock()
    goal, waiter = Server(clock, **server), Waiter(clock, box_s)
    return goal, waiter, watch(goal, waiter)


def of(waiter, kind):
    return [event for event in waiter.events if isinstance(event, kind)]


@pytest.mark.slow
def test_a_suspicion_is_told_while_the_wait_goes_on_and_is_no_verdict():
    goal, waiter, answer = run()
    told = of(waiter, Suspected)
    assert len(told) == 1 and told[0].kind and told[0].text
    assert waiter.clock.t - 1000 >= 200, "the wait used its whole box"
    assert any("suspicious" in event.text for event in of(waiter, Moved))
    assert goal.wanted and "stacks" in goal.wanted[0]
    assert of(waiter, WaitEnded)[0].verdict == answer.verdict


@pytest.mark.slow
def test_a_server_that_moves_again_is_suspected_no_more():
    _, waiter, answer = run(thawed_at=90.0)
    assert [bool(event.kind) for event in of(waiter, Suspected)] == [True, False]
    assert answer.verdict == "slow"


@pytest.mark.slow
def test_continue_touches_no_process():
    goal, waiter, _ = run(on_suspect="continue")
    assert of(waiter, Suspected), "it is suspected all the same"
    assert {look for looks in goal.wanted for look in looks} <= {"full", "kernel"}


def test_fail_ends_the_wait_when_the_looks_have_come_as_undecided():
    goal, waiter, answer = run(on_suspect="fail")
    assert answer.verdict == "undecided" and "on_suspect: fail" in answer.reason
    assert waiter.clock.t - 1000 < 150 and not goal.inquiring()
    assert of(waiter, WaitEnded)[0].ends == "suspect"
    assert [finding.code for finding in answer.findings][-1] == "ended_on_suspicion"


@pytest.mark.slow
def test_fail_does_not_end_a_wait_that_is_not_suspected():
    _, waiter, answer = run(on_suspect="fail", frozen_at=1e9, box_s=100.0)
    assert answer.verdict == "slow" and waiter.clock.t - 1000 >= 100
    assert not of(waiter, Suspected)


def test_the_wait_begins_with_all_that_is_needed_to_judge_it_again():
    _, waiter, _ = run(box_s=10.0)
    began = of(waiter, WaitBegan)
    assert len(began) == 1 and began[0].question.stall_after_s == STALL_S and began[0].profile["profile"] == "generic"


@pytest.mark.slow
@pytest.mark.parametrize("moving", [True, False])
def test_what_is_suspected_is_what_the_rules_say(moving):
    """The loop adds nothing of its own."""
    goal, waiter, _ = run(frozen_at=1e9 if moving else 0.0, box_s=60.0)
    clock = MovingClock()
    server = Server(clock, frozen_at=1e9 if moving else 0.0)
    samples = []
    for _ in range(25):
        clock.t += 2
        samples.append(Sample(**{**{name: getattr(server.look(), name) for name in Sample.__struct_fields__}, "t": clock.t}))
    found = suspicion(server.view(samples, clock.t))
    assert bool(found) == bool(of(waiter, Suspected)) == (not moving)
    assert bool(goal.wanted) == (not moving)
