"""Names of hosts and people become aliases: stable, told apart, and nothing else changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.engine.redaction.public import Aliases, of_run
from runbook.model.event import HostConnected, RunStarted
from tests.support.secret_texts import harmless

HEADER = RunStarted(
    format=1,
    run="r",
    version="1",
    playbook="/home/alice/p.yaml",
    playbook_text="",
    playbook_sha256="",
    name="n",
    targets={"gpu": [{"target": "alice@falcon:2222"}, {"target": "local"}], "other": [{"target": "heron"}]},
    vars={},
    controller={"host": "lynx.corp.example", "user": "alice"},
)
CONNECTED = HostConnected(host="falcon", address="alice@10.1.2.3:22", facts={"hostname": "dgx-77", "user": "svc-infer"}, seconds=0.1)


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("connect 10.0.0.7:29500 and 10.0.0.8, 10.0.0.7 again", "connect ip-1:29500 and ip-2, ip-1 again"),
        ("/home/alice/models/x", "~/models/x"),
        ('File "/home/alice/a.py", line 3', 'File "~/a.py", line 3'),
        ("mail alice@corp.example.com", "mail user-1@host-1"),
        ("node7.gpu.internal and ip-10-0-0-9.ec2.internal", "host-1 and host-2"),
        ("on ip-10-0-0-9 now", "on host-1 now"),
        ("[2001:db8::7]:80 fe80::1", "[ip-1]:80 ip-2"),
        ("/mnt/team7/llama", "/mnt/dir-1/llama"),
    ],
)
def test_names_are_found_by_their_form(text, public):
    assert Aliases().text(text) == public


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:30000 0.0.0.0 ::1 localhost",
        "nvidia-cublas-cu12==12.4.5.8 driver v1.2.3.4",
        "git@github.com:o/r",
        "10:42:11 12:34:56 torch::jit c10d::add",
        "/usr/lib/python3.11/site-packages/x.py /root/x /tmp/home/y",
        "rank 3 on host, user lab, time box",
    ],
)
def test_what_names_nobody_stays(text):
    assert Aliases(["box", "lab", "localhost"], ["root"]).text(text) == text


def test_a_run_tells_its_own_names():
    aliases = of_run([HEADER, CONNECTED])
    text = "alice on lynx (lynx.corp.example) drives falcon as svc-infer, heron is idle; dgx-77 says hi; falconry"
    assert aliases.text(text) == "user-1 on host-3 (host-3) drives host-1 as user-2, host-2 is idle; host-4 says hi; falconry"
    assert aliases.value({"falcon": ["alice", 3]}) == {"host-1": ["user-1", 3]}


@given(
    st.lists(
        st.one_of(st.sampled_from([*harmless(), "10.0.0.7", "/home/al", "a@b.co", "x.internal", "falcon", "alice"]), st.text(max_size=20)),
        max_size=6,
    )
)
def test_twice_is_once(parts):
    text = " ".join(parts)
    aliases = of_run([HEADER, CONNECTED])
    once = aliases.text(text)
    assert aliases.text(once) == once
    assert "10.0.0.7" not in once and "falcon" not in once.split()
