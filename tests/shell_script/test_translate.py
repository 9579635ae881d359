"""What becomes of a shell script: its steps, and the traps that are named at their place."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from runbook.cli.profiles import profiles
from runbook.lang.yaml_loader import load
from runbook.model.diagnostic import Diagnostic
from runbook.playbook.build import load_playbook
from runbook.shell_script import syntax
from runbook.shell_script.translate import Translated, translate
from runbook.shell_script.write import write
from runbook.steps import TABLE

FOUNDING = """while ! curl -s localhost:8000/health | grep -q ok; do sleep 5; done; \
curl -s localhost:8000/v1/chat/completions -d '{"messages": [{"role": "user", "content": "hi"}]}'; sleep 2; grep EAGLE3-DEBUG log
"""


def translated(text: str) -> Translated:
    """A script's steps; the playbook of them is valid and holds the same data."""
    found = translate(text, "x.sh", syntax.parser())
    assert isinstance(found, Translated), found
    written = write(found, "x", "# yaml-language-server: $schema=x")
    book, problems = load_playbook(written.encode(), "x.yaml", table=TABLE, profiles=profiles("").names())
    assert book is not None, "\n".join(f"{one.span}: {one.summary}" for one in problems) + "\n" + written
    document = load(written, "x.yaml")[0]
    assert document is not None
    if found.steps:
        assert document.data["steps"] == [made.step for made in found.steps]
    return found


def steps(text: str) -> list[dict[str, Any]]:
    """The steps alone."""
    return [made.step for made in translated(text).steps]


def traps(text: str) -> set[str]:
    """The codes of what was warned of."""
    return {one.code for one in translated(text).traps}


def test_the_founding_line_becomes_a_wait_a_request_and_a_look_from_that_request_on():
    found = translated(FOUNDING)
    assert [made.step for made in found.steps] == [
        {"id": "server", "attach": {"port": 8000}},
        {"id": "up", "wait_healthy": {"server": "server", "timeout": "45m", "expect": {"status": 200}}},
        {
            "id": "chat",
            "request": {"server": "server", "post": "/v1/chat/completions", "json": {"messages": [{"role": "user", "content": "hi"}]}},
        },
        {"id": "seen", "grep": {"log": "server", "since": "chat", "wait": "10s", "pattern": "EAGLE3-DEBUG"}},
    ]
    assert found.always == [], "a server that was up already is not ours to stop"


def test_the_founding_line_has_five_traps_each_at_its_place():
    found = translated(FOUNDING)
    at = {one.code: FOUNDING[one.span.column - 1 :][: one.span.length] for one in found.traps if one.span}
    assert list(at) == ["endless-loop", "empty-body", "status-ignored", "fixed-sleep", "old-log"]
    assert at["status-ignored"].startswith("curl -s localhost:8000/v1/chat/completions -d")
    assert at["empty-body"] == "grep -q ok" and at["fixed-sleep"] == "sleep 2" and at["old-log"] == "grep EAGLE3-DEBUG log"
    assert at["endless-loop"].startswith("while") and at["endless-loop"].endswith("done")


START = "nohup python -m sglang.launch_server --port 8000 > server.log 2>&1 &\n"
KILLS = {
    "pkill -f sglang": {"match": {"profile": "sglang"}},
    "pkill -f my_trainer.py": {"match": {"cmdline": "my_trainer.py"}},
    "killall ray": {"match": {"title": "ray"}},
    "sudo pkill -TERM -f vllm.entrypoints": {"match": {"profile": "vllm"}},
    "ps aux | grep sglang | grep -v grep | awk '{print $2}' | xargs kill -9": {"match": {"profile": "sglang"}},
    "ps -ef | grep '[m]y_server' | awk '{print $2}' | xargs -r kill": {"match": {"cmdline": "my_server"}},
    "kill $(pgrep -f my_server)": {"match": {"cmdline": "my_server"}},
    "pgrep -f my_server | xargs kill -9": {"match": {"cmdline": "my_server"}},
    "lsof -ti:8000 | xargs kill -9": {"match": {"port": 8000}},
    "kill -9 $(lsof -t -i:8000)": {"match": {"port": 8000}},
    "fuser -k 8000/tcp": {"match": {"port": 8000}},
    "nvidia-smi --query-compute-apps=pid --format=csv,noheader | xargs kill": {"match": {"gpu": "any"}},
    "kill 4711": {"pid": 4711},
    "pkill python": {"match": {"gpu": "any"}},
}


@pytest.mark.parametrize("line", KILLS)
def test_a_kill(line):
    assert steps(line) == [{"kill": KILLS[line]}]


def test_a_kill_of_all_python_is_of_the_engine_that_the_script_starts():
    assert steps("pkill python\n" + START)[0] == {"kill": {"match": {"profile": "sglang"}}}


WAITS = {
    "until curl -sf localhost:8000/health; do sleep 5; done": ({"status": 200}, "45m", {"endless-loop"}),
    "until curl -s localhost:8000/health; do sleep 5; done": ({"status": 200}, "45m", {"endless-loop", "status-ignored"}),
    "for i in $(seq 60); do curl -sf http://localhost:8000/health && break; sleep 5; done": ({"status": 200}, "300s", set()),
    "for i in {1..10}; do curl -sf http://localhost:8000/health > /dev/null && break; sleep 1m; done": ({"status": 200}, "600s", set()),
    'while [ "$(curl -s -o /dev/null -w "%{http_code}" localhost:8000/health)" != 200 ]; do sleep 1; done': (
        {"status": 200},
        "45m",
        {"endless-loop"},
    ),
    "until curl -s localhost:8000/health | grep ok; do sleep 5; done": ({"status": 200}, "45m", {"endless-loop", "empty-body"}),
    "while ! curl -s localhost:8000/v1/models | grep -q data; do sleep 5; done": ({"status": 200, "body": "data"}, "45m", {"endless-loop"}),
}


@pytest.mark.parametrize("line", WAITS)
def test_a_wait_for_a_server(line):
    expect, patience, warned = WAITS[line]
    wait = steps(line)[-1]["wait_healthy"]
    assert (wait["expect"], wait["timeout"]) == (expect, patience)
    assert traps(line) == warned


def test_a_body_that_the_engine_does_have_is_asked_for():
    text = "nohup llama-server --port 8000 > log &\nuntil curl -s localhost:8000/health | grep ok; do sleep 5; done"
    assert steps(text)[-1]["wait_healthy"]["expect"] == {"status": 200, "body": "ok"} and "empty-body" not in traps(text)


def test_a_wait_for_gpu_memory_keeps_its_bound():
    text = "while [ $(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | sort -n | tail -1) -gt 2000 ]; do sleep 2; done"
    assert steps(text) == [{"wait_gpu_free": {"below": "2000MiB", "stable_for": "3s", "timeout": "5m"}}]
    assert traps(text) == {"endless-loop"}


def test_a_launch_takes_over_folder_environment_and_constants():
    text = "PORT=8123\nexport NCCL_DEBUG=INFO\ncd /srv\nsource venv/bin/activate\nCUDA_VISIBLE_DEVICES=0,1 nohup python -m sglang.launch_server --port $PORT > x.log 2>&1 &"
    found = translated(text)
    assert found.vars == {"PORT": 8123}
    assert found.steps[0].step["launch"] == {
        "command": ["python", "-m", "sglang.launch_server", "--port", "${{ vars.PORT }}"],
        "cwd": "/srv",
        "env": {"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0,1"},
        "prelude": "source venv/bin/activate",
        "profile": "sglang",
    }
    assert [made.step for made in found.always] == [{"kill": {"step": "server"}}]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("nohup python -m vllm.entrypoints.openai.api_server &", "lost-output"),
        ("python -m sglang.launch_server 2>&1 | tee log &", "tee-pipe"),
        ("pkill -9 -f sglang", "hard-kill"),
        ("pkill python", "wide-kill"),
        ("killall -9 python3", "wide-kill"),
        ("ps aux | grep x | awk '{print $2}' | xargs kill", "text-kill"),
        ("pkill -f sglang", "text-kill"),
        ("pkill -9 -f sglang", "text-kill"),
        ("pkill sglang", "text-kill"),
        ("kill $(pgrep -f my_server)", "text-kill"),
        ("curl -s localhost:8000/v1/models", "status-ignored"),
        ("pkill -f sglang || true", "swallowed-failure"),
        (START + "sleep 300", "fixed-sleep"),
        ("grep '[EAGLE3-DEBUG]' /tmp/log", "bracket-class"),
        ("grep x /tmp/log", "old-log"),
        ("nohup python -m sglang.launch_server >> a.log 2>&1 &\ngrep x a.log", "old-log"),
        ("tail -f server.log", "endless-tail"),
        ("sed -i 's/a/b/' /opt/x/llama_eagle3.py", "lasting-edit"),
        ("python - <<'E'\nopen('/opt/x.py', 'w').write('x')\nE", "lasting-edit"),
        ("while true; do nvidia-smi; sleep 1; done", "endless-loop"),
        ("while :; do date; sleep 1; done", "endless-loop"),
    ],
)
def test_a_trap_is_named(line, code):
    assert code in traps(line)


def test_a_log_that_the_script_begins_anew_is_not_an_old_one():
    text = START + "curl -sf localhost:8000/v1/models\ngrep models server.log"
    assert traps(text) == {"stops-at-the-end"}
    assert steps(text)[-1] == {"id": "seen", "grep": {"log": "server", "since": "answer", "pattern": "models"}}


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        (
            "curl -X POST -H 'X-Key: a' localhost:8000/generate -d 'x=1' -m 30",
            {"post": "/generate", "data": "x=1", "headers": {"X-Key": "a"}, "timeout": "30s"},
        ),
        ("curl -s http://127.0.0.1:8000/v1/models | jq .", {"get": "/v1/models"}),
        ("curl localhost:8000/v1/models | grep -q tiny", {"get": "/v1/models", "expect": {"text": "tiny"}}),
    ],
)
def test_a_request(line, request_):
    made = steps(line)
    assert made[0] == {"id": "server", "attach": {"port": 8000}}
    assert made[1]["request"] == {"server": "server", **request_}


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        (r"grep 'a\|b(c)+' /x/l", r"a|b\(c\)\+"),
        (r"grep -E '(a|b)+' /x/l", "(a|b)+"),
        (r"grep -F 'a.b' /x/l", r"a\.b"),
        ("tail -n 500 /x/l | grep -i oom", "(?i)oom"),
        ("grep -e 'x y' -A 3 /x/l", "x y"),
    ],
)
def test_a_pattern_means_the_same(line, pattern):
    assert steps(line)[0]["grep"] == {"file": "/x/l", "pattern": pattern}


def test_ssh_names_the_host_and_its_script_is_translated_in_place():
    found = translated("ssh -p 2222 root@box 'pkill -f sglang; sleep 1'\nssh -p 2222 root@box 'nvidia-smi'")
    assert found.hosts == {"gpu": "root@box:2222"} and len(found.steps) == 2
    assert found.steps[0].step == {"kill": {"match": {"profile": "sglang"}}}
    assert [(one.code, one.span.column) for one in found.traps if one.span] == [("text-kill", 23), ("fixed-sleep", 40)]


def test_what_has_no_step_stays_shell_text_with_what_it_needs():
    found = translated('MODEL=/m\nNOW=$(date)\n# which files\nls -la $MODEL\necho "$NOW"\nif [ -e x ]; then\n  rm x\nfi')
    assert [made.step["run"] for made in found.steps] == [
        'set +e\nMODEL=${{ vars.MODEL }}\nNOW=$(date)\n# which files\nls -la $MODEL\necho "$NOW"\nif [ -e x ]; then\n  rm x\nfi'
    ]


def test_a_failure_that_the_script_forgives_is_forgiven_by_its_step_alone():
    assert steps("ls /nonexistent || true") == [{"run": "ls /nonexistent || true"}]
    assert steps("curl localhost:8000/x || true")[-1] == {
        "id": "answer",
        "ignore_errors": True,
        "request": {"server": "server", "get": "/x"},
    }


def test_text_that_looks_like_an_expression_stays_text():
    assert steps("echo '${{ x }}'") == [{"run": "echo '$${{ x }}'"}]


@pytest.mark.parametrize(
    "line",
    ["kill 0", "kill %1", "docker exec c pkill python", "grep -v x f", "curl -d @f localhost:1/x", "a && b || c", "lsof -ti | xargs kill"],
)
def test_what_means_something_else_is_not_guessed(line):
    assert "run" in steps(line)[0]


@pytest.mark.parametrize(("text", "line"), [("echo 'x", 1), ("true\nif x; then", 2), ("a )", 1)])
def test_what_is_no_shell_script_is_said_with_its_place(text, line):
    found = translate(text, "x.sh", syntax.parser())
    assert isinstance(found, Diagnostic) and found.span is not None and found.span.line == line


def test_without_a_parser_the_reason_is_said(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(syntax.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(syntax.NoParser):
        syntax.parser()


@pytest.mark.parametrize(
    "line",
    [
        "grep -q ERROR log && exit 1",
        "test -f nope && exit 3",
        "curl -sf localhost:8000/health && exit 1",
        "! curl -sf localhost:8000/health",
        "curl -F f=@x localhost:8000/upload",
        "curl -sT weights localhost:8000/upload",
        "curl -sG -d q=1 localhost:8000/search",
        "curl -d a=1 -d b=2 localhost:8000/form",
        "curl localhost:8000/metrics > metrics.txt",
        "curl -o metrics.txt localhost:8000/metrics",
    ],
)
def test_what_no_step_does_stays_the_script_that_it_is(line):
    assert [made["run"].removesuffix("\ntrue") for made in steps(START + line) if "run" in made] == [line]


def test_a_class_that_only_grep_knows_is_written_as_python_does():
    assert steps(START + "grep -E 'took [[:digit:]]+[[:space:]]ms' server.log")[-1]["grep"]["pattern"] == r"took [0-9]+[\s]ms"
