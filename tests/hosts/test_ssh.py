"""The SSH connection against a real OpenSSH sshd: host keys, login, time limits, dead links."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runbook.hosts.base import AuthRefused, ConnectFailed, HostKeyRefused, ResolveFailed
from runbook.hosts.ssh import BannerReset, ParamikoChannel, SshConnection
from runbook.hosts.ssh_config import SshSettings, resolve
from runbook.model.clock import SystemClock
from tests.support.relay import Relay
from tests.support.sshd import Sshd, free_port, make_key, until

pytestmark = pytest.mark.e2e


@pytest.fixture
def connection() -> Iterator[Callable[..., SshConnection]]:
    """Make connections to the alias `box` of a server's client configuration; extra arguments change the settings."""
    made: list[SshConnection] = []

    def make(server: Sshd, **changes: object) -> SshConnection:
        settings = settings_of(server)
        made.append(SshConnection(replace(settings, **changes), clock=SystemClock()))
        return made[-1]

    yield make
    for one in made:
        one.close()


def settings_of(server: Sshd) -> SshSettings:
    resolve.cache_clear()  # a test may rewrite the file under the same name
    return resolve("box", str(server.client_config))


def replace(settings: SshSettings, **changes: object) -> SshSettings:
    return SshSettings(**{**{name: getattr(settings, name) for name in settings.__struct_fields__}, **changes})  # type: ignore[arg-type]


def output(channel: ParamikoChannel) -> bytes:
    data = b""
    while piece := channel.recv(1 << 17):
        data += piece
    return data


Make = Callable[..., SshConnection]


# host keys -----------------------------------------------------------------------------------------------------------


def test_a_known_host_runs_a_command(sshd: Sshd, connection: Make) -> None:
    channel = connection(sshd).open_and_start("echo out; echo 'last words' >&2; exit 3")
    assert output(channel) == b"out\n"
    assert channel.ending() == "exited 3: last words"


def test_a_changed_host_key_is_refused_and_nothing_is_written(sshd: Sshd, connection: Make) -> None:
    other = make_key(sshd.folder / "other_host_key")
    sshd.known_hosts.write_text("# mine\n" + sshd.known_hosts_line(other))
    before = sshd.known_hosts.read_bytes()
    for strict in ("ask", "accept-new", "no", "yes"):
        with pytest.raises(HostKeyRefused, match="has changed") as refused:
            connection(sshd, strict=strict).open()
        assert f"{sshd.known_hosts}:2" in refused.value.summary
        assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}' -f {sshd.known_hosts}" in refused.value.hint
    assert sshd.known_hosts.read_bytes() == before
    assert "Accepted" not in sshd.log()


def test_both_fingerprints_of_a_changed_key_are_shown(sshd: Sshd, connection: Make) -> None:
    other = make_key(sshd.folder / "other_host_key")
    sshd.known_hosts.write_text(sshd.known_hosts_line(other))
    with pytest.raises(HostKeyRefused) as refused:
        connection(sshd).open()
    for key in (other, sshd.folder / "host_key"):
        said = subprocess.run(["ssh-keygen", "-lf", f"{key}.pub"], capture_output=True, text=True, check=True).stdout
        assert said.split()[1] in refused.value.summary


def test_an_unknown_key_is_accepted_and_written_once(sshd: Sshd, connection: Make) -> None:
    sshd.known_hosts.unlink()
    for _ in range(2):
        with connection(sshd) as one:
            one.open()
    assert sshd.known_hosts.read_text() == sshd.known_hosts_line()


def test_a_new_host_is_noted(sshd: Sshd, connection: Make) -> None:
    sshd.known_hosts.unlink()
    one = connection(sshd)
    one.open()
    assert [note for note in one.notes if note.startswith("new host") and "SHA256:" in note]


def test_the_line_we_write_is_the_one_that_ssh_accepts(sshd: Sshd, connection: Make) -> None:
    sshd.known_hosts.unlink()
    connection(sshd, hash_known_hosts=True).open()
    done = subprocess.run(
        ["ssh", "-F", str(sshd.client_config), "-o", "StrictHostKeyChecking=yes", "box", "true"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_strict_policy_refuses_an_unknown_key_and_writes_nothing(sshd: Sshd, connection: Make) -> None:
    sshd.known_hosts.unlink()
    with pytest.raises(HostKeyRefused, match="not known") as refused:
        connection(sshd, strict="yes").open()
    assert "ssh-keyscan" in refused.value.hint and not sshd.known_hosts.exists()


def test_a_revoked_key_is_refused(sshd: Sshd, connection: Make) -> None:
    sshd.known_hosts.write_text(sshd.known_hosts_line() + "@revoked " + sshd.known_hosts_line().replace(f"[127.0.0.1]:{sshd.port}", "*"))
    with pytest.raises(HostKeyRefused, match=r"revoked by .*known_hosts:2"):
        connection(sshd).open()


def test_the_key_type_on_record_is_asked_for_first(start_sshd: Callable[..., Sshd], connection: Make, tmp_path: Path) -> None:
    """A server with several keys: known by the one that is not its first choice."""
    rsa = make_key(tmp_path / "rsa_host_key", "rsa")
    server = start_sshd(extra=f"HostKey {rsa}")
    server.known_hosts.write_text(server.known_hosts_line(rsa))
    one = connection(server, strict="yes")
    one.open()
    assert one.policy.accepted is not None and one.policy.accepted.type == "ssh-rsa"


def test_a_read_only_known_hosts_does_not_stop_the_run(sshd: Sshd, connection: Make) -> None:
    sshd.known_hosts.unlink()
    one = connection(sshd, user_known_hosts=("/proc/none/known_hosts",))
    one.open()
    assert any("could not be added" in note for note in one.notes)


# login ---------------------------------------------------------------------------------------------------------------


def test_a_wrong_key_is_refused_by_name(sshd: Sshd, connection: Make) -> None:
    wrong = make_key(sshd.folder / "wrong_key")
    with pytest.raises(AuthRefused, match="refused 1 key") as refused:
        connection(sshd, identity_files=(str(wrong),)).open()
    assert str(wrong) in refused.value.summary and "authorized_keys" in refused.value.hint


def test_a_key_with_a_passphrase_is_said_to_need_one(sshd: Sshd, connection: Make) -> None:
    locked = make_key(sshd.folder / "locked_key", passphrase="open sesame")
    for path in (locked, make_key(sshd.folder / "locked_ecdsa", "ecdsa", passphrase="open sesame")):
        with pytest.raises(AuthRefused, match="no usable key") as refused:
            connection(sshd, identity_files=(str(path),)).open()
        assert f"ssh-add {path}" in refused.value.hint


@pytest.mark.parametrize(("text", "words"), [(None, "does not exist"), ("junk", "is not a private key")])
def test_a_key_file_that_cannot_be_used_is_said(text: str | None, words: str, sshd: Sshd, connection: Make, tmp_path: Path) -> None:
    file = tmp_path / "deploy"
    if text is not None:
        file.write_text(text)
    with pytest.raises(AuthRefused) as refused:
        connection(sshd, identity_files=(str(file),)).open()
    assert words in refused.value.hint


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_other_kinds_of_keys_log_in(kind: str, sshd: Sshd, connection: Make) -> None:
    key = make_key(sshd.folder / kind, kind)
    (sshd.folder / "authorized_keys").write_text(Path(f"{key}.pub").read_text())
    connection(sshd, identity_files=(str(key),)).open()


def test_the_second_key_is_tried_when_the_first_is_refused(sshd: Sshd, connection: Make) -> None:
    wrong = make_key(sshd.folder / "wrong_key")
    connection(sshd, identity_files=(str(wrong), str(sshd.key))).open()


def test_a_server_that_hangs_up_after_too_many_keys_is_explained(start_sshd: Callable[..., Sshd], connection: Make) -> None:
    server = start_sshd(extra="MaxAuthTries 2")
    keys = [str(make_key(server.folder / f"wrong{number}")) for number in range(4)]
    with pytest.raises(AuthRefused) as refused:
        connection(server, identity_files=tuple(keys)).open()
    assert "Too many authentication failures" in refused.value.summary and "IdentitiesOnly" in refused.value.hint


def test_a_user_certificate_logs_in(start_sshd: Callable[..., Sshd], connection: Make, tmp_path: Path) -> None:
    authority = make_key(tmp_path / "ca")
    server = start_sshd(extra=f"TrustedUserCAKeys {authority}.pub\nAuthorizedKeysFile none")
    subprocess.run(["ssh-keygen", "-q", "-s", str(authority), "-I", "test", "-n", server.user, f"{server.key}.pub"], check=True)
    (server.folder / "sshd_config").write_text((server.folder / "sshd_config").read_text())
    connection(server).open()


@pytest.fixture
def agent(sshd: Sshd, tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "agent.sock")
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    until(lambda: os.path.exists(path), 5)
    subprocess.run(["ssh-add", "-q", str(sshd.key)], env={**os.environ, "SSH_AUTH_SOCK": path}, check=True)
    yield path
    process.terminate()
    process.wait(5)


def test_a_key_of_the_agent_logs_in(sshd: Sshd, connection: Make, agent: str) -> None:
    connection(sshd, identity_files=(), identities_only=False, identity_agent=agent).open()


def test_identities_only_keeps_other_agent_keys_back(sshd: Sshd, connection: Make, agent: str) -> None:
    wrong = make_key(sshd.folder / "wrong_key")
    with pytest.raises(AuthRefused, match="refused 1 key"):
        connection(sshd, identity_files=(str(wrong),), identities_only=True, identity_agent=agent).open()


def test_a_named_key_is_taken_from_the_agent_when_its_file_is_locked(sshd: Sshd, connection: Make, agent: str) -> None:
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(sshd.key)], check=True)
    connection(sshd, identity_agent=agent).open()


def test_a_dead_agent_is_said(sshd: Sshd, connection: Make, tmp_path: Path) -> None:
    with pytest.raises(AuthRefused) as refused:
        connection(sshd, identity_files=(), identities_only=False, identity_agent=str(tmp_path / "gone")).open()
    assert "agent" in refused.value.hint


# time limits ---------------------------------------------------------------------------------------------------------


def test_a_closed_port_fails_at_tcp(sshd: Sshd, connection: Make) -> None:
    with pytest.raises(ConnectFailed, match="nothing listens") as failed:
        connection(sshd, port=free_port()).open()
    assert failed.value.stage == "tcp"


def test_a_name_that_leads_nowhere_fails_at_resolve(sshd: Sshd, connection: Make) -> None:
    with pytest.raises(ResolveFailed):
        connection(sshd, host="no-such-host.invalid").open()


def test_a_banner_that_never_comes_ends_within_the_budget(sshd: Sshd, connection: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        before = time.monotonic()
        with pytest.raises(ConnectFailed, match=r"sent no SSH banner within 0\.5 s") as failed:
            connection(sshd, port=silent.getsockname()[1], connect_timeout_s=0.5).open()
    assert failed.value.stage == "banner" and time.monotonic() - before < 1.5


def test_a_server_that_hangs_up_at_once_is_a_banner_reset(sshd: Sshd, connection: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            server.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(BannerReset) as failed:
            connection(sshd, port=server.getsockname()[1]).open()
    assert failed.value.stage == "banner"


@pytest.mark.parametrize(
    "banner", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"220 mail ready\r\n", b"SSH-1.5-old\r\n", b"\xff\xfe\x00" * 50 + b"\n"]
)
def test_another_service_on_the_port_is_a_clear_failure(banner: bytes, sshd: Sshd, connection: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            with server.accept()[0] as peer:
                peer.sendall(banner)
                peer.recv(1000)

        threading.Thread(target=talk, daemon=True).start()
        with pytest.raises(ConnectFailed) as failed:
            connection(sshd, port=server.getsockname()[1], connect_timeout_s=1.0).open()
    assert failed.value.stage in ("banner", "key exchange") and failed.value.hint


def test_nothing_is_printed_by_the_library(sshd: Sshd, connection: Make, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ConnectFailed):
        connection(sshd, port=silent.getsockname()[1], connect_timeout_s=0.3).open()
    channel = connection(sshd).open_and_start("sleep 30")
    os.kill(sshd.sessions()[0], signal.SIGKILL)
    assert output(channel) == b""
    assert capfd.readouterr() == ("", "")


# dead links ----------------------------------------------------------------------------------------------------------


def through(relay: Relay, server: Sshd) -> None:
    server.write_client_config(port=relay.listen_port)
    server.known_hosts.write_text(server.known_hosts_line().replace(str(server.port), str(relay.listen_port)))


def test_a_black_holed_link_releases_the_waiting_call(sshd: Sshd, relay_to: Callable[..., Relay], connection: Make) -> None:
    relay = relay_to(sshd.host, sshd.port)
    through(relay, sshd)
    channel = connection(sshd, alive_interval_s=1, alive_count=2).open_and_start("sleep 60")
    relay.black_hole()
    before = time.monotonic()
    assert channel.recv(100) == b""
    assert time.monotonic() - before <= 1 * 2 + 1
    assert "no answer to keepalives for 2 s" in channel.ending()


def test_an_idle_but_healthy_link_stays_open(sshd: Sshd, connection: Make) -> None:
    one = connection(sshd, alive_interval_s=1, alive_count=1)
    channel = one.open_and_start("sleep 2.5; echo still here")
    assert output(channel) == b"still here\n" and one.is_connected


def test_a_killed_session_is_a_lost_link(sshd: Sshd, connection: Make) -> None:
    channel = connection(sshd).open_and_start("sleep 60")
    os.kill(sshd.sessions()[0], signal.SIGKILL)
    assert channel.recv(100) == b""
    assert "closed it" in channel.ending()
    with pytest.raises(OSError):
        channel.send(b"x")


def test_closing_releases_a_waiting_read(sshd: Sshd, connection: Make) -> None:
    channel = connection(sshd).open_and_start("sleep 60")
    threading.Timer(0.1, channel.close).start()
    before = time.monotonic()
    assert channel.recv(100) == b"" and time.monotonic() - before < 1.0


def test_closing_ends_a_command_that_does_not_read_its_input(other_user: str, connection: Make) -> None:
    """sshd itself leaves it running. It passes signals on only where it separates privileges: not for root, not when not started by root."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # sshd reads authorized_keys as that user
        server = Sshd(folder, user=other_user).start()
        channel = connection(server).open_and_start("echo $$; exec sleep 60")
        pid = channel.recv(100).decode().strip()
        channel.close()
        until(lambda: not Path(f"/proc/{pid}").exists() or "requires privilege separation" in server.log(), 5)
        server.stop()


def test_four_megabytes_come_and_go_intact(sshd: Sshd, connection: Make) -> None:
    data = os.urandom(1 << 20) * 4
    channel = connection(sshd).open_and_start(f"head -c {len(data)}")
    threading.Thread(target=channel.send, args=(data,), daemon=True).start()
    before = time.monotonic()
    assert output(channel) == data
    assert time.monotonic() - before < 5.0


def test_a_command_that_floods_stderr_does_not_stall(sshd: Sshd, connection: Make) -> None:
    """Unread stderr would fill the channel's window."""
    channel = connection(sshd).open_and_start("head -c 8000000 /dev/zero >&2; echo done")
    assert output(channel) == b"done\n"


def test_opening_from_many_threads_makes_one_connection(sshd: Sshd, connection: Make) -> None:
    one = connection(sshd)
    threads = [threading.Thread(target=one.open) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert one.is_connected and sshd.log().count("Accepted publickey") == 1


# proxies -------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("nc") is None and shutil.which("ssh") is None, reason="no program to proxy with")
def test_a_proxy_command_carries_the_connection(sshd: Sshd, connection: Make) -> None:
    inner = sshd.write_client_config(alias="bastion").rename(sshd.folder / "inner_config")
    sshd.write_client_config(ProxyCommand=f"ssh -F {inner} -W %h:%p bastion")
    channel = connection(sshd).open_and_start("echo through")
    assert output(channel) == b"through\n"


def test_a_proxy_command_that_fails_is_quoted(sshd: Sshd, connection: Make) -> None:
    with pytest.raises(ConnectFailed, match="exited 4: bastion says no"):
        connection(sshd, proxy_command="echo 'bastion says no' >&2; exit 4").open()


def test_stock_fabric_run_works_on_it(sshd: Sshd, connection: Make) -> None:
    """It stays a Fabric connection: the way out for what this package does not do."""
    done = connection(sshd).run("echo by fabric", hide=True, in_stream=False)
    assert done.stdout == "by fabric\n"
