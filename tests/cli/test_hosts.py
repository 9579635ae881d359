"""`runbook hosts`: hosts.yaml, groups, ssh's configuration, Ansible's inventory and Slurm's jobs, by processes that answer as theirs do."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from runbook.cli.main import exit_code
from runbook.cli.sources import load

HOSTS = "hosts:\n  gpu7: {user: me, labels: {card: h100}, production: true}\ngroups:\n  pair: [gpu7, gpu8]\n"
ANSIBLE = {
    "_meta": {
        "hostvars": {
            "box1": {
                "ansible_host": "10.0.0.7",
                "ansible_user": "me",
                "ansible_port": 2222,
                "tp": 8,
                "ansible_python_interpreter": "/opt/py/bin/python3",
            },
            "box2": {"cards": "h100", "ansible_python_interpreter": "auto", "not-a-name": 1},
        }
    },
    "all": {"children": ["ungrouped", "site"]},
    "gpu": {"hosts": ["box1", "box2"]},
    "site": {"children": ["gpu"]},
}
"""As `ansible-inventory --list` of ansible-core 2.19 prints it, shortened."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    """A folder with hosts.yaml, an ssh_config, and commands of its own on the path."""
    (tmp_path / "hosts.yaml").write_text(HOSTS)
    (tmp_path / "ssh_config").write_text("Host gpu7\n  HostName 10.1.1.7\n  Port 2207\n  ProxyJump door\n")
    (tmp_path / "bin").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNBOOK_SSH_CONFIG", str(tmp_path / "ssh_config"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    return tmp_path


def command(folder: Path, name: str, says: str, code: int = 0) -> None:
    """A command that prints this."""
    path = folder / "bin" / name
    path.write_text(f"#!/bin/sh\ncat <<'E'\n{says}\nE\nexit {code}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_the_list_has_every_host_with_its_groups_labels_and_marks(here, capsys):
    assert exit_code(["hosts"]) == 0
    assert capsys.readouterr().out == "gpu7  me@gpu7  production  [pair]  card=h100\ngpu8  gpu8  [pair]\n"


def test_a_host_is_shown_with_what_ssh_makes_of_it(here, capsys):
    assert exit_code(["hosts", "gpu7", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["hosts"]
    assert (row["address"], row["port"], row["user"], row["jump"], row["groups"]) == ("10.1.1.7", 2207, "me", ["door"], ["pair"])
    assert exit_code(["hosts", "gpu7"]) == 0
    assert "\n  address       10.1.1.7\n" in capsys.readouterr().out


def test_a_name_that_is_in_no_file_is_what_ssh_says(here, capsys):
    assert exit_code(["hosts", "you@elsewhere:2200"]) == 0
    out = capsys.readouterr().out
    assert "not in hosts.yaml: an ssh alias or address" in out and "2200" in out and "you" in out


def test_a_role_may_name_a_group_in_the_file_and_on_the_command_line(here):
    (here / "a.yaml").write_text("runbook: 1\nhosts: {nodes: [pair, local], other: lab}\nsteps:\n  - {host: nodes, run: uname}\n")
    book, found, _ = load("a.yaml", roles=["other=pair"])
    assert book is not None, found
    assert [one.target for one in book.hosts["nodes"]] == ["gpu7", "gpu8", "local"]
    assert [one.target for one in book.hosts["other"]] == ["gpu7", "gpu8"]
    assert book.hosts["nodes"][0].production


def test_the_nodes_of_a_slurm_job_are_a_target(here, capsys):
    command(here, "squeue", "RUNNING|node[03-04]")
    command(here, "scontrol", "node03\nnode04")
    assert exit_code(["hosts", "slurm:4711", "--targets"]) == 0
    assert capsys.readouterr().out == "node03,node04\n"
    (here / "a.yaml").write_text("runbook: 1\nhosts: {nodes: local}\nsteps:\n  - run: uname\n")
    book, found, _ = load("a.yaml", roles=["nodes=slurm:4711"])
    assert book is not None and [one.target for one in book.hosts["nodes"]] == ["node03", "node04"], found


@pytest.mark.parametrize(
    ("says", "code", "words"),
    [("PENDING|", 0, "is pending and has no nodes yet"), ("", 0, "is not in the queue"), ("", 1, "`squeue` failed: exited 1")],
)
def test_a_job_without_nodes_is_a_usage_error_that_says_why(here, capsys, says, code, words):
    command(here, "squeue", says, code)
    assert exit_code(["hosts", "slurm:4711"]) == 2
    assert words in capsys.readouterr().err


def test_an_ansible_inventory_is_read_by_ansible_itself(here, capsys):
    (here / "inventory.ini").write_text("[gpu]\n")
    (here / "hosts.yaml").write_text("ansible: inventory.ini\nhosts:\n  box2: {user: root}\n")
    command(here, "ansible-inventory", json.dumps(ANSIBLE))
    assert exit_code(["hosts", "site", "--json"]) == 0
    one, two = json.loads(capsys.readouterr().out)["hosts"]
    assert (one["ssh"], one["python"], one["vars"]) == ("me@10.0.0.7:2222", "/opt/py/bin/python3", {"tp": 8})
    assert (two["ssh"], two["python"], two["vars"]) == ("root@box2", None, {"cards": "h100"})


def test_an_inventory_that_ansible_cannot_read_is_said_with_its_place(here, capsys):
    (here / "inventory.ini").write_text("")
    (here / "hosts.yaml").write_text("hosts: {}\nansible: inventory.ini\n")
    command(here, "ansible-inventory", "no json")
    assert exit_code(["hosts"]) == 2
    assert "hosts.yaml:2:10: error[bad-inventory]" in capsys.readouterr().err


UNPARSED = """#!/bin/sh
if [ "$ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED" != true ]; then echo '{"_meta": {"hostvars": {}}}'; exit 0; fi
echo "[WARNING]: Failed to parse inventory with 'ini' plugin: Section [gpu:children] includes undefined group 'nope'." >&2
echo "[ERROR]: Completely failed to parse inventory source inventory.ini" >&2
exit 1
"""
"""As `ansible-inventory` of ansible-core 2.19 answers, shortened: unless it is asked to be strict, with a warning and no hosts."""


def test_what_ansible_does_not_understand_is_no_empty_inventory(here, capsys):
    (here / "inventory.ini").write_text("[gpu:children]\nnope\n")
    (here / "hosts.yaml").write_text("ansible: inventory.ini\n")
    command(here, "ansible-inventory", "")
    (here / "bin" / "ansible-inventory").write_text(UNPARSED)
    assert exit_code(["hosts"]) == 2
    err = capsys.readouterr().err
    assert "hosts.yaml:1:10: error[bad-inventory]" in err and "includes undefined group 'nope'" in err


def test_a_bad_hosts_yaml_is_told_to_programs_as_everything_else(here, capsys):
    (here / "hosts.yaml").write_text("hosts:\n  a: {prot: 1}\n  b: {port: x}\n")
    assert exit_code(["hosts", "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdict"] == "invalid" and [(one["line"], one["col"]) for one in answer["diagnostics"]] == [(2, 7), (3, 13)]


def test_a_name_that_is_nearly_one_of_hosts_yaml_is_asked_about(here, capsys):
    assert exit_code(["hosts", "gpu7x"]) == 0
    assert "did you mean `gpu7`?" in capsys.readouterr().err
    assert exit_code(["hosts", "gpu7"]) == 0
    assert capsys.readouterr().err == ""


def test_jump_hosts_that_go_round_are_noted(here, capsys):
    (here / "ssh_config").write_text("Host gpu7\n  ProxyJump door\nHost door\n  ProxyJump gpu7\n")
    assert exit_code(["hosts", "gpu7", "--json"]) == 0
    (host,) = json.loads(capsys.readouterr().out)["hosts"]
    assert host["notes"] == ["the jump hosts go round: gpu7 -> door -> gpu7; correct `ProxyJump`"]
