"""GPU memory: free for long enough, held by somebody, or not to be seen."""

from __future__ import annotations

from runbook.diagnose.judge import judge
from runbook.model.gpu import GpuHolder, GpuSample
from runbook.model.profile import Profile
from runbook.model.question import Question
from runbook.model.sample import Absent, Blind, Sample, Seen
from runbook.model.verdict import Diagnosis

GIB = 2**30


def look(second: float, *used: float, holders: tuple[GpuHolder, ...] = ()) -> Sample:
    gpus = tuple(GpuSample(index=n, name="g", used=int(one * GIB), total=80 * GIB, holders=holders) for n, one in enumerate(used))
    return Sample(t=second, host="h", host_t=second, boot_id="b", gpus=Seen(gpus))


def unseen(second: float, outcome: Absent | Blind) -> Sample:
    return Sample(t=second, host="h", host_t=second, boot_id="b", gpus=outcome)


def verdict(*samples: Sample, final: bool = False) -> Diagnosis | None:
    question = Question(about="gpu_free", since=0.0, box_s=60.0, final=final, below=GIB, stable_for_s=3.0)
    return judge(samples, Profile(profile="generic"), question, samples[-1].t)


def test_all_gpus_must_stay_below_for_the_whole_time() -> None:
    assert verdict(look(0, 0.1, 0.1), look(2, 0.1, 0.1)) is None
    assert verdict(look(0, 0.1, 0.1), look(2, 0.1, 5), look(4, 0.1, 0.1)) is None
    assert verdict(look(0, 0.1, 0.1), look(2, 0.1, 0.1), look(3, 0.1, 0.1)).verdict == "passed"


def test_the_ceiling_itself_is_not_below_it() -> None:
    assert verdict(look(0, 1), look(4, 1)) is None


def test_a_look_that_failed_breaks_the_stretch() -> None:
    assert verdict(look(0, 0.1), unseen(2, Blind("no answer in 60 s")), look(4, 0.1)) is None


def test_the_largest_holder_is_the_culprit() -> None:
    small, large = GpuHolder(pid=5, used=GIB), GpuHolder(pid=6, user="eve", title="sglang::scheduler_TP0", age_s=7200.0, used=60 * GIB)
    held = verdict(look(60, 61, holders=(small, large)), final=True)
    assert (held.verdict, held.culprit.pid) == ("resource_held", 6)
    assert "pid 6 `sglang::scheduler_TP0` of eve up 2h holds 60GiB" in held.reason


def test_a_tool_that_is_blind_at_the_end_is_undecided_and_a_missing_one_at_once() -> None:
    assert verdict(look(0, 70), unseen(60, Blind("no answer in 60 s")), final=True).verdict == "undecided"
    assert verdict(unseen(0, Absent("there is no nvidia-smi"))).rule == "gpu_tool_missing"
