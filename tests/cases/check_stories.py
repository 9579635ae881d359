"""Cases of a check that can never match, and of memory that somebody else holds, told by their signals."""

from __future__ import annotations

from runbook.diagnose.check import check_sample
from runbook.model.gpu import GpuHolder
from runbook.model.question import Expectation
from runbook.model.sample import Seen
from tests.cases.telling import GIB, MIB, Told, answered, at, full, gpu, listens, proc, refused, tell

READY = {0.0: "INFO:     Application startup complete."}


def up(look, profile: str, **question) -> Told:
    """A ready, idle server of ours."""

    def whole(s: float) -> dict:
        idle = proc(title="vllm serve m", run_s=9 + s / 1000, switches=500 + int(s), wchan="ep_poll")
        return full(log=at(s, READY), processes=[idle], listeners=listens(), **look(s))

    return tell(whole, profile, seconds=60, every=5, **question)


def c33() -> Told:
    """A proxy answers for the loopback address."""
    page = b"<html><head><title>ERROR: The requested URL could not be retrieved</title></head></html>"
    headers = {"via": "1.1 cache03.corp.example (squid/5.7)", "content-type": "text/html;charset=utf-8"}
    return up(lambda s: {"check": answered(503, page, headers=headers)}, "vllm")


def c34() -> Told:
    """It wants credentials, and the check has none."""
    return up(lambda s: {"check": answered(401, b'{"error":"Unauthorized"}', path="/v1/models")}, "vllm", path="/v1/models")


def c35() -> Told:
    """The check goes to IPv6, the server listens on IPv4."""
    return up(lambda s: {"check": refused("http://[::1]:8000/health")}, "vllm")


def c36() -> Told:
    """200 with an empty body, and a condition on a word."""
    wanted = Expectation(body="ok")
    check = Seen(check_sample("http://127.0.0.1:30000/health", "answer", 1.0, wanted, status=200))

    def look(s: float) -> dict:
        lines = {0.0: "[2031-06-03 12:00:31] The server is fired up and ready to roll!"}
        main = proc(title="python -m sglang.launch_server", run_s=9 + s / 1000, switches=500 + int(s), wchan="ep_poll")
        return full(log=at(s, lines), processes=[main], listeners=listens(), check=check)

    return tell(look, "sglang", seconds=60, every=5, expect=wanted)


def c44() -> Told:
    """Renamed workers of a dead server hold the memory, and it does not fall."""
    held = GpuHolder(pid=31804, user="svc", title="sglang::scheduler_DP0_TP0_EP0", age_s=11500.0, used=101_376 * MIB)
    return tell(
        lambda s: {"log": None, "gpus": Seen((gpu(used=101_380 * MIB, utilisation=0, holders=(held,)),))},
        "generic",
        about="gpu_free",
        seconds=60,
        every=3,
        below=GIB,
        stable_for_s=3.0,
    )


def c46() -> Told:
    """Memory in use, and no process to be seen."""
    unknown = GpuHolder(pid=1532877, title="[Not Found]", used=10_141 * MIB)
    return tell(
        lambda s: {"log": None, "gpus": Seen((gpu(6, used=10_151 * MIB, utilisation=100, holders=(unknown,)),))},
        "generic",
        about="gpu_free",
        seconds=60,
        every=3,
        below=GIB,
        stable_for_s=3.0,
    )


STORIES = {"C-33": c33, "C-34": c34, "C-35": c35, "C-36": c36, "C-44": c44, "C-46": c46}
