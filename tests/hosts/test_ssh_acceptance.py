"""What people have in ~/.ssh, against a real sshd, through `connect`: included aliases, known_hosts of all forms, full agents, certificates."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runbook.hosts.base import AuthRefused, Host, HostKeyRefused
from runbook.hosts.connect import CONFIG_VARIABLE, connect
from runbook.hosts.ssh_config import resolve
from runbook.model.clock import SystemClock
from runbook.model.playbook import Target
from tests.support.sshd import Sshd, make_key, until

pytestmark = pytest.mark.e2e
Dial = Callable[..., Host]


@pytest.fixture
def dial(tmp_path: Path) -> Iterator[Dial]:
    """Connect to an alias of a server's client configuration."""
    hosts: list[Host] = []

    def connect_to(server: Sshd, alias: str = "box", notes: list[str] | None = None, config: Path | None = None) -> Host:
        resolve.cache_clear()  # a test may rewrite the file under the same name
        env = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), CONFIG_VARIABLE: str(config or server.client_config)}
        note = notes.append if notes is not None else lambda text: None
        hosts.append(connect(Target(target=alias), clock=SystemClock(), note=note, env=env, cwd=tmp_path))
        return hosts[-1]

    yield connect_to
    for host in hosts:
        host.close()


def name_of(server: Sshd) -> str:
    return f"[{server.host}]:{server.port}"


def public(path: Path) -> str:
    return " ".join(Path(f"{path}.pub").read_text().split()[:2])


# ssh_config ----------------------------------------------------------------------------------------------------------


def test_an_alias_in_an_included_file_leads_to_its_host(sshd: Sshd, dial: Dial, tmp_path: Path) -> None:
    inner = sshd.client_config.read_text()
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "cluster.conf").write_text(inner.replace("Host box", "Host gpu-*"))
    outer = tmp_path / "outer"
    outer.write_text(f"Include {tmp_path}/conf.d/*.conf\nMatch host gpu-7 exec true\n  ServerAliveInterval 2\n")
    host = dial(sshd, "gpu-7", config=outer)
    assert host.run(["echo", "here"]).stdout == b"here\n"


# known_hosts ---------------------------------------------------------------------------------------------------------


def test_a_changed_key_names_its_exact_line_whatever_the_lines_around_it(sshd: Sshd, dial: Dial) -> None:
    other = make_key(sshd.folder / "other")
    lines = ["# a comment", "", f"elsewhere {public(other)}", f"{name_of(sshd)} {public(other)}", f"[10.0.0.1]:22 {public(other)}"]
    sshd.known_hosts.write_text("\n".join(lines) + "\n")
    with pytest.raises(HostKeyRefused, match="has changed") as refused:
        dial(sshd)
    assert f"{sshd.known_hosts}:4 " in refused.value.summary
    assert f"ssh-keygen -R '{name_of(sshd)}' -f {sshd.known_hosts}" in refused.value.hint
    assert sshd.known_hosts.read_text().splitlines() == lines


def test_a_key_unknown_under_a_strict_policy_is_refused_with_its_fingerprint(sshd: Sshd, dial: Dial) -> None:
    sshd.known_hosts.write_text("")
    sshd.write_client_config(StrictHostKeyChecking="yes")
    shown = subprocess.run(["ssh-keygen", "-lf", f"{sshd.folder}/host_key.pub"], capture_output=True, text=True, check=True).stdout.split()[
        1
    ]
    with pytest.raises(HostKeyRefused, match="StrictHostKeyChecking is yes") as refused:
        dial(sshd)
    assert shown in refused.value.summary and f"ssh-keyscan -p {sshd.port}" in refused.value.hint
    assert sshd.known_hosts.read_text() == "" and "Accepted" not in sshd.log()


@pytest.mark.parametrize("form", ["hashed", "wildcard", "negated elsewhere", "alias", "second file"])
def test_a_key_on_record_in_any_form_is_known(form: str, sshd: Sshd, dial: Dial) -> None:
    key, notes = public(sshd.folder / "host_key"), []
    lines = {
        "hashed": f"{name_of(sshd)} {key}",
        "wildcard": f"[127.0.0.?]:* {key}",
        "negated elsewhere": f"!nobody.example,[127.*]:{sshd.port} {key}",
        "alias": f"cluster-7 {key}",
        "second file": "",
    }
    sshd.known_hosts.write_text(lines[form] + "\n")
    options = {"StrictHostKeyChecking": "yes"}
    if form == "hashed":
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(sshd.known_hosts)], check=True, capture_output=True)
        assert sshd.known_hosts.read_text().startswith("|1|")
    if form == "alias":
        options["HostKeyAlias"] = "cluster-7"
    if form == "second file":
        second = sshd.folder / "known_hosts2"
        second.write_text(f"{name_of(sshd)} {key}\n")
        options["UserKnownHostsFile"] = f"{sshd.known_hosts} {second}"
    sshd.write_client_config(**options)
    assert dial(sshd, notes=notes).facts.pid
    assert notes == []


def test_a_revoked_key_is_refused_though_a_later_line_has_it(sshd: Sshd, dial: Dial) -> None:
    key = public(sshd.folder / "host_key")
    sshd.known_hosts.write_text(f"@revoked * {key}\n{name_of(sshd)} {key}\n")
    with pytest.raises(HostKeyRefused, match="revoked") as refused:
        dial(sshd)
    assert f"{sshd.known_hosts}:1" in refused.value.summary


def test_a_host_that_is_vouched_for_by_an_authority_only_is_said_so(start_sshd: Callable[..., Sshd], dial: Dial, tmp_path: Path) -> None:
    """Host certificates are not checked: with a strict policy that is a refusal with the reason, never a silent acceptance."""
    authority = make_key(tmp_path / "authority")
    server = start_sshd()
    server.known_hosts.write_text(f"@cert-authority * {public(authority)}\n")
    server.write_client_config(StrictHostKeyChecking="yes")
    with pytest.raises(HostKeyRefused) as refused:
        dial(server)
    assert "host certificates are not supported" in refused.value.hint and f"{server.known_hosts}:1" in refused.value.hint


# keys ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def full_agent(sshd: Sshd, tmp_path: Path) -> Iterator[str]:
    """An agent with seven keys, one more than sshd lets a client try, and none of them right."""
    path = str(tmp_path / "agent.sock")
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    until(lambda: os.path.exists(path), 5)
    keys = [str(make_key(tmp_path / f"wrong{number}")) for number in range(7)]
    subprocess.run(["ssh-add", "-q", *keys], env={**os.environ, "SSH_AUTH_SOCK": path}, check=True, stdin=subprocess.DEVNULL)
    yield path
    process.terminate()
    process.wait(5)


def test_an_agent_with_seven_wrong_keys_is_named_as_the_reason(sshd: Sshd, dial: Dial, full_agent: str) -> None:
    sshd.write_client_config(IdentityAgent=full_agent, IdentitiesOnly="no")
    with pytest.raises(AuthRefused) as refused:
        dial(sshd)
    assert "Too many authentication failures" in refused.value.summary and "(agent)" in refused.value.summary
    assert "IdentitiesOnly yes" in refused.value.hint


def test_identities_only_gets_past_an_agent_with_seven_wrong_keys(sshd: Sshd, dial: Dial, full_agent: str) -> None:
    sshd.write_client_config(IdentityAgent=full_agent, IdentitiesOnly="yes")
    assert dial(sshd).run(["echo", "in"]).stdout == b"in\n"


def test_a_certificate_that_the_server_does_not_take_is_named(start_sshd: Callable[..., Sshd], dial: Dial, tmp_path: Path) -> None:
    """Expired: the key is offered with its certificate, and the refusal names the key."""
    authority = make_key(tmp_path / "ca")
    server = start_sshd(extra=f"TrustedUserCAKeys {authority}.pub\nAuthorizedKeysFile none")
    sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", "-n", server.user, "-V", "20200101:20200102", f"{server.key}.pub"]
    subprocess.run(sign, check=True, capture_output=True)
    with pytest.raises(AuthRefused) as refused:
        dial(server)
    assert str(server.key) in refused.value.summary


def test_an_unknown_jump_host_under_a_strict_policy_is_refused_before_the_host_behind_it(
    start_sshd: Callable[..., Sshd], dial: Dial
) -> None:
    """A hop is checked as any host."""
    bastion, inner = start_sshd(), start_sshd()
    alias = f"Host bastion\n  HostName {bastion.host}\n  Port {bastion.port}\n  User {bastion.user}\n  IdentityFile {bastion.key}\n"
    common = f"  IdentitiesOnly yes\n  UserKnownHostsFile {inner.known_hosts}\n  StrictHostKeyChecking yes\n"
    inner.write_client_config(ProxyJump="bastion")
    inner.client_config.write_text(alias + common + inner.client_config.read_text())
    with pytest.raises(HostKeyRefused, match=f"{bastion.port} is not known"):
        dial(inner)
    assert "Accepted" not in inner.log() and "Accepted" not in bastion.log()
