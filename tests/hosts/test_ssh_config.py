"""Targets resolved as ssh would, and what cannot be honoured said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.hosts.base import ResolveFailed
from runbook.hosts.ssh_config import is_default_key, resolve, split_target


def config(folder: Path, text: str) -> str:
    file = folder / "config"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("box", ("", "box", None)),
        ("me@box", ("me", "box", None)),
        ("me@box:2222", ("me", "box", 2222)),
        ("box:22", ("", "box", 22)),
        ("me@[::1]:2222", ("me", "::1", 2222)),
        ("[fe80::1%eth0]", ("", "fe80::1%eth0", None)),
        ("::1", ("", "::1", None)),
        ("me@corp.com@box", ("me@corp.com", "box", None)),
    ],
)
def test_target_forms(text: str, expected: tuple[str, str, int | None]) -> None:
    assert split_target(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "me@", "@box", "box:", "box:http", "box:0", "box:70000", "-oProxyCommand=id", "a;id", "$(id)@box", "-x@box", "bo x", "box:٣"],
)
def test_a_text_that_is_no_host_is_refused_before_anything_runs(text: str) -> None:
    with pytest.raises(ResolveFailed) as refused:
        resolve(text)
    assert refused.value.hint


@given(st.text(max_size=40))
def test_any_text_is_a_target_or_a_clear_refusal(text: str) -> None:
    try:
        _, host, port = split_target(text)
    except ResolveFailed as refused:
        assert refused.summary and refused.hint
    else:
        assert host and not host.startswith("-") and (port is None or 0 < port < 65536)


def test_include_and_match_are_followed_by_the_openssh_client(tmp_path: Path) -> None:
    (tmp_path / "more").write_text("Host gpu\n  Port 2201\n")
    text = f"Include {tmp_path}/more\nMatch host gpu.lab\n  User carol\nHost gpu\n  HostName gpu.lab\nMatch final host gpu.lab\n  ServerAliveInterval 7\n"
    got = resolve("gpu", config(tmp_path, text))
    assert (got.host, got.port, got.alive_interval_s, got.alive_count) == ("gpu.lab", 2201, 7, 3)


def test_all_that_decides_a_connection_is_resolved(tmp_path: Path) -> None:
    text = f"""Host gpu
  HostName 10.0.0.7
  User carol
  IdentityFile {tmp_path}/%r_at_%n
  CertificateFile ~/cert.pub
  IdentitiesOnly yes
  IdentityAgent {tmp_path}/agent
  ProxyJump bob@bastion:2200,second
  UserKnownHostsFile {tmp_path}/a {tmp_path}/b
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
  HostKeyAlias cluster
  ConnectTimeout 4
  AddressFamily inet
  HashKnownHosts no
"""
    got = resolve("gpu", config(tmp_path, text))
    assert (got.host, got.user, got.port) == ("10.0.0.7", "carol", 22)
    assert got.identity_files == (f"{tmp_path}/carol_at_gpu",)
    assert got.certificate_files == (f"{Path.home()}/cert.pub",)
    assert got.identities_only and got.identity_agent == f"{tmp_path}/agent"
    assert got.proxy_jump == ("bob@bastion:2200", "second") and got.proxy_command == ""
    assert got.user_known_hosts == (f"{tmp_path}/a", f"{tmp_path}/b") and got.global_known_hosts == ()
    assert (got.strict, got.host_key_alias, got.connect_timeout_s, got.family) == ("yes", "cluster", 4.0, "inet")
    assert got.notes == ()


def test_user_and_port_of_the_target_win_over_the_file(tmp_path: Path) -> None:
    got = resolve("dave@gpu:2299", config(tmp_path, "Host gpu\n  HostName gpu.lab\n  User carol\n  Port 22\n"))
    assert (got.user, got.host, got.port) == ("dave", "gpu.lab", 2299)


def test_a_proxy_command_has_its_tokens_filled_in(tmp_path: Path) -> None:
    got = resolve("carol@gpu:2201", config(tmp_path, "Host gpu\n  HostName gpu.lab\n  ProxyCommand nc -X 5 %h %p # 100%% %r %n\n"))
    assert got.proxy_command == "nc -X 5 gpu.lab 2201 # 100% carol gpu"


def test_proxy_none_means_no_proxy(tmp_path: Path) -> None:
    got = resolve("gpu", config(tmp_path, "Host gpu\n  ProxyJump none\nHost *\n  ProxyJump bastion\n"))
    assert (got.proxy_jump, got.proxy_command) == ((), "")


def test_what_is_not_honoured_is_said(tmp_path: Path) -> None:
    got = resolve("gpu", config(tmp_path, "Host gpu\n  ForwardAgent yes\n  PKCS11Provider /lib/p.so\n  IdentityFile /k/%C\n"))
    assert set(got.notes) == {
        "ssh_config's forwardagent is not honoured",
        "ssh_config's pkcs11provider is not honoured",
        "`%C` in ssh_config is not known here",
    }


def test_a_broken_file_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ResolveFailed, match=r"config.* line 2: .*nonsense"):
        resolve("gpu", config(tmp_path, "Host gpu\n  Nonsense yes\n"))


def test_the_agent_socket_comes_from_the_environment_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/s/agent")
    monkeypatch.setenv("OTHER", "/s/other")
    text = "Host none\n  IdentityAgent none\nHost var\n  IdentityAgent $OTHER\nHost braces\n  IdentityAgent ${OTHER}.2\n"
    file = config(tmp_path, text)
    assert [resolve(name, file).identity_agent for name in ("plain", "none", "var", "braces")] == ["/s/agent", "", "/s/other", "/s/other.2"]


def test_without_an_openssh_client_the_file_is_read_and_include_and_match_are_said(tmp_path: Path) -> None:
    text = "Host gpu\n  HostName gpu.lab\n  Port 2201\nInclude more\nMatch host gpu\n  User evil\nHost *\n  User carol\n"
    file = config(tmp_path, text)
    got = resolve("gpu", file, ssh=None)
    assert (got.host, got.port, got.user) == ("gpu.lab", 2201, "carol")
    assert [note.split(" needs")[0] for note in got.notes] == [f"{file}:4: `Include more`", f"{file}:5: `Match host gpu`"]


def test_both_ways_of_reading_agree_on_a_plain_file(tmp_path: Path) -> None:
    text = f"Host gpu\n  HostName %h.lab\n  User carol\n  IdentityFile {tmp_path}/k\n  StrictHostKeyChecking no\n  UserKnownHostsFile {tmp_path}/kh\n  ServerAliveInterval 5\n"
    file = config(tmp_path, text)
    with_client, without = resolve("gpu", file), resolve("gpu", file, ssh=None)
    for name in ("host", "port", "user", "identity_files", "strict", "user_known_hosts", "alive_interval_s", "proxy_jump"):
        assert getattr(with_client, name) == getattr(without, name), name


def test_default_keys_are_told_from_named_ones() -> None:
    assert is_default_key(os.path.expanduser("~/.ssh/id_ed25519")) and not is_default_key("/keys/deploy")
