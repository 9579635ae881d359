"""Warnings from the engine's profile: one that must come for each mistake, and its twin that must stay silent."""

from __future__ import annotations

import pytest

from runbook.cli.profiles import profiles
from runbook.model.diagnostic import Severity
from runbook.playbook.build import load_playbook
from runbook.steps import TABLE

KNOWN = profiles()
LAUNCH = "  - {{id: server, launch: {{command: [{command}], profile: {profile}}}}}\n"
COMMANDS = {
    "sglang": "python, -m, sglang.launch_server, --port, '30000'",
    "vllm": "vllm, serve, m",
    "llamacpp": "llama-server, -m, m.gguf",
    "torchrun": "torchrun, train.py",
    "generic": "./server",
    "lab": "python, -m, lab_engine.launch_server",
}


def advice(*steps: str, engine: str = "sglang", more: str = "", flags: str = "", before: str = "", overrides: dict | None = None):
    """(code, line and column, summary and hint) of each warning about steps that follow a launch."""
    launch = LAUNCH.format(command=COMMANDS[engine] + flags, profile=engine)
    text = f"runbook: 1\nhosts: {{box: local}}\n{more}steps:\n{before}{launch}" + "".join(f"  - {step}\n" for step in steps)
    playbook, found = load_playbook(
        text.encode(), "book.yaml", table=TABLE, profiles=KNOWN.names(), profile=KNOWN.known, overrides=overrides
    )
    assert playbook is not None and all(one.severity is Severity.WARNING for one in found), found
    assert all(one.hint and one.span for one in found), "each says where it is and what to do"
    return [(one.code, f"{one.summary} {one.hint}") for one in found]


def codes(*steps: str, **options) -> list[str]:
    return [code for code, _ in advice(*steps, **options)]


HEALTHY = "wait_healthy: {{server: server, expect: {expect}}}"
MODULE = "sglang.srt.models.llama_eagle3"


@pytest.mark.parametrize(
    ("engine", "expect", "warned"),
    [
        ("sglang", "{body: ok}", True),
        ("sglang", "{json: {status: ok}}", True),
        ("sglang", "{body: '^$'}", False),
        ("sglang", "{body: 'o*'}", False),
        ("sglang", "{status: 200}", False),
        ("sglang", "{status: [200, 503]}", False),
        ("sglang", "{status: 503}", False),
        ("sglang", "{status: 204}", True),
        ("vllm", "{body: ok}", True),
        ("vllm", "{status: 201}", True),
        ("llamacpp", "{body: ok}", False),
        ("llamacpp", "{body: healthy}", True),
        ("llamacpp", "{json: {status: ok}}", False),
        ("llamacpp", "{json: {status: ready}}", True),
        ("generic", "{body: ok}", False),
    ],
)
def test_a_check_that_can_never_match_is_told_before_it_runs(engine, expect, warned):
    assert codes(HEALTHY.format(expect=expect), engine=engine) == (["never-matches"] if warned else [])


def test_only_the_path_of_the_contract_is_judged():
    assert codes("wait_healthy: {server: server, path: /v1/models, expect: {body: ok}}") == []
    assert codes("wait_healthy: {url: 'http://127.0.0.1:30000', expect: {body: ok}}") == []


def test_a_request_to_the_health_path_is_judged_as_well():
    assert codes("request: {server: server, get: /health, expect: {text: ok}}") == ["never-matches"]
    assert codes("request: {server: server, get: /v1/models, expect: {text: ok}}") == []


def test_an_engine_without_a_health_path_cannot_be_waited_for():
    assert codes("wait_healthy: {server: server}", engine="torchrun") == ["no-health"]


def test_a_value_that_only_a_run_knows_is_not_judged_and_a_variable_is():
    step = "wait_healthy: {server: server, expect: {body: '${{ vars.word }}'}}"
    assert codes(step, more="vars: {word: ok}\n") == ["never-matches"]
    assert codes(step, more="vars: {word: ok}\n", overrides={"word": "^$"}) == []
    assert codes("{id: a, run: date}", "wait_healthy: {server: server, expect: {body: '${{ steps.a.stdout }}'}}") == []


@pytest.mark.parametrize(("text", "warned"), [("500ms", True), ("1s", True), ("5s", False), ("auto", False)])
def test_a_check_shorter_than_the_engine_needs_is_told(text, warned):
    assert codes(f"wait_healthy: {{server: server, check_timeout: {text}}}") == (["too-hasty"] if warned else [])
    assert codes(f"wait_healthy: {{server: server, check_timeout: {text}}}", engine="vllm") == []


def test_a_box_below_the_budget_of_a_phase_that_every_start_has_is_told():
    ((code, text),) = advice("wait_healthy: {server: server, timeout: 4m}")
    assert code == "short-box" and "dist_init (5m)" in text and "args" not in text and "jit" not in text
    assert codes("wait_healthy: {server: server, timeout: 15m}") == [], "a first compilation may take longer, but not every start has one"
    assert codes("wait_healthy: {server: server}") == []
    assert codes("wait_healthy: {server: server, timeout: 4m}", engine="generic") == []
    assert codes("wait_healthy: {server: server, timeout: '${{ vars.t }}'}", more="vars: {t: 1m}\n") == ["short-box"]


def test_a_server_that_is_attached_has_a_contract_too_but_may_be_up_already():
    """Without a profile it is guessed when it runs, so nothing is known before."""
    head = "  - {id: up, attach: {port: 30000, profile: sglang}}\n  - {id: other, attach: {port: 8000}}\n"
    assert codes("wait_healthy: {server: up, expect: {body: ok}, timeout: 1m}", before=head) == ["never-matches"]
    assert codes("wait_healthy: {server: other, expect: {body: ok}, timeout: 1m}", before=head) == []


def test_an_author_who_sets_the_stall_budget_may_set_the_box():
    assert codes("wait_healthy: {server: server, timeout: 4m, stall_after: 1m}") == []
    assert codes("wait_healthy: {server: server, timeout: 4m, stall_after: auto}") == ["short-box"]


def test_a_second_wait_needs_no_time_to_load():
    assert codes("wait_healthy: {server: server}", "wait_healthy: {server: server, timeout: 1m}") == []


@pytest.mark.parametrize(
    ("engine", "pattern", "warned"),
    [
        ("sglang", "Application startup complete", True),
        ("sglang", "startup.complete|fired up", True),
        ("sglang", "Uvicorn running", True),
        ("sglang", "fired up and ready", False),
        ("sglang", ".*", False),
        ("vllm", "Application startup complete", False),
        ("vllm", "Starting vLLM API server", True),
        ("llamacpp", "HTTP server is listening", True),
        ("llamacpp", "server is listening on", False),
        ("generic", "Application startup complete", False),
    ],
)
def test_a_ready_mark_that_lies_is_told(engine, pattern, warned):
    expected = ["lying-mark"] if warned else []
    assert codes(f"grep: {{log: server, pattern: '{pattern}', wait: 5m}}", engine=engine) == expected
    assert codes(f"run: \"until grep -q '{pattern}' /tmp/log; do sleep 1; done\"", engine=engine) == expected


def test_a_mark_that_is_looked_for_afterwards_or_must_be_absent_is_no_ready_mark():
    assert codes("grep: {log: server, pattern: Uvicorn running, expect: absent}") == []
    assert codes("wait_healthy: {server: server}", "grep: {log: server, pattern: Uvicorn running}") == []
    assert codes("grep: {file: /tmp/x, pattern: Uvicorn running}") == []


@pytest.mark.parametrize(
    ("script", "warned"),
    [
        ("until curl -s localhost:30000/health | grep -q ok; do sleep 1; done", True),
        ("curl -s http://127.0.0.1:30000/health | egrep ok", True),
        ("curl -si http://127.0.0.1:30000/health | grep -q 200", False),
        ("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:30000/health | grep -q 200", False),
        ("curl -s http://127.0.0.1:30000/v1/models | grep -q id", False),
        ("curl -fs http://127.0.0.1:30000/health && echo up", False),
    ],
)
def test_a_word_that_is_looked_for_in_an_empty_answer_is_told(script, warned):
    line = "run: |\n      " + script
    assert codes(line) == (["never-matches"] if warned else [])
    assert codes(line, engine="llamacpp") == []


@pytest.mark.parametrize(
    ("place", "flags", "engine", "warned"),
    [
        (f"module: {MODULE}", "", "sglang", True),
        ("file: /opt/sglang/srt/models/deepseek_v2.py", "", "sglang", True),
        (f"module: {MODULE}", ", --disable-cuda-graph", "sglang", False),
        ("module: sglang.srt.managers.scheduler", "", "sglang", False),
        ("module: lab_engine.models.llama_eagle3", "", "lab", False),
        ("module: vllm.model_executor.models.llama", "", "vllm", True),
        ("module: vllm.model_executor.models.llama", ", --enforce-eager", "vllm", False),
        (f"module: {MODULE}", ", '${{ env(''FLAGS'', '''') }}'", "sglang", True),
    ],
)
def test_a_probe_that_graphs_may_swallow_is_told(place, flags, engine, warned):
    patch = f"  - {{id: taps, patch: {{for: server, {place}, probes: [{{at: Model.forward, where: entry}}]}}}}\n"
    assert codes(before=patch, flags=flags, engine=engine) == (["graph-replay"] if warned else [])


def test_a_plain_edit_is_not_swallowed():
    patch = "  - {id: edit, patch: {for: server, module: sglang.srt.models.llama, replace: [{find: a, with: b}]}}\n"
    assert codes(before=patch) == []


def test_a_kill_of_the_parent_alone_is_told_where_workers_outlive_it():
    assert codes("kill: {step: server, tree: false}", engine="vllm") == ["leaves-workers"]
    assert codes("kill: {step: server}", engine="vllm") == codes("kill: {step: server, tree: false}") == []
