"""Cases in which the server works, or a timer of its own ended it while it did, told by their signals."""

from __future__ import annotations

from runbook.model.sample import Absent, Blind, DiskSample, Seen
from tests.cases.telling import GIB, MIB, Told, answered, at, ended, folder, full, gpu, listens, proc, refused, tell

BAR = "Loading safetensors checkpoint shards: {percent:3d}% Completed | {done}/{total} [{spent}<{left}, {rate:.2f}s/it]\n"


def bar(done: int, total: int, rate: float = 3.1) -> str:
    """A line of a shard bar."""
    return BAR.format(percent=100 * done // total, done=done, total=total, spent="02:07", left="06:18", rate=rate)


def c01() -> Told:
    """The steps went on until a watchdog ended the job, every half hour."""
    steps = {float(s): f"step {400 + int(s) // 10} loss 3.1{int(s) // 10} 91.2 tok/s" for s in range(10, 171, 10)}

    def look(s: float) -> dict:
        dead = s >= 180
        rows = Absent("gone") if dead else [proc(run_s=s, switches=int(s) * 50)]
        return {"log": at(s, steps), "processes": rows, "exit": ended(1800.6, signal="TERM") if dead else Absent()}

    return tell(look, "torchrun", about="state")


def c02() -> Told:
    """The launcher's log only repeats; a worker on this host reads gigabytes."""
    notice = "INFO 04-02 09:{0:02d}:19 [shm_broadcast.py:501] No available shared memory broadcast block found in 60 seconds.\n"

    def look(s: float) -> dict:
        worker = proc(101, "ray::Worker", ppid=100, state="R", run_s=s, switches=int(s) * 80, read=int(s) * 180 * MIB)
        main = proc(100, "vllm serve m", run_s=1.0, switches=500, wchan="ep_poll")
        return full(log=notice.format(int(s) // 60) if s % 60 == 0 else "", processes=[main, worker], check=refused())

    return tell(look, "vllm")


def c03() -> Told:
    """A compiler below the server, and not a line."""

    def look(s: float) -> dict:
        main = proc(100, "python -m sglang.launch_server", wchan="do_wait")
        compiler = proc(
            140 + int(s) // 60, "/usr/local/cuda/nvvm/bin/cicc flashinfer/batch_prefill.cu", ppid=100, state="R", run_s=s % 60 + 1
        )
        return full(log="", processes=[main, compiler], check=refused())

    return tell(look, "sglang", seconds=300)


def c04() -> Told:
    """One call locks memory: resident and locked memory grow by gigabytes a second."""

    def look(s: float) -> dict:
        held = int(s) * 4 * GIB
        return full(
            log="",
            processes=[proc(title="llama-server -m m", state="R", run_s=s, rss=GIB + held, locked=held)],
            gpus=Seen((gpu(utilisation=0),)),
            check=answered(503),
        )

    return tell(look, "llamacpp")


def c05() -> Told:
    """The bar moves, slower and slower, and the disk is full again and again."""
    shards = {0.0: 26, 20.0: 31, 60.0: 36, 100.0: 38, 140.0: 39, 170.0: 40}

    def look(s: float) -> dict:
        text = bar(shards[s], 118, 4.3 + s / 5) if s in shards else ""
        disk = DiskSample(path="/cache", free=(int(s) % 40) * MIB, total=900 * GIB)
        return full(log=text, processes=[proc(run_s=s / 10, switches=int(s), read=int(s) * 40 * MIB)], disks=Seen((disk,)), check=refused())

    return tell(look, "sglang")


def c06() -> Told:
    """A full bar, a closed port, and nobody who looked at anything else."""
    lines = {0.0: bar(162, 163).strip(), 10.0: bar(163, 163).strip()}
    blind = Blind("nobody looked")
    return tell(lambda s: {"log": at(s, lines), "processes": blind, "exit": blind, "check": refused()}, "sglang", seconds=1800, every=30)


def c07() -> Told:
    """Two captures, the second one five times as long."""
    lines = {
        0.0: "[2031-04-02 08:11:02 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=17.20 GB",
        10.0: "[2031-04-02 08:11:14 TP0] Capture cuda graph end. Time elapsed: 12.11 s. mem usage=1.33 GB. avail mem=15.87 GB.\n"
        "[2031-04-02 08:11:14 TP0] Capture draft cuda graph begin. This can take up to several minutes. avail mem=15.87 GB",
    }

    def look(s: float) -> dict:
        bars = (
            f"\rCapturing batches (bs={160 - int(s)} avail_mem=15.1 GB):  {int(s)}%|##| {int(s) // 5}/23 [00:09<00:11,  1.31it/s]"
            if s > 10
            else ""
        )
        main = proc(title="sglang::scheduler_TP0", state="R", run_s=s * 0.9, switches=int(s) * 30, rank=0)
        return full(log=at(s, lines) + bars, processes=[main], gpus=Seen((gpu(utilisation=int(s) % 50 + 10),)), check=refused())

    return tell(look, "sglang", seconds=60)


def c08() -> Told:
    """One rank pages its weights in from a disk; two wait for it."""

    def look(s: float) -> dict:
        reader = proc(
            101,
            "rank 0",
            ppid=100,
            state="D" if s % 20 else "R",
            run_s=s / 20,
            switches=int(s) * 90,
            read=int(s) * 160 * MIB,
            faults=int(s) * 40_000,
            rank=0,
            wchan="folio_wait_bit_common",
        )
        waiters = [
            proc(101 + rank, f"rank {rank}", ppid=100, run_s=1.0, switches=500, wchan="futex_wait_queue", rank=rank) for rank in (1, 2)
        ]
        return full(
            log="", processes=[proc(title="torchrun infer.py", wchan="do_wait"), reader, *waiters], gpus=Seen((gpu(utilisation=0),))
        )

    return tell(look, "torchrun", about="state", seconds=300)


def c09() -> Told:
    """An announcement, a bar, compilers, a cache that grows."""
    lines = {0.0: "[2031-02-03 10:15:40 TP0] Entering DeepGEMM JIT Pre-Compile session. It may take a long time (typically 10-20 mins)."}

    def look(s: float) -> dict:
        bars = f"\rDeepGEMM warmup:  {int(s) // 10}%|#2        | {int(s) // 4}/256 [01:47<12:58,  3.46s/it]"
        main = proc(title="sglang::scheduler_TP0", run_s=s / 50, switches=int(s), wchan="do_wait", rank=0)
        compiler = proc(200 + int(s) // 10, "ptxas -arch=sm_90a k.ptx", ppid=100, state="R", run_s=5)
        return full(
            log=at(s, lines) + bars,
            processes=[main, compiler],
            folders=folder("/c/deep_gemm", int(s), int(s) * MIB),
            gpus=Seen((gpu(used=60 * GIB, utilisation=0),)),
            check=refused(),
        )

    return tell(look, "sglang", seconds=300)


def c10() -> Told:
    """Half an hour of silence: the inductor's workers compute and its cache grows."""
    lines = {0.0: "INFO 01-22 14:00:09 [backends.py:559] Dynamo bytecode transform time: 6.41 s"}

    def look(s: float) -> dict:
        worker = proc(101, "python compile_worker", ppid=100, state="R", run_s=s, switches=int(s) * 10)
        return full(
            log=at(s, lines),
            processes=[proc(title="VLLM::EngineCore", run_s=1.0, wchan="futex_wait_queue"), worker],
            folders=folder("/c/torchinductor", int(s) // 30, int(s) * 30_000),
            gpus=Seen((gpu(used=60 * GIB, utilisation=0),)),
            check=refused(),
        )

    return tell(look, "vllm", seconds=1800, every=30)


def c11() -> Told:
    """A wrapper ends its child after eight hours; the child still read."""
    lines = {
        0.0: "11:20:07 INFO  llama-server with pid 101 is loading the model",
        180.0: "19:20:08 ERROR llama-server did not become ready within 28800 seconds, terminating it",
    }

    def look(s: float) -> dict:
        dead = s >= 180
        rows = (
            Absent("gone")
            if dead
            else [
                proc(title="python wrapper.py"),
                proc(101, "llama-server -m m", ppid=100, read=int(s) * 2 * MIB, rss=GIB + int(s) * 2 * MIB),
            ]
        )
        return {"log": at(s, lines), "processes": rows, "exit": ended(28800.4, code=1) if dead else Absent()}

    return tell(look, "generic", about="state")


def c12() -> Told:
    """A probe ends each life in the middle of the bar."""

    def look(s: float) -> dict:
        dead = s >= 120
        rows = Absent("gone") if dead else [proc(read=int(s) * 90 * MIB, run_s=s / 3, switches=int(s) * 9)]
        return {
            "log": "" if dead else bar(int(s) // 4 + 1, 62),
            "processes": rows,
            "exit": ended(120.3, signal="TERM") if dead else Absent(),
            "check": refused(),
        }

    return tell(look, "vllm", seconds=120)


def c31() -> Told:
    """The list of models answers; health says 503, and the warm-up computes."""
    lines = {float(s): f"warm-up: pass {s // 10}/40" for s in range(0, 181, 10)}

    def look(s: float) -> dict:
        return full(log=at(s, lines), processes=[proc(state="R", run_s=s, switches=int(s) * 20)], check=answered(503), listeners=listens())

    return tell(look, "generic")


def c37() -> Told:
    """A counter that says 100 % with nobody on the card."""
    return tell(
        lambda s: {"log": None, "gpus": Seen((gpu(used=2 * MIB, utilisation=100),))},
        "generic",
        about="gpu_free",
        seconds=30,
        every=3,
        below=GIB,
        stable_for_s=3.0,
    )


def c48() -> Told:
    """A bar that never becomes a line: only carriage returns."""

    def look(s: float) -> dict:
        return full(
            log="".join("\r" + bar(41 + int(s) // 5 + step, 163).strip() for step in range(2)),
            processes=[proc(run_s=s / 9, switches=int(s))],
            check=refused(),
        )

    return tell(look, "sglang", seconds=120)


def c49() -> Told:
    """A block-buffered log: eight kilobytes every five minutes, while other counters advance."""
    block = "".join(f"step {step:05d} loss 3.{step:04d} tok/s\n" for step in range(270))[:8192]

    def look(s: float) -> dict:
        main = proc(title="python train.py", state="R", run_s=s, switches=int(s) * 12, wrote=int(s) * 700_000, read=int(s) * 900_000)
        return full(log=block if s % 300 == 0 else "", processes=[main])

    return tell(look, "torchrun", about="state", seconds=580, every=20)


def c54() -> Told:
    """The launch line stands, and the server it put into the background is up."""

    def look(s: float) -> dict:
        return full(
            log=at(s, {0.0: "listening"}),
            processes=[proc(title="python -m http.server", wchan="poll_schedule_timeout")],
            listeners=listens(),
        )

    return tell(look, "generic", about="settle", seconds=10, every=1)


STORIES = {"C-01": c01, "C-02": c02, "C-03": c03, "C-04": c04, "C-05": c05, "C-06": c06, "C-07": c07, "C-08": c08, "C-09": c09, "C-10": c10, "C-11": c11, "C-12": c12, "C-31": c31, "C-37": c37, "C-48": c48, "C-49": c49, "C-54": c54}  # fmt: skip
