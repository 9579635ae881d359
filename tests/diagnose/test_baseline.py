"""What earlier starts took: who is comparable, what they say together, and that they tell late from on_track and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from runbook.diagnose.baseline import kin, longest_each, related, usual, words
from runbook.model.usual import Kin, MeasuredStart, PhaseTime
from tests.diagnose.stories import WEIGHTS, Story, process, shard

COMMAND = ("/opt/bin/python3", "-m", "sglang.launch_server", "--model-path", "/models/m", "--port", "30000", "--tp-size", "8")


def a_kin(*argv: str, host: str = "a", gpus: tuple[str, ...] = (), profile: str = "sglang") -> Kin:
    return kin(host, gpus, profile, argv or COMMAND)


def start(ready_s: float, **phases: float) -> MeasuredStart:
    rows = tuple(PhaseTime(name=name, seconds=seconds, quiet_s=seconds / 4) for name, seconds in phases.items())
    return MeasuredStart(kin=a_kin(), ready_s=ready_s, phases=rows)


@pytest.mark.parametrize(
    ("argv", "same"),
    [
        (("python3", "-m", "sglang.launch_server", "--tp-size=8", "--port", "40001", "--model-path", "/models/m"), True),
        ((*COMMAND, "--log-level", "debug", "--dist-init-addr", "10.0.0.1:5000", "--host", "0.0.0.0", "--nccl-port", "7"), True),
        (("sh", "-c", " ".join(COMMAND)), True),
        ((*COMMAND[:-1], "4"), False),
        ((*COMMAND, "--enable-torch-compile"), False),
        (("python3", "-m", "sglang.launch_server", "--model-path", "/models/other", "--tp-size", "8"), False),
        (("python3", "-m", "vllm", "--model-path", "/models/m", "--tp-size", "8"), False),
    ],
)
def test_two_commands_are_the_same_start_when_only_ports_addresses_and_logs_differ(argv, same):
    assert (words(argv) == words(COMMAND)) is same


def test_a_start_is_related_by_its_gpus_where_both_are_known_and_else_by_its_host():
    eight, four = ("H200",) * 8, ("H200",) * 4
    assert related(a_kin(host="a", gpus=eight), a_kin(host="b", gpus=eight))
    assert not related(a_kin(host="a", gpus=eight), a_kin(host="a", gpus=four))
    assert related(a_kin(host="a", gpus=eight), a_kin(host="a")) and not related(a_kin(host="a", gpus=eight), a_kin(host="b"))
    assert not related(a_kin(), a_kin(profile="vllm"))


def test_an_odd_command_line_has_words_too():
    assert words(()) == () and words(("sh", "-c", "a 'b")) == ("a", "'b")
    assert sum(map(len, words(["x" * 10_000] * 10_000))) <= 200 * 200


def test_several_starts_give_shortest_median_longest_and_the_longest_silence():
    found = usual([start(300, weights=200), start(240, weights=160, kv_cache=8), start(360, weights=280)], 5.0)
    assert found is not None and found.age_s == 5.0
    assert (found.ready.runs, found.ready.shortest_s, found.ready.median_s, found.ready.longest_s) == (3, 240, 300, 360)
    rows = {row.name: (row.runs, row.shortest_s, row.median_s, row.longest_s, row.quiet_s) for row in found.phases}
    assert rows == {"weights": (3, 160, 200, 280, 70), "kv_cache": (1, 8, 8, 8, 2)}
    assert usual([], 5.0) is None


def test_of_a_phase_that_was_entered_twice_the_longer_time_counts():
    rows = [PhaseTime(name="weights", seconds=9.0), PhaseTime(name="kv", seconds=1.0), PhaseTime(name="weights", seconds=2.0)]
    assert [(row.name, row.seconds) for row in longest_each(rows)] == [("weights", 9.0), ("kv", 1.0)]


def load(seconds: int) -> Story:
    """A load that moves on and on."""
    story = Story().at(0, log=WEIGHTS)
    for step in range(1, seconds // 10 + 1):
        story.at(10 * step, log=shard(step, 100))
    return story


EARLIER = [start(100, weights=60), start(140, weights=80)]


def test_a_load_within_its_usual_time_is_on_track_and_says_how_long_it_usually_takes():
    found = load(50).judge(final=True, about="state", usual=usual(EARLIER, 0.0))
    assert found is not None and (found.verdict, found.kind) == ("slow", "on_track")
    assert "usually 1m–1m20s here (2 runs)" in found.reason
    rows = {row.signal: (row.value, row.points_to) for row in found.evidence}
    assert rows["usual_time"] == ("usually 1m–1m20s here (2 runs)", "nothing") and rows["usual_silence"] == (20.0, "nothing")


@pytest.mark.parametrize(("seconds", "age_s", "said"), [(90, 0.0, "in this phase"), (50, 120.0, "2m50s after its start")])
def test_a_load_beyond_any_earlier_one_is_late_by_its_phase_or_as_a_whole(seconds, age_s, said):
    found = load(seconds).judge(final=True, usual=usual(EARLIER, age_s))
    assert found is not None and (found.verdict, found.kind) == ("slow", "late")
    assert said in found.reason and "(2 runs)" in found.reason


def test_without_earlier_starts_nothing_is_said():
    found = load(5000).judge(final=True)
    assert found is not None and found.kind == "on_track" and "usually" not in found.reason


def test_however_late_it_never_makes_a_hang_and_however_early_it_excuses_none():
    """The same silence, with a usual time long over, and with one that would allow for it."""
    still = Story().at(0, log=WEIGHTS)
    for step in range(1, 40):
        still.at(10 * step, processes=[process(state="T" if step > 35 else "S")])
    known = (None, usual([start(1.0, weights=0.5)], 9e5), usual([start(9e5, weights=8e5)], 0.0))
    found = [still.judge(final=True, usual=one) for one in known]
    assert {(one.verdict, one.kind, one.rule) for one in found if one} == {("hung", "stopped", "stopped")}
    moving = [msgspec.structs.replace(one, t=one.t) for one in still.samples[:30]]
    still.samples = moving
    found = [still.judge(final=True, usual=one) for one in known]
    assert {one.verdict for one in found if one} == {"undecided"}
