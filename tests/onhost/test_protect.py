"""What the user's own rules protect gets no signal and is not written, whoever asks, with the rule's text as the reason."""

import getpass
import os

import pytest

from runbook.hosts.base import RemoteError
from runbook.hosts.local import connect_local
from runbook.model.playbook import Protect
from runbook.steps.kill import Kill, Match
from tests.support.context import LocalContext
from tests.support.processes import is_gone, python

NEEDLE = f"needle-{os.getpid()}"
"""In nobody else's command line: neither another worker's, nor, since it is in no test's name, in that of whoever runs the tests."""
READY = "import signal; print('ready', flush=True); signal.pause()"
SERVES = (
    "import os, signal, socket, sys\n"
    "server = socket.create_server(('127.0.0.1', 0))\n"
    "open(sys.argv[1], 'w').write(str(server.getsockname()[1]))\n"
    "if os.fork() == 0:\n    server.close()\n    signal.pause()\n"
    "print('ready', flush=True)\n"
    "signal.pause()"
)


@pytest.fixture
def under(tmp_path):
    """A context on a host with these rules."""
    hosts = []

    def make(*rules):
        hosts.append(connect_local(protect=[Protect(**rule) for rule in rules]))
        return LocalContext(hosts[-1], tmp_path, box_s=30)

    yield make
    for host in hosts:
        host.close()


@pytest.mark.parametrize(
    "rule, told",
    [
        ({"user": getpass.getuser(), "why": "hers"}, f"protect: user {getpass.getuser()} (hers)"),
        ({"cmdline": NEEDLE}, f"protect: cmdline {NEEDLE}"),
        ({"title": "^python"}, "protect: title ^python"),
    ],
    ids=["user", "cmdline", "title"],  # the name of a test can be in the title of the process that runs it, and the text is looked for
)
def test_a_process_under_a_rule_is_spared_and_one_that_is_named_is_refused(under, rule, told):
    ctx = under(rule)
    with python(READY, NEEDLE) as child:
        spared = ctx.do(Kill(match=Match(cmdline=NEEDLE)))
        assert (spared.verdict, spared.fields["targets"]) == ("passed", []) and [row["why"] for row in spared.fields["protected"]] == [told]
        named = ctx.do(Kill(pid=child.pid, allow_users=[getpass.getuser()]))
        assert named.verdict == "refused" and told in named.reason
        with pytest.raises(RemoteError, match="must be left alone") as refused:  # the host's own last look
            ctx.host.kill([row.id for row in ctx.host.processes() if row.pid == child.pid], ["KILL 1s"])
        assert refused.value.code == "protected" and not is_gone(child.pid)


def test_what_a_spared_process_started_is_spared_with_it(under):
    """A wrapper whose command line has the text is not ours to end; nor are its children, of which nobody spoke."""
    ctx = under({"cmdline": NEEDLE})
    wrapper = "import subprocess, sys, signal; subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()', sys.argv[2]]); "
    with python(wrapper + READY, NEEDLE, "other-ch1ld") as child:
        (other,) = [row.pid for row in ctx.host.processes() if row.ppid == child.pid]
        spared = ctx.do(Kill(match=Match(cmdline=NEEDLE), ladder=["KILL 5s"]))
        assert (spared.verdict, spared.fields["targets"]) == ("passed", []) and not is_gone(other)
        assert ctx.do(Kill(pid=other)).fields["gone"] and is_gone(other)


@pytest.mark.parametrize("how", ["port", "pid_file"])
def test_a_service_is_protected_with_its_workers(under, how, tmp_path):
    with python(SERVES, str(tmp_path / "port")) as child:
        if how == "pid_file":
            (tmp_path / "pid").write_text(f"{child.pid}\n")
        ctx = under({how: int((tmp_path / "port").read_text()) if how == "port" else str(tmp_path / "pid")})
        found = [row for row in ctx.host.processes() if child.pid in (row.pid, row.ppid)]
        assert len(found) == 2 and all(row.protected and row.protected.startswith(f"protect: {how}") for row in found)


def test_all_keys_of_a_rule_must_hold(under, tmp_path):
    ctx = under({"cmdline": NEEDLE, "user": "nobody-of-this-name"}, {"pid_file": str(tmp_path / "none"), "title": "python"})
    with python(READY, NEEDLE) as child:
        assert ctx.do(Kill(pid=child.pid)).verdict == "passed" and is_gone(child.pid)


def test_a_file_under_a_rule_is_not_written_by_any_name(under, tmp_path):
    (tmp_path / "lib").mkdir()
    part = tmp_path / "lib" / "part.py"
    part.write_text("a = 1\n")
    os.symlink(part, tmp_path / "link.py")
    for rule in (f"{tmp_path}/lib", f"{tmp_path}/lib/*", f"{tmp_path}/*/part.py"):
        ctx = under({"file": rule, "why": "the team's install"})
        for path in (part, tmp_path / "link.py", tmp_path / "lib" / ".." / "lib" / "part.py"):
            with pytest.raises(RemoteError, match="the team's install") as refused:
                ctx.host.write(str(path), b"b")
            assert refused.value.code == "protected"
        with pytest.raises(RemoteError, match="protect: file"):
            ctx.host.patch(run="r", id="p", path=str(part), expect_sha256="x", data=b"b", undo_after_s=60)
    assert part.read_text() == "a = 1\n" and not os.path.exists(os.path.join(ctx.host.facts.state_dir, "runs", "r"))
    ctx.host.write(str(tmp_path / "other.py"), b"b")
