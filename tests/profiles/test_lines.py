"""Each mark of each packaged profile, held against a line as the engine prints it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from runbook.cli.profiles import PACKAGED, profiles
from runbook.diagnose.causes import causes
from runbook.diagnose.lines import Matcher
from runbook.model.profile import Profile

KNOWN = profiles()
LINES = yaml.safe_load((Path(__file__).parents[1] / "data" / "profile_lines.yaml").read_text(encoding="utf-8"))
NAMES = sorted(path.stem for path in PACKAGED.glob("*.yaml"))


def meaning(raw: str, rules: Matcher) -> tuple[str, str]:
    """(what the profile sees in a line, the rank that it names), in the words of the data file."""
    line = rules.read(raw)
    found = [f"opens {phase}" for phase in line.begins] + [f"closes {phase}" for phase in line.ends]
    found += [f"moves {phase}" for phase in line.moves] + ["ready"] * line.ready + ["noise"] * line.noise
    for word, patterns in (("cause", rules.cause), ("effect", rules.effect)):
        found += [f"{word} {kind}" for kind, pattern in patterns.items() if pattern.search(line.text)]
    found += [f"degraded {kind}" for kind, pattern in rules.profile.degraded.items() if re.search(pattern, line.text)]
    return " ".join(found) or "nothing", line.rank


def profile(name: str) -> Profile:
    """A packaged profile."""
    return KNOWN.read(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_line_means_what_it_says(name):
    rules = Matcher(profile(name))
    wrong = []
    for raw, told in LINES[name]:
        wanted, _, rank = told.partition(" @") if not told.startswith("@") else ("", "", told[1:])
        seen = meaning(raw, rules)
        if seen != (wanted, rank):
            wrong.append(f"{raw}\n    should be {wanted!r} of rank {rank!r}, is {seen[0]!r} of rank {seen[1]!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "lab"])
def test_no_mark_is_without_a_line(name):
    """A mark that no line holds is a guess."""
    found, wanted = profile(name), set()
    for phase in found.phases:
        wanted |= {f"opens {phase.id}"} if phase.begin or phase.mark else set()
        wanted |= {f"closes {phase.id}"} if phase.end else set()
        wanted |= {f"moves {phase.id}"} if phase.progress else set()
    for word, patterns in (("cause", found.cause), ("effect", found.effect), ("degraded", found.degraded)):
        wanted |= {f"{word} {kind}" for kind in patterns}
    wanted |= {"ready"} if found.ready else set()
    told = " ".join(told for _, told in LINES[name])
    assert not (missing := {one for one in wanted if one not in told}), missing


@pytest.mark.parametrize("name", NAMES)
def test_a_line_that_is_said_to_come_too_early_is_not_the_ready_mark(name):
    rules = Matcher(profile(name))
    assert [one.line for one in profile(name).not_ready if rules.read(one.line).ready] == []


@pytest.mark.parametrize("name", NAMES)
def test_untried_profiles_say_so_and_every_mark_has_its_source(name):
    found = profile(name)
    assert found.untried == (name in ("tgi", "trtllm"))
    assert name == "generic" or found.known or found.read_in
    assert found.describes


def test_a_rank_that_raises_under_torchrun_is_the_first_cause_and_the_launcher_its_echo():
    """The form of torch 2.13, as a job of two ranks on gloo printed it."""
    log = """\
step 2 loss 2.800
[rank1]: Traceback (most recent call last):
[rank1]:   File "/job.py", line 9, in <module>
[rank1]:     raise ValueError("boom")
[rank1]: ValueError: boom
W0402 11:23:07.776000 4165 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 5531 closing signal SIGTERM
E0402 11:23:08.008000 4165 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 5532) of binary: /usr/bin/python
Traceback (most recent call last):
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""
    rules = Matcher(profile("torchrun"))
    first = causes([rules.read(line) for line in log.splitlines()], rules).first
    assert first is not None and (first.kind, first.line, first.rank) == ("exception", "[rank1]: ValueError: boom", "1")


def test_a_worker_of_vllm_that_cannot_start_is_the_first_cause_and_what_its_parents_say_is_not():
    worker, core = (
        "(Worker_TP1 pid=1302) ERROR 04-02 08:12:02 [multiproc_executor.py:597] ",
        "(EngineCore_DP0 pid=1244) ERROR 04-02 08:12:03 [core.py:842] ",
    )
    log = [
        worker + "WorkerProc failed to start.",
        worker + "Traceback (most recent call last):",
        worker + '  File "gpu_worker.py", line 190, in init_device',
        worker + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.75 GiB.",
        core + "EngineCore failed to start.",
        core + "Traceback (most recent call last):",
        core + "Exception: WorkerProc initialization failed due to an exception in a background process.",
        "(APIServer pid=1201) Traceback (most recent call last):",
        "(APIServer pid=1201) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': 1}",
    ]
    rules = Matcher(profile("vllm"))
    first = causes([rules.read(line) for line in log], rules).first
    assert first is not None and (first.kind, first.line, first.rank) == ("oom_gpu", log[3], "TP1")
