"""Targets to places: hosts.yaml, the lab's file, aliases; mistakes with their place."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from runbook.hosts.base import ResolveFailed
from runbook.hosts.inventory import BadInventory, did_you_mean, load
from runbook.model.playbook import Target


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


BOX = "hosts:\n  big-box:\n    host: gpu7.lab\n    user: me\n    port: 2222\n    via: docker exec -i 'my box'\n    python: /opt/py\n    gpus: [0, 1]\n    vars: {tp: 8}\n"


def test_a_name_of_hosts_yaml_has_all_its_fields(tmp_path: Path, env: dict[str, str]) -> None:
    write(tmp_path / "hosts.yaml", BOX)
    place = load(tmp_path, env).place(Target(target="big-box"))
    assert (place.kind, place.ssh, place.via, place.python) == ("ssh", "me@gpu7.lab:2222", ("docker", "exec", "-i", "my box"), "/opt/py")
    assert place.gpus == [0, 1] and place.vars == {"tp": 8}


def test_what_the_playbook_says_wins_over_the_file(tmp_path: Path, env: dict[str, str]) -> None:
    write(tmp_path / "hosts.yaml", BOX)
    target = Target(target="big-box", via=["sudo", "-n"], python="/usr/bin/python3", gpus=[3], vars={"tp": 4, "x": 1})
    place = load(tmp_path, env).place(target)
    assert (place.via, place.python, place.gpus, place.vars) == (("sudo", "-n"), "/usr/bin/python3", [3], {"tp": 4, "x": 1})


def test_the_file_of_the_folder_wins_over_the_users_name_by_name(tmp_path: Path, env: dict[str, str]) -> None:
    write(tmp_path / "config/runbook/hosts.yaml", "hosts:\n  a: {host: far}\n  b: {host: only-here}\n")
    write(tmp_path / "hosts.yaml", "hosts:\n  a: {host: near}\n  c:\n")
    inventory = load(tmp_path, env)
    assert [inventory.place(Target(target=name)).ssh for name in "abc"] == ["near", "only-here", "c"]
    assert inventory.known == ["local", "lab", "a", "b", "c"]


@pytest.mark.parametrize("text", ["me@box", "box", "me@box:2200", "[::1]:22"])
def test_everything_else_goes_to_ssh_as_it_is(text: str, tmp_path: Path, env: dict[str, str]) -> None:
    place = load(tmp_path, env).place(Target(target=text))
    assert (place.kind, place.ssh) == ("ssh", text)


def test_an_ipv6_host_with_a_port_gets_its_brackets(tmp_path: Path, env: dict[str, str]) -> None:
    write(tmp_path / "hosts.yaml", "hosts:\n  six: {host: 'fe80::1', port: 2200}\n")
    assert load(tmp_path, env).place(Target(target="six")).ssh == "[fe80::1]:2200"


def test_local_needs_no_file(tmp_path: Path, env: dict[str, str]) -> None:
    assert load(tmp_path, env).place(Target(target="local", via="sudo -n")).kind == "local"


def test_the_lab_is_where_its_file_says(tmp_path: Path, env: dict[str, str]) -> None:
    said = {"host": "127.0.0.1", "port": 40022, "user": "lab", "key": "/k", "known_hosts": "/kh", "pid": 7}
    write(tmp_path / "state/runbook/lab/lab.json", json.dumps(said))
    place = load(tmp_path, env).place(Target(target="lab"))
    assert place.kind == "lab" and place.lab is not None and (place.lab.port, place.lab.key) == (40022, "/k")


def test_a_lab_that_is_down_says_how_to_start_it(tmp_path: Path, env: dict[str, str]) -> None:
    with pytest.raises(ResolveFailed, match="not up") as failed:
        load(tmp_path, env).place(Target(target="lab"))
    assert "runbook lab up" in failed.value.hint


@pytest.mark.parametrize("text", ["{", "[]", '{"host": 5}', "\0\x01"])
def test_a_damaged_lab_file_is_said(text: str, tmp_path: Path, env: dict[str, str]) -> None:
    write(tmp_path / "state/runbook/lab/lab.json", text)
    with pytest.raises(ResolveFailed, match=r"lab\.json cannot be read"):
        load(tmp_path, env).place(Target(target="lab"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hosts:\n  box: {prot: 22}\n", r"hosts\.yaml:2:9: host `box`: unknown key `prot`$"),
        ("hosts:\n  a:\n  box: {port: many}\n", r"hosts\.yaml:3:15: host `box`: `port` must be a whole number, not the text `many`"),
        ("hosts:\n  box: {port: 99999}\n", r":2:15: there is no port 99999"),
        ("hosts:\n  box: {host: me@x, user: you}\n", r":2:15: `box` has its user twice"),
        ("hosts:\n  box: {host: 'x:22', port: 23}\n", r":2:15: `box` has its port twice"),
        ("hosts:\n  box: {host: a b}\n", r":2:15: `a b` is not a host"),
        ("hosts:\n  box: {host: '${{ vars.x }}'}\n", r":2:15: an expression has no meaning here"),
        ("hosts:\n  box: 10.0.0.1\n", r":2:8: host `box` must be a mapping, not the text `10.0.0.1`"),
        ("hosts:\n  a b: {}\n", r":2:3: `a b` cannot name a host"),
        ("hosts:\n  local: {host: x}\n", r":2:3: `local` is always this machine"),
        ('hosts:\n  box: {via: "sudo \'x"}\n', r":2:14: `via` cannot be split into words"),
        ("hosts:\n  a: {}\n  box: {via: a}\n", r":3:14: `via: a` names a host"),
        ("hosts:\n  box: {protect: [{}]}\n", r":2:19: a rule of `protect:` is about processes"),
        ("hosts: [a]\n", r":1:8: `hosts` must be a mapping, not a list"),
        ("hosst: {}\n", r":1:1: unknown key `hosst`$"),
        ("[a]\n", "has the keys `hosts:`"),
        ("hosts: {a: {}}\ngroups: {a: [a]}\n", r":2:10: `a` is a host and a group$"),
        ("groups: [a]\n", "`groups` must be a mapping"),
        ("groups: {a: []}\n", r":1:13: the group `a` has no host"),
        ("groups: {a: b}\n", r":1:13: group `a` must be a list or a mapping"),
        ("groups: {a: [b], c: [a]}\n", r":1:22: `a` is a group, and a group is made of hosts"),
        ("groups: {a: [b, b]}\n", r":1:17: `b` is there twice"),
        ("groups: {a: {hosts: [b], usr: x}}\n", r":1:26: group `a`: unknown key `usr`"),
        ("groups: {a: {hsots: [b]}}\n", r":1:14: group `a`: unknown key `hsots`$"),
        ("hosts:\n  a: {}\n groups: {b: [a]}\n", r":3:2: `groups` is indented by 1 blank"),
        ("ansible: nowhere.ini\n", r":1:10: the Ansible inventory .*nowhere.ini cannot be read"),
        ("just text\n", "has the keys `hosts:`"),
        ("hosts:\n\tbox: {}\n", r"hosts\.yaml:2:"),
        ("hosts:\n  a: {}\n  a: {}\n", r"hosts\.yaml:3:.*a"),
        ("\x00\x01", r"hosts\.yaml"),
    ],
)
def test_a_mistake_in_hosts_yaml_has_its_place(text: str, words: str, tmp_path: Path, env: dict[str, str]) -> None:
    write(tmp_path / "hosts.yaml", text)
    with pytest.raises(ResolveFailed, match=words) as failed:
        load(tmp_path, env)
    assert failed.value.hint


def test_all_mistakes_are_told_at_once_and_the_first_counts_the_others(tmp_path: Path, env: dict[str, str]) -> None:
    write(tmp_path / "hosts.yaml", "hosts:\n  a: {prot: 1}\n  b: {port: x}\ngroups:\n  c: []\n")
    with pytest.raises(BadInventory, match=r":2:7: .*\(and 2 more: `runbook hosts` lists them\)") as failed:
        load(tmp_path, env)
    assert [(one.span.line, one.span.column) for one in failed.value.diagnostics if one.span] == [(2, 7), (3, 13), (5, 6)]
    assert all(one.hint for one in failed.value.diagnostics)


@pytest.mark.parametrize("text", ["", "# hosts: {a: {}}\n", "hosts:\n"])
def test_a_file_without_hosts_has_none(text: str, tmp_path: Path, env: dict[str, str]) -> None:
    write(tmp_path / "hosts.yaml", text)
    assert load(tmp_path, env).known == ["local", "lab"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hosts: {big-box: {}}\ngroups: {g: [big-bx, big-box]}\n", "did you mean `big-box`?"),
        ("hosts: {a: {host: b}, b: {host: 10.0.0.1}}\n", "write the address of `b`"),
    ],
)
def test_what_is_rarely_meant_is_a_warning(text: str, said: str, tmp_path: Path, env: dict[str, str]) -> None:
    write(tmp_path / "hosts.yaml", text)
    assert [one.hint for one in load(tmp_path, env).warnings] == [said]


@pytest.mark.parametrize(
    "text", ["hosts: {gpu7: {}}\ngroups: {g: [gpu7, gpu8, gpu77]}\n", "hosts: {a: {host: b, via: sudo -n}, b: {production: true}}\n"]
)
def test_names_of_a_kind_and_two_ways_into_one_host_are_no_slip(text: str, tmp_path: Path, env: dict[str, str]) -> None:
    write(tmp_path / "hosts.yaml", text)
    assert list(load(tmp_path, env).warnings) == []


def test_what_is_no_file_is_not_waited_for(tmp_path: Path, env: dict[str, str]) -> None:
    os.mkfifo(tmp_path / "hosts.yaml")
    with pytest.raises(BadInventory, match="it is no regular file"):
        load(tmp_path, env)


def test_an_open_quote_in_via_is_said(tmp_path: Path, env: dict[str, str]) -> None:
    with pytest.raises(ResolveFailed, match="via"):
        load(tmp_path, env).place(Target(target="box", via="sudo -u 'me"))


def test_a_misspelt_name_is_recognised() -> None:
    assert did_you_mean("big-bx", ["local", "lab", "big-box"]) == "did you mean `big-box`?"
    assert did_you_mean("zzz", ["local", "lab", "big-box"]) == ""


GROUPS = """\
hosts:
  gpu7: {user: root, vars: {tp: 4}, labels: {card: h100}}
groups:
  pair: {hosts: [gpu7, gpu8], user: me, via: sudo -n, vars: {tp: 8, ib: true}, labels: {site: a}, shared: true}
  short: [gpu8, local]
"""


def test_a_host_has_what_its_groups_give_it_where_it_does_not_say_otherwise(tmp_path: Path, env: dict[str, str]) -> None:
    write(tmp_path / "hosts.yaml", GROUPS)
    inventory = load(tmp_path, env)
    seven, eight = (inventory.hosts[name] for name in ("gpu7", "gpu8"))
    assert (seven.user, seven.via, seven.vars, seven.labels, seven.shared) == (
        "root",
        "sudo -n",
        {"tp": 4, "ib": True},
        {"site": "a", "card": "h100"},
        True,
    )
    assert (eight.user, eight.vars) == ("me", {"tp": 8, "ib": True})
    assert inventory.groups == {"pair": ["gpu7", "gpu8"], "short": ["gpu8", "local"]}
    assert inventory.place(Target(target="gpu8")).ssh == "me@gpu8"
