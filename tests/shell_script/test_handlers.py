"""Jobs that a script owns, and what it does at its end: nothing of it is lost on the way to a playbook."""

from __future__ import annotations

import pytest

from tests.shell_script.test_translate import steps, translated

OWNS = "python3 -m http.server 8123 > s.log 2>&1 &\nSRV=$!\n{}\ncurl -sf http://127.0.0.1:8123/\n"
LAUNCH = {"command": ["python3", "-m", "http.server", "8123"], "port": 8123}


@pytest.mark.parametrize("handler", ["'kill $SRV'", '"kill $SRV"', "-- 'kill $SRV'", "'kill $!'", "'kill $SRV; wait $SRV 2>/dev/null'"])
def test_a_server_that_a_trap_ends_is_launched_and_ended_by_the_run(handler):
    found = translated(OWNS.format(f"trap {handler} EXIT") + "echo $SRV\n")
    assert found.steps[0].step == {"id": "server", "launch": LAUNCH}
    assert found.steps[-1].step == {"run": "SRV=${{ steps.server.pid }}\necho $SRV"}
    assert [made.step for made in found.always] == [{"kill": {"step": "server"}}]


def test_a_server_that_the_script_ends_itself_is_launched():
    assert [list(one)[-1] for one in steps(OWNS.format("sleep 1") + "kill $SRV")] == ["launch", "request", "kill"]


@pytest.mark.parametrize("quote", ["'", '"'])
def test_what_else_a_trap_does_is_kept(quote):
    found = translated(OWNS.format(f"trap {quote}kill $SRV; echo bye > bye{quote} EXIT"))
    assert [made.step for made in found.always] == [{"kill": {"step": "server"}}, {"run": "echo bye > bye"}]
    found = translated("nohup " + OWNS.format("trap 'kill $! && rm -rf x' EXIT"))
    assert "rm -rf x" in str([made.step for made in found.always])


@pytest.mark.parametrize(
    "text",
    [
        "sleep 3 &\nJOB=$!\ntrap 'kill $JOB' EXIT\ncurl -sf localhost:1/x",
        "sleep 3 &\ntrap 'kill $!' EXIT\ncurl -sf localhost:1/x",
        'D=a\nD=b\ntrap "rm -rf $D" EXIT\ncurl -sf localhost:1/x',
        "D=$(mktemp -d)\ntrap \"rm -rf '$D'\" EXIT\ncurl -sf localhost:1/x",
        'trap "$1" EXIT\ncurl -sf localhost:1/x',
        "trap 'echo a' EXIT\ncurl -sf localhost:1/x\ntrap - EXIT\necho b",
    ],
)
def test_what_only_its_own_shell_knows_stays_in_one_script_with_its_trap(text):
    found = translated(text)
    (only,) = (made.step["run"] for made in found.steps)
    assert "trap " in str(only) and "curl " in str(only) and found.always == []


CALLS_OTHERS = {
    '"$@"': ('a() { "$@"; }', "a b"),
    '"$@" twice': ('a() { "$@"; }\nc() { a "$@"; }', "c b && echo ok || echo bad"),
    "a variable": ("F=b", "$F"),
    "what a loop names": ("", "for c in b; do $c; done"),
    "export": ("", "export -f b; bash -c b"),
    "declare": ("", 'bash -c "$(declare -f b); b"'),
    "eval": ("", "eval b"),
    "a local": ("a() { local F=b; $F; }", "a"),
    "an array": ("", 'N=(b one); "${N[@]}"'),
    "behind nothing": ("SUDO=", "$SUDO b"),
}


@pytest.mark.parametrize("how", CALLS_OTHERS)
def test_a_function_that_is_called_without_its_name_is_there(how):
    above, call = CALLS_OTHERS[how]
    made = steps(f"b() {{ echo hi > r.txt; }}\n{above}\nkill 4711\n{call}\n")[-1]["run"]
    text = made if isinstance(made, str) else made["shell"]
    assert "b() { echo hi > r.txt; }" in text and text.index("b() {") < text.index(call.split(";")[0])


@pytest.mark.parametrize("program", ["PY=python3", 'PY="${PY:-python3}"', "PY=/opt/$X/python"])
def test_a_program_in_a_variable_calls_no_function(program):
    assert "log()" not in str(steps(f"log() {{ echo hi; }}\n{program}\nkill 4711\n$PY bench.py > bench.txt")[-1])


def test_of_two_servers_each_is_asked_on_its_own_port():
    server = "python3 -m http.server 81{0} &\nS{0}=$!\n"
    ask = "curl -sf localhost:8123/\ncurl -sf localhost:8124/\n"
    made = steps(server.format(23) + server.format(24) + "trap 'kill $S23 $S24' EXIT\n" + ask)
    assert [one["launch"]["port"] for one in made[:2]] == [8123, 8124]
    assert [one["request"]["server"] for one in made[2:]] == [one["id"] for one in made[:2]]
