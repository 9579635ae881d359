"""The inference server over real HTTP, in real processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.conftest import Engine
from tests.support.waiting import until

pytestmark = pytest.mark.e2e
Start = Callable[..., Engine]
EAGLE3 = ("--speculative-algorithm", "EAGLE3")


def test_health_is_refused_then_503_then_200_always_empty_and_sigterm_ends_with_0(engine: Start) -> None:
    """The founding case: nobody who waits for a text in this body will ever see one."""
    server, seen = engine(*EAGLE3), []
    deadline = time.monotonic() + 60
    while "200" not in seen and time.monotonic() < deadline:
        try:
            answer = server.ask("/health")
            assert answer.body == b""
            seen.append(str(answer.status))
        except ConnectionRefusedError:
            seen.append("refused")
        time.sleep(0.05)
    assert list(dict.fromkeys(seen)) == ["refused", "503", "200"]
    assert answer.seconds >= 1.0
    ranks = server.ranks()
    server.process.terminate()
    assert server.process.wait(20) == 0
    assert ranks and not any(map(_runs, ranks))


def test_an_idle_health_check_is_a_one_token_prefill(session_engine: Start) -> None:
    server = session_engine(*EAGLE3)
    offset = len(server.log)
    answer = server.ask("/health")
    assert (answer.status, answer.body) == (200, b"") and answer.seconds >= 1.0
    new = server.log[offset:]
    assert "Prefill batch, #new-seq: 1, #new-token: 1, #cached-token: 0," in new
    assert re.search(r'^\[[\d: -]+\] INFO: +127\.0\.0\.1:\d+ - "GET /health HTTP/1\.1" 200 OK$', new, re.M)


def test_a_right_draft_is_accepted_and_a_bypassed_fusion_is_not(session_engine: Start) -> None:
    """Both answer 200 and the same text: only the acceptance length tells."""
    right, wrong = session_engine(*EAGLE3), session_engine("--speculative-algorithm", "EAGLE")
    good, bad = right.chat(max_tokens=256), wrong.chat(max_tokens=256)
    assert good.json["choices"] == bad.json["choices"]
    assert good.json["usage"]["completion_tokens"] == 256
    assert good.json["meta_info"]["spec_accept_length"] > 4
    assert bad.json["meta_info"]["spec_accept_length"] < 1.5
    assert "Traceback" not in wrong.log
    decode = re.search(r"Decode batch, #running-req: 1, .*accept len: (\d+\.\d\d), accept rate: (\d\.\d\d), .*gen throughput", right.log)
    assert decode and float(decode[1]) > 4
    info = wrong.ask("/get_server_info").json
    assert info["internal_states"][0]["avg_spec_accept_length"] < 1.5


def test_acceptance_holds_far_behind_the_training_length(session_engine: Start) -> None:
    answer = session_engine(*EAGLE3).chat(max_tokens=600)
    assert answer.json["meta_info"]["spec_accept_length"] > 4


def test_a_stream_gives_the_same_text_in_pieces(session_engine: Start) -> None:
    server = session_engine(*EAGLE3)
    whole = server.chat(max_tokens=64).json["choices"][0]["message"]["content"]
    lines = server.chat(max_tokens=64, stream=True, stream_options={"include_usage": True}).body.decode().split("\n\n")
    assert lines[-2] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert "".join(c["choices"][0]["delta"]["content"] for c in chunks[:-1]) == whole
    assert len(chunks) > 10
    assert chunks[-1]["usage"]["completion_tokens"] == 64
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"


def test_the_server_says_who_it_is(session_engine: Start) -> None:
    server = session_engine(*EAGLE3)
    info = server.ask("/get_server_info").json
    assert (info["speculative_algorithm"], info["tp_size"], info["model_path"], info["port"]) == ("EAGLE3", 1, "tiny", server.port)
    assert [model["id"] for model in server.ask("/v1/models").json["data"]] == ["tiny"]
    assert server.ask("/get_model_info").json["model_path"] == "tiny"


def test_metrics_move_with_the_tokens(session_engine: Start) -> None:
    server = session_engine(*EAGLE3)

    def count() -> int:
        found = re.search(r'^sglang:generation_tokens_total\{model_name="tiny"\} (\d+)$', server.ask("/metrics").body.decode(), re.M)
        assert found
        return int(found[1])

    before = count()
    assert server.ask("/v1/completions", {"prompt": "abc", "max_tokens": 7}).json["usage"]["completion_tokens"] == 7
    assert count() - before == 7
    assert re.search(r"^sglang:spec_accept_length\{.*\} [1-5]\.\d+$", server.ask("/metrics").body.decode(), re.M)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{not json", "not JSON"),
        ([1, 2], "not a JSON object"),
        ({"messages": []}, "messages must be"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages must be"),
        ({"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}, "max_tokens must be"),
        ({"messages": [{"role": "user", "content": "x"}], "max_tokens": 5000}, "the context length is 2048"),
        ({"messages": [{"role": "user", "content": "x"}], "stream_options": 3}, "stream_options must be"),
    ],
)
def test_a_bad_request_is_a_400_with_a_sentence(session_engine: Start, body: object, says: str) -> None:
    answer = session_engine(*EAGLE3).ask("/v1/chat/completions", body)
    assert answer.status == 400
    assert says in answer.json["message"]


def test_ranks_are_renamed_keep_their_environment_and_agree(session_engine: Start) -> None:
    """Two ranks share every layer by real collectives; the text is that of one rank."""
    one, two = session_engine(*EAGLE3), session_engine(*EAGLE3, "--ranks", "2")
    titles = [Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode() for pid in two.ranks()]
    assert sorted(titles) == ["sglang::scheduler_TP0", "sglang::scheduler_TP1"]
    assert all(b"LAB_TEST_MARK=kept" in Path(f"/proc/{pid}/environ").read_bytes() for pid in two.ranks())
    answer = two.chat(max_tokens=64)
    assert answer.json["choices"] == one.chat(max_tokens=64).json["choices"]
    assert answer.json["meta_info"]["spec_accept_length"] > 4
    for rank in ("TP0", "TP1"):
        assert len(re.findall(rf"^\[[\d: -]+ {rank}\] Load weight end\. elapsed=\d+\.\d\d s, type=Llama\w+, avail mem", two.log, re.M)) == 2
    assert two.ask("/get_server_info").json["tp_size"] == 2


def test_the_log_goes_through_the_phases_in_order(session_engine: Start) -> None:
    marks = [
        "server_args=",
        "Init parallel begin.",
        "Init parallel ends.",
        "Load weight begin. avail mem=",
        "type=LlamaForCausalLM,",
        "type=LlamaForCausalLMEagle3,",
        "KV Cache is allocated.",
        "max_total_num_tokens=",
        "Uvicorn running on",
        '"POST /generate HTTP/1.1" 200',
        "The server is fired up and ready to roll!",
    ]
    log = session_engine(*EAGLE3).log
    places = [log.find(mark) for mark in marks]
    assert -1 not in places and places == sorted(places)
    assert "\rLoading safetensors checkpoint shards:  50% Completed | 2/4 [" in log


def test_health_waits_while_the_scheduler_is_stopped(session_engine: Start) -> None:
    """It neither lies nor fails at once; what needs no scheduler still answers."""
    server = session_engine("--speculative-algorithm", "EAGLE")
    (rank,) = server.ranks()
    os.kill(rank, signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        server.ask("/health", timeout=3)
    assert server.ask("/v1/models").status == 200
    os.kill(rank, signal.SIGCONT)
    assert until(lambda: server.ask("/health").status == 200, 20)


def test_sigkill_of_the_main_process_ends_the_ranks_and_frees_their_gpus(engine: Start, home: Path) -> None:
    server = engine("--ranks", "2").ready()
    ranks = server.ranks()
    assert sorted(_gpu_memory(home, ranks)) == [4696, 4696]  # context, weights and half the KV pool each, MiB
    server.process.kill()
    server.process.wait(10)
    until(lambda: not any(map(_runs, ranks)) and _gpu_memory(home, ranks) == [], 10)


def test_a_killed_rank_takes_the_server_down(engine: Start) -> None:
    server = engine(*EAGLE3).ready()
    os.kill(server.ranks()[0], signal.SIGKILL)
    assert server.process.wait(20) == -signal.SIGKILL
    assert re.search(r"Subprocess scheduler_0 \(pid=\d+\) crashed with exit code -9", server.log)
    assert "SIGQUIT received. signum=3, It usually means one child failed." in server.log


@pytest.mark.parametrize("phase", ["draft_load", "prefill"])
def test_a_crash_names_its_cause_before_its_echo(engine: Start, phase: str) -> None:
    server = engine(*EAGLE3, "--crash-at", phase)
    assert server.process.wait(60) == -signal.SIGKILL
    cause = server.log.index("Scheduler hit an exception: Traceback")
    assert "mat1 and mat2 shapes cannot be multiplied (22x256 and 384x128)" in server.log[cause:]
    assert cause < server.log.index("It usually means")


def test_a_taken_port_is_noticed_only_after_the_load(engine: Start, session_engine: Start) -> None:
    taken = session_engine(*EAGLE3).port
    server = engine(*EAGLE3, port=taken)
    assert server.process.wait(60) > 0
    assert "address already in use" in server.log
    assert server.log.index("KV Cache is allocated") < server.log.index("address already in use")


def test_a_throttled_load_reads_slowly_and_can_be_stopped(engine: Start) -> None:
    server = engine("--load-rate", "20KiB")
    until(lambda: "Load weight begin" in server.log, 30)
    (rank,) = server.ranks()

    def read() -> int:
        return int(re.findall(r"^rchar: (\d+)", Path(f"/proc/{rank}/io").read_text())[0])

    before, begin = read(), time.monotonic()
    until(lambda: read() - before > 8192, 10)
    assert (read() - before) / (time.monotonic() - begin) < 200_000
    with pytest.raises(ConnectionRefusedError):
        server.ask("/health")
    server.process.terminate()
    assert server.process.wait(10) == 0


def test_a_memory_hog_takes_real_pages(engine: Start) -> None:
    """Under a limit on address space the allocation fails for real."""
    server = engine("--mem-hog", "8GiB", prefix=("prlimit", f"--as={3 << 30}"))
    assert server.process.wait(60) == -signal.SIGKILL
    assert re.search(r"Scheduler hit an exception: Traceback[\s\S]*(can't allocate memory|MemoryError)", server.log)


def _gpu_memory(home: Path, pids: list[int]) -> list[int]:
    """MiB that nvidia-smi reports for these processes."""
    argv = [str(home / "bin" / "nvidia-smi"), "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    rows = [line.split(", ") for line in subprocess.run(argv, capture_output=True, text=True, timeout=20).stdout.splitlines()]
    return [int(size) for pid, size in rows if int(pid) in pids]


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    return False
