"""Cases in which nothing can go on any more, told by their signals."""

from __future__ import annotations

from runbook.model.sample import Blind, PipeSample, Seen
from runbook.model.waits import CallSample, WaitSample
from tests.cases.telling import (
    GIB,
    Told,
    answered,
    at,
    engine,
    folder,
    full,
    full_pipe,
    gpu,
    listens,
    proc,
    refused,
    socket,
    stacks,
    tell,
    thread,
    tool,
)

STATS = "INFO 05-30 16:{minute:02d}:{second:02d} [loggers.py:127] Engine 000: Avg prompt throughput: {prompt} tokens/s, Avg generation throughput: {rate} tokens/s, Running: 2 reqs, Waiting: 0 reqs\n"
POLLING = 'INFO:     10.0.4.17:51220 - "GET /health HTTP/1.1" 200 OK\n'


def stats(s: float, rate: str) -> str:
    """vLLM's line about its work, every 10 s."""
    return STATS.format(minute=int(s) // 60, second=int(s) % 60, prompt=rate, rate=rate)


def c13() -> Told:
    """Requests run and no token comes; the front answers 200."""

    def look(s: float) -> dict:
        log = (stats(s, "88.1") if s < 20 else stats(s, "0.0") if s < 60 else "") + POLLING
        front = proc(title="vllm serve m", run_s=1 + s / 100, switches=500 + int(s) * 5, wchan="ep_poll")
        core = proc(
            101,
            "VLLM::EngineCore",
            ppid=100,
            run_s=90.0,
            switches=9000,
            wchan="futex_wait_queue",
            others=tuple(thread(300 + n, 2.0, 80, "futex_wait_queue") for n in range(5)),
        )
        return full(
            log=log,
            processes=[front, core],
            engine=engine(40_000 + min(int(s), 20) * 88, 2),
            check=answered(200),
            listeners=listens(),
            gpus=Seen((gpu(used=70 * GIB, utilisation=96),)),
        )

    return tell(look, "vllm", about="state", seconds=300, in_flight=2)


def c14() -> Told:
    """A rank knocks at an address that nobody answers; whenever the kernel gives up, the library tries again."""
    lines = {
        0.0: "node1:880:944 [0] NCCL INFO Bootstrap : Using veth7f1c2a0:172.31.9.1<0>",
        10.0: "node1:880:961 [0] NCCL INFO ncclCommInitRank comm 0x55f1d0 rank 0 nranks 2 busId 1a000 - Init START",
    }

    def look(s: float) -> dict:
        one = socket(101, received=0, sent=0, state="SYN-SENT", quiet_s=s, local=f"172.31.9.1:{41000 + int(s / 130)}")
        ranks = [proc(101, "python train.py", ppid=100, run_s=2.0, switches=700, wchan="inet_wait_for_connect", rank=0)]
        return full(
            log=at(s, lines),
            processes=[proc(title="torchrun train.py", wchan="do_wait"), *ranks],
            sockets=Seen((one,)),
            gpus=Seen((gpu(utilisation=0),)),
        )

    return tell(look, "torchrun", about="state", seconds=600)


def c15() -> Told:
    """It waits for GPUs that the cluster does not have."""
    lines = {
        float(
            2**n * 10
        ): f"INFO 06-18 07:44:52 ray_utils.py] Waiting for creating a placement group of specs for {2**n * 10} seconds. specs=[{{'GPU': 1.0}}, {{'GPU': 1.0}}]."
        for n in range(5)
    }

    def look(s: float) -> dict:
        return full(
            log=at(s, lines),
            processes=[proc(title="vllm serve m", run_s=3 + s / 500, switches=400 + int(s), wchan="hrtimer_nanosleep")],
            gpus=Seen((gpu(used=0, utilisation=0),)),
            check=refused(),
        )

    return tell(look, "vllm", seconds=300, partial="what the cluster has and what is demanded")


def c16() -> Told:
    """A download whose folder and socket stand still under a bar that is drawn again."""
    drawn = "\rmodel-00187-of-00191.safetensors:  99%|#########9| 4.91G/4.96G [07:12<00:04, 11.4MB/s]"

    def look(s: float) -> dict:
        main = proc(
            title="hf download org/m",
            run_s=40.0,
            switches=9000,
            wchan="wait_woken",
            others=(thread(160, 2.0 + s / 1000, 500 + int(s) * 10, "futex_wait_queue"),),
        )
        return full(
            log=drawn,
            processes=[main],
            sockets=Seen((socket(100, received=528 * GIB, quiet_s=60 + s),)),
            folders=folder("/models/m", 190, 528 * GIB, 60 + s),
        )

    return tell(look, "generic", about="state", seconds=300)


def c17() -> Told:
    """A shard writes its bar into a pipe that the launcher does not read."""

    def look(s: float) -> dict:
        launcher = proc(title="text-generation-launcher", run_s=1 + s / 100, switches=500 + int(s) * 2, wchan="ep_poll")
        shard = proc(
            101, "text-generation-server", ppid=100, run_s=30.0, switches=4000, wchan="pipe_write", pipes=Seen((full_pipe(2, (100,)),))
        )
        return full(log="", processes=[launcher, shard], gpus=Seen((gpu(utilisation=0),)), check=refused())

    return tell(look, "tgi", seconds=120)


def c18() -> Told:
    """Eight ranks stand in the same call of the expert exchange, twice; health says 503 after its full 20 s."""
    lines = {
        30.0: "[2031-05-09 21:17:44] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: 21:17:24."
    }
    frames = (
        "dispatch (deep_ep/buffer.py:381)",
        "forward (sglang/srt/layers/moe/ep_moe/layer.py:1102)",
        "run_batch (sglang/srt/managers/scheduler.py:1890)",
    )

    def look(s: float) -> dict:
        ready = "[2031-05-09 20:00:01] The server is fired up and ready to roll!\n" if s == 0 else ""
        ranks = [proc(101 + n, f"sglang::scheduler_TP{n}", ppid=100, state="R", run_s=100 + s, switches=900, rank=n) for n in range(8)]
        front = proc(title="python -m sglang.launch_server", run_s=1 + s / 100, switches=500 + int(s) * 4, wchan="ep_poll")
        check = answered(503, latency_s=20.0) if s % 30 == 0 else Blind("no answer yet after 10s")
        return full(
            log=ready + at(s, lines),
            processes=[front, *ranks],
            check=check,
            listeners=listens(),
            stacks=stacks(s, {101 + n: (n, frames) for n in range(8)}),
            engine=engine(90_000, 3),
        )

    return tell(look, "sglang", about="state", seconds=300, in_flight=3, ranks=8)


def c19() -> Told:
    """A step counter stands at 197; the cards say 100 % and draw a seventh of their power."""
    lines = {float(n): f"[NeMo I] Epoch 0: step {195 + n} train_step_timing in s=1.08{n} reduced_train_loss=6.2{n}" for n in range(3)}

    def look(s: float) -> dict:
        ranks = [proc(101 + n, "python train.py", ppid=100, state="R", run_s=100 + s, switches=900, rank=n) for n in range(2)]
        return full(
            log=at(s, lines),
            processes=[proc(title="torchrun train.py", wchan="do_wait"), *ranks],
            gpus=Seen(tuple(gpu(n, used=60 * GIB, utilisation=100, power_w=640.0 if s <= 20 else 103.4 - n) for n in range(2))),
        )

    return tell(look, "torchrun", about="state", seconds=600, partial="no rule reads the power of a card")


def c20() -> Told:
    """Five processes sleep in one kernel lock, and so does the GPU tool."""

    def look(s: float) -> dict:
        rows = [
            proc(
                100 + n,
                f"python -m worker {n}",
                ppid=1 if n == 0 else 100,
                state="D",
                run_s=4.0,
                switches=300,
                wchan="rwsem_down_read_slowpath",
            )
            for n in range(5)
        ]
        return full(log="", processes=rows, gpus=Blind("nvidia-smi: no answer in 60 s"), gpu_tool=tool("D", 60 + s), check=refused())

    return tell(look, "generic")


def c21() -> Told:
    """Half of a pipeline spins, the other half waits, and the first request never returns."""

    def look(s: float) -> dict:
        first = proc(101, "python stage.py", ppid=100, state="R", run_s=50 + s, switches=900, rank=0)
        second = proc(102, "python stage.py", ppid=100, run_s=5.0, switches=300, wchan="wait_woken", rank=1)
        link = (socket(102, received=4096, quiet_s=s + 30, peer_pid=101), socket(101, received=4096, quiet_s=s + 30, peer_pid=102))
        return full(
            log=at(s, {0.0: "Started GRPCInferenceService at 0.0.0.0:8001"}),
            processes=[proc(wchan="do_wait"), first, second],
            sockets=Seen(link),
            gpus=Seen((gpu(0, utilisation=100), gpu(1, utilisation=0))),
        )

    return tell(look, "generic", about="request", seconds=300, in_flight=1)


def c22() -> Told:
    """Two requests run and no token comes, line after line; the list of models answers."""
    lines = {0.0: "ERROR 07-02 11:06:31 [backend_xgrammar.py:160] Failed to advance FSM for request cmpl-71aa for tokens 1721."}

    def look(s: float) -> dict:
        front = proc(title="vllm serve m", run_s=1 + s / 100, switches=500 + int(s) * 5, wchan="ep_poll")
        core = proc(101, "VLLM::EngineCore", ppid=100, run_s=90.0, switches=9000, wchan="futex_wait_queue")
        return full(log=at(s, lines) + stats(s, "0.0"), processes=[front, core], engine=engine(51_210, 2), listeners=listens())

    return tell(look, "vllm", about="request", seconds=300, in_flight=2)


def c23() -> Told:
    """Two ranks spin right after the initialisation; their link moves nothing."""
    lines = {
        float(n): f"gpubox:412{n}:419{n} [{n}] NCCL INFO ncclCommInitRank comm 0x5b77c{n} rank {n} nranks 2 - Init COMPLETE"
        for n in range(2)
    }

    def look(s: float) -> dict:
        ranks = [proc(101 + n, "python train.py", ppid=100, state="R", run_s=20 + s, switches=400, rank=n) for n in range(2)]
        link = tuple(socket(101 + n, received=2048, quiet_s=s, peer_pid=102 - n) for n in range(2))
        return full(
            log=at(s, lines),
            processes=[proc(title="torchrun train.py", wchan="do_wait"), *ranks],
            sockets=Seen(link),
            gpus=Seen(tuple(gpu(n, used=4 * GIB, utilisation=100) for n in range(2))),
        )

    return tell(look, "torchrun", about="state", seconds=900, partial="link traffic and memory controller load of the cards")


def c24() -> Told:
    """One rank stands in its exit handler, the others in a collective."""
    waiting = ("all_reduce (torch/distributed/distributed_c10d.py:2937)", "step (train.py:88)")
    leaving = ("destroy_process_group (torch/distributed/distributed_c10d.py:2145)", "_exit_handler (train.py:12)")

    def look(s: float) -> dict:
        ranks = [proc(101 + n, "python train.py", ppid=100, run_s=80.0, switches=4000, wchan="futex_wait_queue", rank=n) for n in range(4)]
        rows = {101 + n: (n, leaving if n == 3 else waiting) for n in range(4)}
        return full(
            log=at(s, {0.0: "step 12 loss 3.1 91 tok/s", 10.0: "step 13 loss 3.0 91 tok/s"}),
            processes=[proc(title="torchrun train.py", wchan="do_wait"), *ranks],
            stacks=stacks(s, rows),
            gpus=Seen(tuple(gpu(n, utilisation=100) for n in range(4))),
        )

    return tell(look, "torchrun", about="state", seconds=300, ranks=4)


def c40() -> Told:
    """One line about threads, then a head that waits for workers that never came."""
    lines = {0.0: "[head] starting 16 rollout workers", 10.0: "pthread_create failed: Resource temporarily unavailable"}

    def look(s: float) -> dict:
        head = proc(title="python head.py", run_s=2.0, switches=300, wchan="futex_wait_queue")
        workers = [proc(101 + n, "python worker.py", ppid=100, run_s=1.0, switches=90, wchan="wait_woken", rank=n) for n in range(11)]
        links = tuple(socket(101 + n, received=64, quiet_s=s, peer_pid=100) for n in range(11))
        return full(log=at(s, lines), processes=[head, *workers], sockets=Seen(links), gpus=Seen((gpu(utilisation=0),)))

    return tell(look, "generic", about="state", seconds=300, ranks=16)


def c42() -> Told:
    """Xid after Xid in the kernel's log, and a GPU tool that does not end."""
    xid = "[{0}.118] NVRM: Xid (PCI:0000:9b:00): 119, pid=40718, name=python, Timeout after 45s of waiting for RPC response from GPU3 GSP!"
    blocked = "[190211.530] INFO: task nvidia-smi:41190 blocked for more than 120 seconds."

    def look(s: float) -> dict:
        seen = tuple(xid.format(190022 + 45 * n) for n in range(int(s) // 45)) + ((blocked,) if s > 150 else ())
        return full(
            log="",
            processes=[proc(title="python train.py", state="D", run_s=9.0, switches=900, wchan="rwsem_down_read_slowpath")],
            kernel=Seen(seen),
            gpus=Blind("nvidia-smi: no answer in 45 s"),
            gpu_tool=tool("D", s + 20),
        )

    return tell(look, "generic", about="state")


def c51() -> Told:
    """A question on the terminal that nobody reads."""
    lines = {0.0: "The repository for lab/model-x contains custom code which must be executed.\nDo you wish to run the custom code? [y/N]"}

    def look(s: float) -> dict:
        asked = PipeSample(fd=0, end="read", name="pipe:[77]", fill=0, capacity=65536, peers=(50,), peers_known=True)
        main = proc(title="python load.py", run_s=0.03, switches=40, wchan="pipe_read", stdin="pipe", pipes=Seen((asked,)), ppid=50)
        launcher = proc(50, "python nightly.py", run_s=0.4, switches=90, wchan="do_wait")
        reading = CallSample(tid=100, call="read", peers=(50,), peers_known=True)
        ending = CallSample(tid=50, call="child", child=100)
        calls = tuple(
            WaitSample(pid=one.pid, start=one.start, caught=(), threads=(call,)) for one, call in ((main, reading), (launcher, ending))
        )
        return full(log=at(s, lines), processes=[main], peers=Seen((launcher,)), calls=Seen(calls))

    return tell(look, "generic", about="state", seconds=120)


STORIES = {"C-13": c13, "C-14": c14, "C-15": c15, "C-16": c16, "C-17": c17, "C-18": c18, "C-19": c19, "C-20": c20, "C-21": c21, "C-22": c22, "C-23": c23, "C-24": c24, "C-40": c40, "C-42": c42, "C-51": c51}  # fmt: skip
