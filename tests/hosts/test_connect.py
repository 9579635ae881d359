"""Targets connected for real: the helper over OpenSSH, behind prefixes and jump hosts, and every way it can go wrong."""

from __future__ import annotations

import os
import pwd
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runbook.hosts.base import AuthRefused, Cancelled, CancelToken, ConnectFailed, Host, HostKeyRefused, LinkLost, NoPython, ResolveFailed
from runbook.hosts.connect import CONFIG_VARIABLE, connect
from runbook.hosts.ssh_config import resolve
from runbook.model.clock import SystemClock
from runbook.model.playbook import Target
from tests.support.relay import Relay
from tests.support.sshd import Sshd, free_port, until

pytestmark = pytest.mark.e2e
Dial = Callable[..., Host]


@pytest.fixture
def dial(tmp_path: Path) -> Iterator[Dial]:
    """Connect to the alias `box` of a server; further arguments are those of the target and of `connect`."""
    hosts: list[Host] = []

    def connect_to(
        server: Sshd, target: str = "box", *, cancel: CancelToken | None = None, notes: list[str] | None = None, **fields: object
    ) -> Host:
        resolve.cache_clear()  # a test may rewrite the file under the same name
        env = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), CONFIG_VARIABLE: str(server.client_config)}
        note = notes.append if notes is not None else lambda text: None
        host = connect(Target(target=target, **fields), clock=SystemClock(), cancel=cancel, note=note, env=env, cwd=tmp_path)  # type: ignore[arg-type]
        hosts.append(host)
        return host

    yield connect_to
    for host in hosts:
        host.close()


def via_relay(relay: Relay, server: Sshd, **options: str) -> None:
    server.write_client_config(port=relay.listen_port, **options)
    server.known_hosts.write_text(server.known_hosts_line().replace(str(server.port), str(relay.listen_port)))


# what works ----------------------------------------------------------------------------------------------------------


def test_a_command_runs_over_ssh(sshd: Sshd, dial: Dial) -> None:
    host = dial(sshd)
    done = host.run(["sh", "-c", "echo $HOME; exit 4"])
    assert (done.exit, done.stdout) == (4, f"{sshd.home}\n".encode())
    assert host.address == f"{sshd.user}@127.0.0.1:{sshd.port}" and host.facts.user == sshd.user


def test_files_are_written_read_and_removed(sshd: Sshd, dial: Dial, tmp_path: Path) -> None:
    host = dial(sshd)
    data = os.urandom(100_000)
    host.write(str(tmp_path / "f"), data, mode=0o640)
    assert (tmp_path / "f").read_bytes() == data and (tmp_path / "f").stat().st_mode & 0o777 == 0o640
    assert host.read(str(tmp_path / "f"), offset=10, limit=20).data == data[10:30]


def test_a_start_file_that_talks_does_not_matter(sshd: Sshd, dial: Dial) -> None:
    (sshd.home / ".bashrc").write_text("echo welcome; echo 'to the box' >&2; printf '\\033[2J'\n")
    assert dial(sshd).run(["echo", "clean"]).stdout == b"clean\n"


def test_an_address_with_user_and_port_needs_no_alias(sshd: Sshd, dial: Dial) -> None:
    sshd.write_client_config(alias="*", HostName="%h")
    assert dial(sshd, f"{sshd.user}@127.0.0.1:{sshd.port}").run(["true"]).exit == 0


def test_a_prefix_stands_before_the_helper(sshd: Sshd, dial: Dial) -> None:
    host = dial(sshd, via="env 'RUNBOOK_TEST=a b'")
    assert host.run(["sh", "-c", 'echo "$RUNBOOK_TEST"']).stdout == b"a b\n"


def test_a_prefix_as_a_list_is_taken_word_by_word(sshd: Sshd, dial: Dial) -> None:
    host = dial(sshd, via=["env", "RUNBOOK_TEST=it's; $HOME `id` \\ !x"])
    assert host.run(["sh", "-c", 'echo "$RUNBOOK_TEST"']).stdout == b"it's; $HOME `id` \\ !x\n"


def test_another_interpreter_is_used_when_named(sshd: Sshd, dial: Dial, tmp_path: Path) -> None:
    link = tmp_path / "my python"
    link.symlink_to(os.path.realpath(sys.executable))
    assert dial(sshd, python=str(link)).facts.python.endswith("my python")


def test_the_helper_runs_as_another_user_behind_sudo(sshd: Sshd, other_user: str, dial: Dial) -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    via = f"sudo -n -u {other_user}" if other_user != me else "env X=1"
    host = dial(sshd, via=via)
    assert host.facts.user == other_user and host.run(["id", "-un"]).stdout == f"{other_user}\n".encode()


def test_targets_behind_one_jump_host_share_its_connection(start_sshd: Callable[..., Sshd], dial: Dial) -> None:
    bastion, inner = start_sshd(), start_sshd()
    inner.known_hosts.write_text(inner.known_hosts_line() + bastion.known_hosts_line())
    alias = f"Host bastion\n  HostName {bastion.host}\n  Port {bastion.port}\n  User {bastion.user}\n  IdentityFile {bastion.key}\n"
    common = f"  IdentitiesOnly yes\n  UserKnownHostsFile {inner.known_hosts}\n"
    inner.write_client_config(ProxyJump="bastion")
    inner.client_config.write_text(alias + common + inner.client_config.read_text())
    first, second = dial(inner), dial(inner)
    assert first.run(["echo", "1"]).stdout == b"1\n" and second.run(["echo", "2"]).stdout == b"2\n"
    assert bastion.log().count("Accepted publickey") == 1 and inner.log().count("Accepted publickey") == 2
    first.close()
    assert second.run(["echo", "3"]).stdout == b"3\n"
    second.close()
    until(lambda: not bastion.sessions(), 5, "the jump host's connection ends with its last user")


def test_a_host_behind_a_jump_host_that_is_down_fails_at_tcp(start_sshd: Callable[..., Sshd], dial: Dial) -> None:
    bastion = start_sshd()
    bastion.known_hosts.write_text(bastion.known_hosts_line())
    bastion.write_client_config(alias="bastion")
    bastion.client_config.write_text(
        bastion.client_config.read_text() + f"Host box\n  HostName 127.0.0.1\n  Port {free_port()}\n  ProxyJump bastion\n"
    )
    with pytest.raises(ConnectFailed, match="the jump host could not connect") as failed:
        dial(bastion)
    assert failed.value.stage == "tcp"
    until(lambda: not bastion.sessions(), 5, "the jump host is not kept")


def test_many_targets_connect_side_by_side(sshd: Sshd, dial: Dial) -> None:
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(dial(sshd).run(["echo", "x"]).stdout)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [b"x\n"] * 12


def test_a_reset_before_the_banner_is_tried_again(sshd: Sshd, dial: Dial) -> None:
    """The first two connections are dropped, as by MaxStartups; the third reaches the server."""
    with socket.create_server(("127.0.0.1", 0)) as front:
        sshd.write_client_config(port=front.getsockname()[1], StrictHostKeyChecking="no")

        def serve() -> None:
            for _ in range(2):
                front.accept()[0].close()
            peer = front.accept()[0]
            far = socket.create_connection((sshd.host, sshd.port))
            for one, other in ((peer, far), (far, peer)):
                threading.Thread(target=pump, args=(one, other), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        assert dial(sshd).run(["true"]).exit == 0


def pump(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass


# what it costs -------------------------------------------------------------------------------------------------------


def test_a_call_is_one_round_trip(sshd: Sshd, relay_to: Callable[..., Relay], dial: Dial) -> None:
    relay = relay_to(sshd.host, sshd.port)
    via_relay(relay, sshd)
    host = dial(sshd)
    host.run(["true"])
    relay.reset_counts()
    for _ in range(50):
        host.run(["true"])
    assert relay.round_trips / 50 <= 1.3


def test_four_megabytes_of_output_come_intact_and_in_linear_time(sshd: Sshd, dial: Dial, tmp_path: Path) -> None:
    host = dial(sshd)
    data = os.urandom(1 << 20) * 4
    (tmp_path / "data").write_bytes(data)
    seconds = {}
    for size in (1 << 20, 4 << 20):
        before = time.monotonic()
        assert host.run(["head", "-c", str(size), str(tmp_path / "data")], keep_bytes=8 << 20).stdout == data[:size]
        seconds[size] = time.monotonic() - before
    assert seconds[4 << 20] < 8 * seconds[1 << 20] + 1.0


# what goes wrong -----------------------------------------------------------------------------------------------------


def test_a_new_host_key_is_noted(sshd: Sshd, dial: Dial) -> None:
    sshd.known_hosts.unlink()
    notes: list[str] = []
    dial(sshd, notes=notes)
    assert [note for note in notes if note.startswith("new host [127.0.0.1]")]


def test_a_changed_host_key_stops_before_the_login(sshd: Sshd, dial: Dial) -> None:
    sshd.known_hosts.write_text(sshd.known_hosts_line(sshd.key))
    with pytest.raises(HostKeyRefused):
        dial(sshd)
    assert "Accepted" not in sshd.log()


def test_a_wrong_key_is_refused(sshd: Sshd, dial: Dial) -> None:
    (sshd.folder / "authorized_keys").write_text("")
    with pytest.raises(AuthRefused):
        dial(sshd)


def test_a_misspelt_name_suggests_the_right_one(sshd: Sshd, dial: Dial, tmp_path: Path) -> None:
    (tmp_path / "hosts.yaml").write_text("hosts:\n  big-box: {host: box}\n")
    with pytest.raises(ResolveFailed, match=r"`bigbox` is not in hosts\.yaml") as failed:
        dial(sshd, "bigbox")
    assert failed.value.hint == "did you mean `big-box`?"


def test_a_name_of_hosts_yaml_whose_address_does_not_resolve_is_said_to_be_there(sshd: Sshd, dial: Dial, tmp_path: Path) -> None:
    (tmp_path / "hosts.yaml").write_text("hosts:\n  my-box: {host: gpu7.invalid, user: me}\n")
    with pytest.raises(
        ResolveFailed, match=r"`my-box` of hosts\.yaml leads to `me@gpu7\.invalid`, and the name `gpu7\.invalid` cannot"
    ) as failed:
        dial(sshd, "my-box")
    assert failed.value.hint == "correct `host:` of `my-box` in hosts.yaml, or name `gpu7.invalid` in ssh_config"


def test_a_name_of_hosts_yaml_leads_to_its_alias(sshd: Sshd, dial: Dial, tmp_path: Path) -> None:
    (tmp_path / "hosts.yaml").write_text("hosts:\n  big-box: {host: box, via: env WHERE=inside, gpus: [2]}\n")
    host = dial(sshd, "big-box")
    assert host.run(["sh", "-c", "echo $WHERE"]).stdout == b"inside\n" and (host.name, host.gpu_indices) == ("big-box", [2])


@pytest.mark.parametrize("fields", [{"python": "/opt/none/python3"}, {"via": "env PATH=/nowhere"}])
def test_no_python_names_the_setting(fields: dict[str, str], sshd: Sshd, dial: Dial) -> None:
    with pytest.raises(NoPython) as failed:
        dial(sshd, **fields)
    assert "python:" in failed.value.hint
    until(lambda: not sshd.sessions(), 5, "the connection is not kept")


def test_a_prefix_that_fails_is_quoted(sshd: Sshd, dial: Dial) -> None:
    with pytest.raises(NoPython, match="no such container") as failed:
        dial(sshd, via=["sh", "-c", "echo 'no such container: sglang' >&2; exit 1"])
    assert "via:" in failed.value.hint


def test_a_line_break_in_the_prefix_is_refused(sshd: Sshd, dial: Dial) -> None:
    with pytest.raises(ResolveFailed):
        dial(sshd, via=["env", "A=1\n2"])


def test_a_black_holed_link_releases_a_waiting_call(sshd: Sshd, relay_to: Callable[..., Relay], dial: Dial) -> None:
    relay = relay_to(sshd.host, sshd.port)
    via_relay(relay, sshd, ServerAliveInterval="1", ServerAliveCountMax="2")
    host = dial(sshd)
    threading.Timer(0.3, relay.black_hole).start()
    before = time.monotonic()
    with pytest.raises(LinkLost, match="no answer to keepalives"):
        host.run(["sleep", "60"], timeout_s=60)
    assert time.monotonic() - before <= 0.3 + 1 * 2 + 1


def test_a_killed_session_is_a_lost_link(sshd: Sshd, dial: Dial) -> None:
    host = dial(sshd)
    threading.Timer(0.2, lambda: os.kill(sshd.sessions()[0], signal.SIGKILL)).start()
    with pytest.raises(LinkLost):
        host.run(["sleep", "60"], timeout_s=60)
    with pytest.raises(LinkLost):
        host.run(["true"])


def test_cancel_ends_a_running_call_at_once(sshd: Sshd, dial: Dial) -> None:
    host, cancel = dial(sshd), CancelToken()
    host.cancel = cancel
    threading.Timer(0.2, cancel.set).start()
    before = time.monotonic()
    with pytest.raises(Cancelled):
        host.run(["sleep", "60"], timeout_s=60)
    assert time.monotonic() - before < 0.2 + 0.5


@pytest.mark.parametrize("where", ["tcp", "banner", "helper"])
def test_cancel_ends_a_connect_at_once(where: str, sshd: Sshd, dial: Dial) -> None:
    cancel = CancelToken()
    via = ["sh", "-c", "exec sleep 5"] if where == "helper" else ""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        if where == "tcp":
            sshd.write_client_config(ProxyCommand="sleep 60")
        elif where == "banner":
            sshd.write_client_config(port=silent.getsockname()[1])
        threading.Timer(0.5, cancel.set).start()
        before = time.monotonic()
        with pytest.raises(Cancelled):
            dial(sshd, cancel=cancel, via=via)
        assert time.monotonic() - before < 0.5 + 0.5


CTRL_C = """
import os, signal, sys, threading
from runbook.hosts.connect import connect
from runbook.model.clock import SystemClock
from runbook.model.playbook import Target
host = connect(Target(target="box"), clock=SystemClock())
try:
    print("ready", flush=True)
    host.run(["sleep", "60"], timeout_s=60)
except KeyboardInterrupt:
    host.close()
    print("left", flush=True)
"""


def test_ctrl_c_returns_from_a_waiting_call(sshd: Sshd) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CTRL_C], env={**os.environ, CONFIG_VARIABLE: str(sshd.client_config)}, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    before = time.monotonic()
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "left\n"
    assert child.wait(10) == 0 and time.monotonic() - before < 3.0


def test_nothing_is_left_on_the_host_after_close(sshd: Sshd, dial: Dial) -> None:
    host = dial(sshd)
    helper = host.facts.pid
    assert Path(f"/proc/{helper}").exists()
    host.close()
    until(lambda: not Path(f"/proc/{helper}").exists(), 5)
    assert [path for path in sshd.home.rglob("*") if path.is_file()] == []


def test_local_is_a_target_too(dial: Dial, sshd: Sshd) -> None:
    host = dial(sshd, "local", via=shlex.join(["env", "X=1 2"]))
    assert host.run(["sh", "-c", "echo $X"]).stdout == b"1 2\n"
