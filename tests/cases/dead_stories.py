"""Cases in which a part is dead, also behind a front that answers, told by their signals."""

from __future__ import annotations

from runbook.model.sample import Absent, Blind, Seen
from tests.cases.hung_stories import stats
from tests.cases.telling import GIB, Told, answered, at, ended, engine, full, gpu, listens, proc, tell

FRONT = "vllm serve m"


def died(lines: dict[float, str], exited, profile: str, *, when: float = 30.0, about: str = "healthy", **sources) -> Told:
    """A server that is there until a moment, and its log."""

    def look(s: float) -> dict:
        dead = s >= when
        rows = Absent("gone") if dead else [proc(run_s=s, switches=int(s) * 9)]
        return full(log=at(s, lines), processes=rows, exit=exited if dead else Absent(), **(sources if dead else {}))

    return tell(look, profile, about=about, seconds=60)


def c25() -> Told:
    """A worker is gone, the front lives, and nothing says why."""
    lines = {
        30.0: "ERROR 08-29 04:50:12 [multiproc_executor.py:241] Worker proc VllmWorker rank=[0] died unexpectedly, shutting down executor."
    }

    def look(s: float) -> dict:
        worker = [proc(102, "VLLM::Worker_TP0", ppid=101, run_s=s, switches=int(s) * 9, rank=0)] if s < 30 else []
        rows = [proc(title=FRONT, wchan="ep_poll"), proc(101, "VLLM::EngineCore", ppid=100, run_s=9.0, wchan="futex_wait_queue"), *worker]
        return full(log=at(s, lines), processes=rows, check=answered(200), listeners=listens(), engine=engine(900, 1, 2))

    return tell(look, "vllm", about="state", in_flight=3)


def c26() -> Told:
    """The engine's process is gone; the front logs requests as 200 and they wait."""

    def look(s: float) -> dict:
        core = [proc(101, "VLLM::EngineCore", ppid=100, run_s=s, switches=int(s) * 9)] if s < 30 else []
        line = stats(s, "0.0").replace("Running: 2 reqs, Waiting: 0", "Running: 0 reqs, Waiting: 3")
        return full(
            log=line,
            processes=[proc(title=FRONT, run_s=1 + s / 100, switches=500 + int(s), wchan="ep_poll"), *core],
            check=answered(200, path="/version"),
            listeners=listens(),
            engine=engine(900, 0, 3),
        )

    return tell(look, "vllm", about="state", in_flight=3, path="/version")


def c27() -> Told:
    """The kernel killed it for its memory."""
    lines = {20.0: "\rLoading checkpoint shards:  75%|#######5  | 3/4 [00:08<00:02,  2.83s/it]Killed"}
    kernel = Seen(
        (
            "[81233.402] oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=100,uid=1000",
            "[81233.402] Memory cgroup out of memory: Killed process 100 (python)",
        )
    )
    return died(
        lines, ended(41.0, signal="KILL", oom_killed=True, oom_source="kernel log"), "generic", kernel=kernel, gpus=Seen((gpu(used=0),))
    )


def c28() -> Told:
    """A rank is a zombie, its parent answers 200."""
    lines = {
        20.0: "[rank3]:[E612 02:14:07.113 ProcessGroupNCCL.cpp:632] [PG ID 2 Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88142, OpType=ALLREDUCE, Timeout(ms)=600000)",
        30.0: "terminate called after throwing an instance of 'c10::DistBackendError'",
    }

    def look(s: float) -> dict:
        rank = proc(
            104,
            "sglang::scheduler_TP3",
            ppid=100,
            state="Z" if s >= 30 else "S",
            run_s=90.0,
            switches=700,
            rank=3,
            exit_code=134 if s >= 30 else None,
        )
        others = [
            proc(101 + n, f"sglang::scheduler_TP{n}", ppid=100, run_s=90.0, switches=700, wchan="futex_wait_queue", rank=n)
            for n in range(3)
        ]
        ready = "[2031-04-02 08:11:02] The server is fired up and ready to roll!\n" if s == 0 else ""
        access = '[2031-04-02 08:12:02] INFO:     10.0.9.3:33912 - "GET /health HTTP/1.1" 200 OK\n'
        front = proc(title="python -m sglang.launch_server", run_s=1 + s / 100, switches=500 + int(s) * 5, wchan="ep_poll")
        return full(
            log=ready + at(s, lines) + access, processes=[front, *others, rank], check=answered(200, latency_s=1.0), listeners=listens()
        )

    return tell(look, "sglang", about="state", ranks=4)


def c29() -> Told:
    """A fatal line, an orderly shutdown, exit code 0."""
    lines = {
        20.0: "ERROR 08-12 23:10:44 [core.py:842] EngineCore encountered a fatal error.\n"
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasLtMatmul\n"
        "ERROR 08-12 23:10:44 [async_llm.py:480] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        30.0: "INFO:     Shutting down\nINFO:     Application shutdown complete.\nINFO:     Finished server process [1]",
    }
    return died(lines, ended(7200.9, code=0), "vllm", about="state")


def c30() -> Told:
    """Its warm-up went to a proxy, so it ended itself."""
    lines = {
        10.0: "[2031-06-20 18:29:00] INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)",
        20.0: "[2031-06-20 18:31:02] Initialization failed. warmup error: Traceback (most recent call last):\n"
        '    assert res.status_code == 200, f"{res=}, {res.text=}"\n'
        "AssertionError: res=<Response [503]>, res.text='<html><head><title>ERROR: The requested URL could not be retrieved</title>'",
        30.0: "Killed",
    }
    return died(lines, ended(131.0, signal="KILL"), "sglang")


def c32() -> Told:
    """The scheduler is gone; the check that generates is green, and no token comes."""
    access = '[2031-04-02 08:12:02] INFO:     127.0.0.1:51200 - "GET /health_generate HTTP/1.1" 200 OK\n'

    def look(s: float) -> dict:
        scheduler = [proc(101, "sglang::scheduler", ppid=100, run_s=s, switches=int(s) * 9, rank=0)] if s < 30 else []
        ready = "[2031-04-02 08:11:02] The server is fired up and ready to roll!\n" if s == 0 else ""
        front = proc(title="python -m sglang.launch_server", run_s=1 + s / 100, switches=500 + int(s) * 5, wchan="ep_poll")
        detokenizer = proc(102, "sglang::detokenizer", ppid=100, run_s=1.0, switches=50, wchan="ep_poll")
        return full(
            log=ready + access,
            processes=[front, *scheduler, detokenizer],
            check=answered(200, path="/health_generate"),
            listeners=listens(),
            engine=engine(4_000, 0, 2),
        )

    return tell(look, "sglang", about="state", in_flight=2, path="/health_generate")


def c39() -> Told:
    """The first traceback names the cause, the last one does not."""
    lines = {
        10.0: 'Traceback (most recent call last):\n  File "platforms/cuda.py", line 41, in device_id_to_physical_device_id\n'
        "    return int(physical_device_id)\nValueError: invalid literal for int() with base 10: 'MIG-7c1e0f52-0000'",
        20.0: "ERROR [registry.py] Error in inspecting model architecture 'LabForCausalLM'\n"
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
    }
    return died(lines, ended(31.0, code=1), "vllm")


def c41() -> Told:
    """Shared memory is too small."""
    lines = {
        10.0: "node0:212:260 [2] NCCL WARN Error while creating shared memory segment nccl-shm-recv-9a0c1 (size 9637888)\n"
        "node0:212:260 [2] misc/shmutils.cc: posix_fallocate failed : No space left on device",
        20.0: "torch.distributed.DistBackendError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
    }
    return died(lines, ended(31.0, code=1), "torchrun")


def c43() -> Told:
    """A cache on a network disk that several ranks share."""
    lines = {
        20.0: "Traceback (most recent call last):\n  File \"fused_moe.py\", line 3, in load\nOSError: [Errno 116] Stale file handle: '/shared/nfs/triton-cache/6KQ/fused_moe.cubin'"
    }
    return died(lines, ended(31.0, code=1), "generic")


def c45() -> Told:
    """A card leaves the bus while the job is silent."""
    kernel = (
        "[77120.004] pcieport 0000:40:01.1: AER: Corrected error received: 0000:41:00.0",
        "[77121.890] NVRM: GPU 0000:41:00.0: GPU has fallen off the bus.",
    )

    def look(s: float) -> dict:
        cards = tuple(gpu(n, used=40 * GIB, utilisation=90) for n in range(8 if s < 30 else 7))
        return full(
            log="",
            processes=[proc(title="python train.py", run_s=50.0, switches=900, wchan="futex_wait_queue")],
            gpus=Seen(cards),
            kernel=Seen(kernel if s >= 30 else ()),
        )

    return tell(look, "torchrun", about="state")


def c47() -> Told:
    """The cards are listed and no context can be opened."""
    lines = {
        10.0: "UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        20.0: "warmup attempt 12/12 failed, trying anyway\nRuntimeError: No CUDA GPUs are available",
    }
    return died(lines, ended(31.0, code=1), "generic", gpus=Seen((gpu(),)))


def c50() -> Told:
    """A login ended, and the session with all that was in it."""
    return died({10.0: "serving"}, ended(5021.0, signal="TERM"), "generic", about="state")


def c52() -> Told:
    """The launcher takes the hang-up for a request to end."""
    lines = {
        10.0: "{'loss': 1.8841, 'learning_rate': 4.81e-05, 'epoch': 0.37}",
        20.0: "{'loss': 1.8790, 'learning_rate': 4.80e-05, 'epoch': 0.38}",
        30.0: "W0311 15:22:09.410 5077 api.py:753] Received 1 death signal, shutting down workers\n"
        "W0311 15:22:09.411 5077 api.py:1029] Sending process 5120 closing signal SIGHUP\n"
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 5077 got signal: 1",
    }
    return died(lines, ended(3712.0, code=1), "torchrun", about="state")


def c53() -> Told:
    """A pid was printed, and there is no such process."""
    return tell(
        lambda s: full(log=Absent("no such file"), processes=Absent("no process"), exit=Blind("nobody recorded it")),
        "generic",
        seconds=30,
        about="state",
    )


STORIES = {"C-25": c25, "C-26": c26, "C-27": c27, "C-28": c28, "C-29": c29, "C-30": c30, "C-32": c32, "C-39": c39, "C-41": c41, "C-43": c43, "C-45": c45, "C-47": c47, "C-50": c50, "C-52": c52, "C-53": c53}  # fmt: skip
