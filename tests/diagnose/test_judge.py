"""Verdicts on told histories. Each rule stands beside its live twin: the same surface, the opposite truth."""

from __future__ import annotations

import re

import msgspec
import pytest

from runbook.diagnose.judge import RULES
from runbook.model.question import Expectation
from runbook.model.sample import Absent, Blind, ExitSample, PressureSample, ProcessSample, Seen, ThreadSample
from runbook.model.verdict import CRASHED_KINDS, EXIT_CODES, HUNG_KINDS, SLOW_KINDS
from tests.diagnose.stories import GENERIC, READY, SGLANG, WEIGHTS, Story, answer, listener, load_profile, no_answer, process, shard

WANTS_OK = Expectation(body="ok")
GENERIC_WITH_READY = msgspec.structs.replace(GENERIC, ready="^up$")


def died(code: int | None = 1, signal: str | None = None, lived_s: float = 33.0, **more: bool | str) -> Seen:
    return Seen(ExitSample(code=code, signal=signal, lived_s=lived_s, **more))


def test_every_rule_has_an_id_and_says_when_it_fires() -> None:
    names = [rule.__name__ for rule in RULES]
    assert len(set(names)) == len(names)
    assert all(rule.__doc__ and re.split("[:/ ]", rule.__doc__)[0] in EXIT_CODES for rule in RULES)


# ready -----------------------------------------------------------------------------------------------------------------


def test_a_matching_answer_of_our_own_process_is_passed() -> None:
    verdict = Story().at(0, log=WEIGHTS).at(2, log=READY, check=answer(), listeners=listener()).judge()
    assert (verdict.verdict, verdict.rule, verdict.confidence) == ("passed", "ready", "proven")


def test_consecutive_answers_must_follow_each_other() -> None:
    story = (
        Story()
        .at(0, check=answer(), listeners=listener())
        .at(1, check=answer(503), listeners=listener())
        .at(2, check=answer(), listeners=listener())
    )
    assert story.judge(consecutive=2) is None
    assert story.at(3, check=answer(), listeners=listener()).judge(consecutive=2).verdict == "passed"


def test_an_invisible_owner_passes_only_with_the_ready_mark_in_our_log() -> None:
    hidden = Blind("owner not visible")
    assert Story().at(0, log=WEIGHTS, check=answer(), listeners=hidden).judge() is None
    verdict = Story().at(0, log=READY, check=answer(), listeners=hidden).judge()
    assert (verdict.verdict, verdict.confidence, verdict.findings[0].code) == ("passed", "likely", "listener_unseen")


# wrong server ----------------------------------------------------------------------------------------------------------


def test_an_answer_from_outside_our_tree_is_the_wrong_server_and_names_its_owner() -> None:
    verdict = Story().at(0, log=WEIGHTS, check=answer(), listeners=listener(4711, ours=False, age_s=9000)).judge()
    assert (verdict.verdict, verdict.culprit.pid) == ("wrong_server", 4711)
    assert "pid 4711" in verdict.reason


def test_a_listener_seen_once_without_an_answer_is_not_yet_the_wrong_server() -> None:
    story = Story().at(0, check=no_answer(), listeners=listener(4711, ours=False))
    assert story.judge() is None
    assert story.at(1, check=no_answer(), listeners=listener(4711, ours=False)).judge().verdict == "wrong_server"


def test_an_owner_that_cannot_be_seen_is_not_a_foreign_one() -> None:
    story = Story().at(0, check=answer(503), listeners=listener(0, ours=False)).at(1, check=answer(503), listeners=listener(0, ours=False))
    assert story.judge() is None


def test_a_foreign_listener_on_another_address_does_not_answer_for_ours() -> None:
    ours = listener().value[0]
    other = listener(4711, ours=False, address="0.0.0.0:30000").value[0]
    assert Story().at(0, log=READY, check=answer(), listeners=Seen((other, ours))).judge().verdict == "passed"


# wrong check -----------------------------------------------------------------------------------------------------------


def test_an_empty_body_by_design_is_a_wrong_check_at_the_first_200() -> None:
    verdict = Story().at(0, log=WEIGHTS).at(2, check=answer(expect=WANTS_OK), listeners=listener()).judge(expect=WANTS_OK)
    assert (verdict.verdict, verdict.rule, verdict.confidence) == ("wrong_check", "never_matches", "proven")
    assert "empty by design" in verdict.reason
    assert "status" in verdict.next[0] and "/model_info" in verdict.next[1]
    assert {row.signal: row.value for row in verdict.evidence}["body_bytes"] == 0


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_busy_and_starting_never_prove_a_wrong_check(status: int) -> None:
    story = Story().at(0, log=READY)
    for second in range(1, 12):
        story.at(second, check=answer(status, expect=WANTS_OK), listeners=listener())
    assert story.judge(expect=WANTS_OK) is None


def test_refused_never_proves_a_wrong_check() -> None:
    story = Story().at(0, log=READY)
    for second in range(1, 12):
        story.at(second, check=no_answer())
    assert story.judge(expect=WANTS_OK) is None


def test_a_regex_that_matches_nothing_may_match_an_empty_body() -> None:
    wants = Expectation(body="^$")
    assert Story().at(0, log=READY, check=answer(expect=wants), listeners=listener()).judge(expect=wants).verdict == "passed"


def test_a_status_that_the_engine_never_gives_is_a_wrong_check() -> None:
    wants = Expectation(status=(204,))
    assert Story().at(0, check=answer(expect=wants), listeners=listener()).judge(expect=wants).rule == "never_matches"


def test_the_contract_says_nothing_about_another_path() -> None:
    wants = Expectation(json={"model_path": "m"})
    story = Story().at(0, check=answer(expect=wants, path="/model_info"), listeners=listener())
    assert story.judge(expect=wants, path="/model_info") is None


def test_three_equal_answers_after_the_ready_mark_are_a_wrong_check() -> None:
    story = Story(GENERIC_WITH_READY)
    story.at(0, log="up\n")
    for second in (1, 4):
        story.at(second, check=answer(401, b"no key", expect=Expectation()), listeners=listener())
        assert story.judge() is None
    verdict = story.at(7, check=answer(401, b"no key"), listeners=listener()).judge()
    assert (verdict.verdict, verdict.rule, verdict.confidence) == ("wrong_check", "equal_answers", "strong")
    assert "credentials" in verdict.next[0]


def test_three_equal_answers_of_a_server_that_still_loads_are_no_wrong_check() -> None:
    """A front may answer 404 until its routes are there; bytes are still read."""
    story = Story(GENERIC)
    for second in range(0, 20, 2):
        story.at(second, check=answer(404, b"not yet"), listeners=listener(), processes=[process(read=10**8 * second)])
    assert story.judge() is None
    assert story.judge(final=True).verdict == "slow"


def test_equal_answers_of_a_server_at_rest_are_a_wrong_check() -> None:
    story = Story(GENERIC)
    for second in range(0, 10, 2):
        story.at(second, check=answer(404, b"no such page"), listeners=listener(), processes=[process(read=5000)])
    assert story.judge().rule == "equal_answers"


def test_a_server_that_cannot_be_seen_is_not_at_rest() -> None:
    story = Story(GENERIC)
    for second in range(0, 10, 2):
        story.at(second, check=answer(404, b"no such page"), listeners=listener(), processes=Blind("permission denied"))
    assert story.judge() is None
    assert story.judge(final=True).verdict == "undecided"


def test_a_server_whose_bytes_cannot_be_seen_is_not_at_rest() -> None:
    story = Story(GENERIC)
    for second in range(0, 10, 2):
        story.at(second, check=answer(404, b"no such page"), listeners=listener(), processes=[process(io=Blind("permission denied"))])
    assert story.judge() is None


def test_answers_that_differ_are_no_wrong_check() -> None:
    story = Story(GENERIC_WITH_READY).at(0, log="up\n")
    for second in range(1, 12):
        story.at(second, check=answer(200, b'{"loaded": %d}' % second, expect=WANTS_OK), listeners=listener())
    assert story.judge(expect=WANTS_OK) is None


# crashed ---------------------------------------------------------------------------------------------------------------


def test_the_kernels_kill_is_oom_host() -> None:
    verdict = (
        Story()
        .at(0, log=WEIGHTS)
        .at(2, exit=died(None, "KILL", oom_killed=True), processes=Absent())
        .at(3, exit=died(None, "KILL", oom_killed=True))
        .judge()
    )
    assert (verdict.verdict, verdict.kind, verdict.confidence) == ("crashed", "oom_host", "proven")


def test_the_kernels_kill_of_a_rank_comes_before_what_the_server_made_of_it() -> None:
    log = WEIGHTS + "RuntimeError: Rank 1 scheduler died during initialization (exit code: -9)\n"
    ended = died(1, None, oom_killed=True, oom_source="memory cgroup, a child")
    verdict = Story().at(0, log=WEIGHTS).at(2, log=log, exit=ended, processes=Absent()).at(3, exit=ended, processes=Absent()).judge()
    assert (verdict.verdict, verdict.kind, verdict.confidence) == ("crashed", "oom_host", "strong")
    assert "one of its processes" in verdict.reason


@pytest.mark.parametrize(
    ("line", "who"),
    [
        ("/opt/v/bin/python: No module named sglang", "`/opt/v/bin/python`"),
        (
            "/v/python3: Error while finding module specification for 'sglang.x' (ModuleNotFoundError: No module named 'sglang')",
            "`/v/python3`",
        ),
        ("ModuleNotFoundError: No module named 'sglang.srt'", "the interpreter of the launch"),
    ],
)
def test_a_missing_module_is_said_with_the_python_that_lacks_it(line, who) -> None:
    ended = died(1, None)
    verdict = Story().at(0, log="").at(2, log=line + "\n", exit=ended, processes=Absent()).at(3, exit=ended, processes=Absent()).judge()
    assert verdict.verdict == "crashed" and verdict.next[0].startswith(f"{who} has no module `sglang")
    assert "-c 'import sglang" in verdict.next[1]


def test_the_word_killed_alone_proves_no_memory_shortage() -> None:
    story = Story().at(0, log=WEIGHTS + shard(3)).at(2, log="Killed\n", exit=died(None, "KILL"), processes=Absent())
    verdict = story.at(3, exit=died(None, "KILL"), processes=Absent()).judge()
    assert (verdict.verdict, verdict.kind) == ("crashed", "signal")
    assert "dmesg" in verdict.next[0]


def test_a_sigkill_under_memory_pressure_is_likely_oom_host() -> None:
    squeezed = Seen(PressureSample(cpu=1.0, io=3.0, memory=65.0))
    story = (
        Story()
        .at(0, pressure=squeezed)
        .at(2, exit=died(None, "KILL"), processes=Absent())
        .at(3, exit=died(None, "KILL"), processes=Absent())
    )
    verdict = story.judge()
    assert (verdict.kind, verdict.confidence) == ("oom_host", "likely")


def test_a_watchdog_that_ends_a_working_server_is_own_timer() -> None:
    story = Story().at(0, log=WEIGHTS)
    for second in range(1, 8):
        story.at(second, log=shard(second))
    verdict = story.at(
        8, log="[2031-04-02 08:20:00] Watchdog timeout (self.watchdog_timeout=300)\n", exit=died(None, "KILL", 300.0), processes=Absent()
    ).judge()
    assert (verdict.verdict, verdict.kind) == ("crashed", "own_timer")


def test_a_watchdog_that_ends_a_silent_server_is_not_own_timer() -> None:
    story = Story().at(0, log=WEIGHTS)
    for second in range(10, 310, 10):
        story.at(second)
    verdict = story.at(
        310, log="[2031-04-02 08:20:00] Watchdog timeout (self.watchdog_timeout=300)\n", exit=died(None, "KILL", 310.0), processes=Absent()
    ).judge()
    assert (verdict.verdict, verdict.kind) == ("crashed", "exception")


def test_death_at_a_usual_limit_while_working_is_likely_own_timer() -> None:
    story = Story().at(0, log=WEIGHTS)
    for second in range(1, 8):
        story.at(second, log=shard(second))
    ended = died(None, "TERM", 600.5)
    assert story.at(8, exit=ended, processes=Absent()).at(9, exit=ended, processes=Absent()).judge().kind == "own_timer"


def test_the_rest_of_a_dead_servers_log_is_waited_for() -> None:
    """The exit status can be there before the last lines were read."""
    story = Story().at(0, log=WEIGHTS).at(1, exit=died())
    assert story.judge() is None
    verdict = story.at(2, log="Traceback (most recent call last):\n  File 'a.py', line 1\nKeyError: 'fc.weight'\n", exit=died()).judge()
    assert (verdict.kind, "KeyError: 'fc.weight'" in verdict.reason) == ("exception", True)


def test_a_survived_traceback_of_a_live_server_is_no_crash() -> None:
    story = Story().at(0, log="Traceback (most recent call last):\nImportError: no flash_attn\n" + WEIGHTS)
    assert story.judge() is None


def test_a_server_that_vanished_without_a_record_is_crashed_after_a_moment() -> None:
    story = Story().at(0, log=WEIGHTS).at(1, exit=Blind("no keeper was its parent"), processes=Absent())
    assert story.judge() is None
    verdict = story.at(4.5, exit=Blind("no keeper was its parent"), processes=Absent()).judge()
    assert (verdict.verdict, verdict.rule) == ("crashed", "gone")


def test_a_process_table_that_cannot_be_read_is_no_death() -> None:
    story = Story()
    for second in range(9):
        story.at(second, exit=Blind("permission denied"), processes=Blind("permission denied"))
    assert story.judge() is None


def test_what_we_stopped_ourselves_is_said_so() -> None:
    verdict = Story().at(0).at(1, exit=died(None, "TERM", killed_by_us=True)).at(2, exit=died(None, "TERM", killed_by_us=True)).judge()
    assert "runbook itself" in verdict.reason


# unreachable -----------------------------------------------------------------------------------------------------------


def test_a_lost_host_is_unreachable_and_says_nothing_about_the_server() -> None:
    story = Story().at(0, log=WEIGHTS)
    gone = {"link": Absent("link: no keepalive"), "processes": Blind("link lost"), "log": Blind("link lost"), "exit": Blind("link lost")}
    story.at(2, **{**gone, "log": None})
    assert story.judge() is None
    story.at(130, **{**gone, "log": None})
    assert story.judge() is None, "it may come back as long as there is time"
    assert story.judge(final=True).verdict == "unreachable"


def test_a_link_that_came_back_is_not_unreachable() -> None:
    story = Story().at(0).at(2, link=Absent("link: reset")).at(13, link=Seen(0.1))
    assert story.judge() is None


# stopped ---------------------------------------------------------------------------------------------------------------


def test_a_main_process_in_state_t_for_ten_seconds_is_hung_stopped() -> None:
    story = Story().at(0, log=WEIGHTS, processes=[process(read=0)]).at(2, processes=[process(state="T", read=0)])
    assert story.at(11, processes=[process(state="T", read=0)]).judge() is None
    verdict = story.at(12.5, processes=[process(state="T", read=0)]).judge()
    assert (verdict.verdict, verdict.kind, verdict.culprit.pid, verdict.confidence) == ("hung", "stopped", 100, "proven")


def test_a_process_that_was_stopped_for_a_moment_is_not_hung() -> None:
    story = Story().at(0, processes=[process(state="T")]).at(5, processes=[process(state="S")]).at(12, processes=[process(state="T")])
    assert story.judge() is None


def test_a_stopped_rank_beside_a_working_one_is_not_hung() -> None:
    story = Story()
    for second in range(0, 16, 3):
        story.at(
            second,
            processes=[
                process(read=0),
                process(101, ppid=100, rank=0, state="T", read=0),
                process(102, ppid=100, rank=1, read=10**7 * second),
            ],
        )
    assert story.judge() is None


def test_a_stopped_rank_with_everything_else_at_rest_is_hung_and_named() -> None:
    story = Story()
    for second in range(0, 16, 3):
        story.at(
            second, processes=[process(read=9), process(101, ppid=100, rank=3, state="T", read=0), process(102, ppid=100, rank=1, read=77)]
        )
    verdict = story.judge()
    assert (verdict.kind, verdict.culprit.rank) == ("stopped", 3)


def test_a_stopped_rank_beside_one_that_cannot_be_seen_is_not_hung() -> None:
    story = Story()
    for second in range(0, 16, 3):
        others = process(102, ppid=100, rank=1, io=Blind("permission denied"))
        story.at(second, processes=[process(read=9), process(101, ppid=100, rank=3, state="T", read=0), others])
    assert story.judge() is None


@pytest.mark.parametrize("between", [(), (process(101, ppid=100),)])
def test_a_stopped_helper_of_a_rank_that_inherits_its_number_is_nobodys_hang(between: tuple[ProcessSample, ...]) -> None:
    """A pager, a profiler, a worker: below the rank, or below a shell in between."""
    story = Story()
    for second in range(0, 16, 3):
        helper = process(102, ppid=101 if between else 100, state="T", title="sleep", rank=0, read=0)
        story.at(second, processes=[process(rank=0, read=9), *between, helper])
    assert story.judge() is None


@pytest.mark.parametrize("moves", ["run_ns", "switches", "read"])
def test_a_process_that_is_stopped_and_let_go_on_in_turn_is_not_hung(moves: str) -> None:
    """Throttled, as by cpulimit: stopped at every look, and it works in between."""
    story = Story()
    for second in range(0, 16, 3):
        times = {"run_ns": 10**9, "switches": 50, "wait_ns": 0}
        if moves in times:
            times[moves] += second
        main = ThreadSample(tid=100, state="T", **times)
        story.at(second, processes=[process(state="T", threads=(main,), read=second if moves == "read" else 0)])
    assert story.judge() is None


def test_a_stopped_process_whose_threads_cannot_be_seen_is_undecided() -> None:
    story = Story()
    for second in range(0, 16, 3):
        story.at(second, processes=[process(state="T", threads=(), read=0)])
    verdict = story.judge(final=True)
    assert verdict.verdict == "undecided" and "what pid 100 executes was not seen twice" in verdict.reason


def test_a_stopped_helper_process_is_nobodys_hang() -> None:
    story = Story()
    for second in range(0, 16, 3):
        story.at(second, processes=[process(read=9), process(101, ppid=100, state="T", title="resource_tracker", read=0)])
    assert story.judge() is None


# the end of the box ----------------------------------------------------------------------------------------------------


def test_weights_that_still_load_are_slow_with_phase_rate_and_eta() -> None:
    story = Story().at(0, log=WEIGHTS)
    for second in range(1, 13):
        story.at(second, log=shard(second))
    verdict = story.judge(final=True, box_s=12)
    assert (verdict.verdict, verdict.kind, verdict.phase) == ("slow", "on_track", "weights")
    assert "12/22" in verdict.progress["bar"]
    assert verdict.eta_s == pytest.approx(10, abs=0.5)


def test_a_trickle_under_the_floor_is_crawling() -> None:
    story = Story()
    for second in range(0, 30, 3):
        story.at(second, processes=[process(read=21_000 * second)])
    verdict = story.judge(final=True, box_s=30)
    assert (verdict.verdict, verdict.kind) == ("slow", "crawling")


def test_a_warm_cache_load_that_only_maps_pages_is_slow() -> None:
    """With a warm page cache no byte counter moves; the pages of the mapped shard do."""
    story = Story()
    for second in range(0, 30, 3):
        story.at(second, processes=[process(read=0, mapped_weights=Seen(second * 10**8))])
    assert "weights" in story.judge(final=True, box_s=30).progress


def test_a_compiler_below_the_server_is_progress() -> None:
    story = Story()
    for second in range(0, 30, 3):
        nvcc = process(500 + second, ppid=100, title="/usr/local/cuda/bin/cicc --arch sm_90", read=0)
        story.at(second, processes=[process(read=0), nvcc])
    assert story.judge(final=True, box_s=30).verdict == "slow"


@pytest.mark.parametrize(
    "line",
    [
        'INFO:     127.0.0.1:{n} - "GET /health HTTP/1.1" 503 Service Unavailable',
        "[2031-06-03 12:00:{n}] Prefill batch, #new-seq: 1, #new-token: 1, #cached-token: 0",
        "[2031-06-03 12:00:{n}] still waiting for peers, {n} s",
        "Loading safetensors checkpoint shards:  37% Completed | 8/22 [00:{n}<00:01,  3.16it/s]",
    ],
    ids=["our own checks", "the prefill of our checks", "a heartbeat", "a bar that stands still"],
)
def test_lines_that_only_repeat_are_no_progress(line: str) -> None:
    story = Story()
    for second in range(0, 40, 2):
        story.at(second, log=line.format(n=10 + second) + "\n", processes=[process(read=0)])
    assert story.judge(final=True, box_s=40).verdict == "undecided"


def test_the_first_access_line_of_our_own_check_is_no_progress() -> None:
    story = Story().at(0, log=WEIGHTS, processes=[process(read=0)])
    for second in range(10, 60, 10):
        story.at(second, processes=[process(read=0)])
    line = '[2031-06-03 12:00:01] INFO:     127.0.0.1:6 - "GET /health HTTP/1.1" 503 Service Unavailable\n'
    assert story.at(60, log=line, processes=[process(read=0)]).judge(final=True, box_s=60).verdict == "undecided"


def test_a_loader_that_starts_over_again_and_again_makes_no_progress() -> None:
    story = Story().at(0, log=WEIGHTS + shard(5))
    for second in range(1, 60):
        story.at(second, log=shard(1 + second % 5))
    assert story.judge(final=True, box_s=60).verdict == "undecided"


def test_cpu_alone_is_no_progress() -> None:
    story = Story()
    for second in range(0, 40, 2):
        spinning = ThreadSample(tid=100, state="R", run_ns=second * 10**9, wait_ns=0, switches=second)
        story.at(second, processes=[process(read=0, threads=(spinning,))])
    assert story.judge(final=True, box_s=40).verdict == "undecided"


def test_undecided_lists_what_could_not_be_seen_and_the_next_look() -> None:
    story = Story().at(0, log=WEIGHTS).at(30, log=None, processes=[process()])
    story.samples[-1] = msgspec.structs.replace(story.samples[-1], log=Blind("permission denied"))
    verdict = story.judge(final=True, box_s=30)
    assert (verdict.verdict, verdict.blind) == ("undecided", ("log: permission denied",))
    assert "as its owner" in verdict.next[0]


def test_silence_alone_is_never_hung() -> None:
    story = Story().at(0, log=WEIGHTS, processes=[process(read=0)])
    for second in range(10, 3600, 30):
        story.at(second, processes=[process(read=0)])
    verdict = story.judge(final=True, box_s=3600)
    assert verdict.verdict == "undecided"
    assert "py-spy" in verdict.next[0]


def test_the_box_names_what_set_it() -> None:
    verdict = Story().at(0, log=WEIGHTS).judge(final=True, box_s=5, limited_by="playbook")
    assert verdict.limited_by == "playbook"


# requests --------------------------------------------------------------------------------------------------------------


def test_a_request_is_failed_by_an_unexpected_answer() -> None:
    verdict = Story().at(1, check=answer(500, b"boom")).judge(about="request")
    assert (verdict.verdict, "boom" in verdict.reason) == ("failed", True)


def test_a_broken_connection_waits_for_the_death_of_the_server_to_show() -> None:
    story = Story().at(1, check=no_answer("reset"))
    assert story.judge(about="request") is None
    died_now = died(None, "SEGV")
    assert (
        story.at(2, exit=died_now, processes=Absent()).at(3, exit=died_now, processes=Absent()).judge(about="request").verdict == "crashed"
    )
    assert Story().at(1, check=no_answer("reset")).at(5).judge(about="request").verdict == "failed"


def test_decode_steps_of_a_long_request_are_progress() -> None:
    story = Story().at(0, log=READY)
    for second in range(1, 30):
        story.at(
            second, log=f"[2031-04-02 08:20:{second + 10}] Decode batch, #running-req: 1, #token: {40 * second}, accept len: 3.9{second}\n"
        )
    assert story.judge(final=True, about="request", box_s=30).verdict == "slow"


# settling --------------------------------------------------------------------------------------------------------------


def test_a_process_alive_after_settling_has_passed() -> None:
    assert Story().at(0).at(1).judge(about="settle", final=True, box_s=1).rule == "settled"


# words are closed sets -------------------------------------------------------------------------------------------------


def test_profiles_use_crash_kinds_for_their_causes() -> None:
    assert set(SGLANG.cause) <= CRASHED_KINDS
    assert {"on_track", "late", "crawling"} <= SLOW_KINDS and "stopped" in HUNG_KINDS


# a server that is only looked at ----------------------------------------------------------------------------------------


def test_a_server_that_answers_is_serving() -> None:
    verdict = Story().at(0, check=answer(), listeners=listener()).judge(about="state")
    assert (verdict.verdict, verdict.rule, verdict.phase) == ("passed", "serving", "ready")


def test_a_front_that_asks_its_workers_nothing_has_to_answer_for_a_while() -> None:
    """vLLM's API server says 200 for up to two seconds after its worker has died."""
    story = Story(load_profile("vllm")).at(0, check=answer(), listeners=listener()).at(2, check=answer())
    assert story.judge(about="state") is None
    assert story.judge(about="state", final=True).confidence == "likely"
    assert story.at(3, check=answer()).judge(about="state").confidence == "strong"
    assert story.at(4, check=answer(503)).at(5, check=answer()).judge(about="state") is None


def test_a_server_that_nobody_could_ask_is_serving_by_its_log_and_its_port_at_the_end() -> None:
    story = Story().at(0, log=READY, listeners=listener()).at(20, listeners=listener())
    assert story.judge(about="state") is None
    assert story.judge(about="state", final=True).confidence == "likely"


def test_a_loading_server_is_on_its_way() -> None:
    story = Story().at(0, log=WEIGHTS)
    for second in range(1, 13):
        story.at(second, log=shard(second), check=no_answer())
    verdict = story.judge(about="state", final=True, box_s=12)
    assert (verdict.verdict, verdict.kind) == ("slow", "on_track") and verdict.reason.startswith("loading, on track in phase `weights`")


def test_a_server_that_refuses_and_stands_still_is_not_serving() -> None:
    story = Story().at(0, log=WEIGHTS).at(100, check=no_answer())
    assert story.judge(about="state", final=True).verdict == "undecided"


def test_the_rules_of_ends_and_answers_are_cited() -> None:
    ended = Story().at(0).at(1, exit=died(3), processes=Absent()).at(5, exit=died(3), processes=Absent())
    assert ended.judge().rule == "dead"
    assert Story().at(1, check=answer()).judge(about="request").rule == "answered"


def test_a_main_process_that_is_a_zombie_has_ended() -> None:
    lost = Blind("it is gone, and no keeper was its parent")
    zombie = process(state="Z", exit_code=3)
    story = Story().at(0, processes=[zombie], exit=lost)
    assert story.judge(about="state") is None
    verdict = story.at(4, processes=[zombie], exit=lost).judge(about="state")
    assert (verdict.verdict, verdict.rule, verdict.kind) == ("crashed", "gone", None) and "exit code 3" in verdict.reason


def test_a_zombie_that_a_signal_ended_is_called_so() -> None:
    lost, zombie = Blind("it is gone, and no keeper was its parent"), process(state="Z", exit_code=-11)
    verdict = Story().at(0, processes=[zombie], exit=lost).at(4, processes=[zombie], exit=lost).judge(about="state")
    assert verdict.kind == "signal" and "signal 11" in verdict.reason


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "ERROR 01-02 engine died",
        "/bin/sh: line 1: 4711 Killed",
        "Traceback (most recent call last):\n  File 'a.py'\nKeyError: 'x'\n  the message goes on",
    ],
)
def test_a_line_that_tells_of_a_fault_is_no_progress(line: str) -> None:
    story = Story(GENERIC).at(0, log="start\n").at(10, log=line + "\n").at(12)
    assert story.judge(final=True, box_s=12).verdict == "undecided"
    assert story.at(14, log="falling back to the default path\n").judge(final=True, box_s=14).verdict == "slow"
