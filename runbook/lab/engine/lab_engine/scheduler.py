"""A rank process: takes requests from the main process, runs prefill and decode, sends tokens back.

Rank 0 talks to the main process; what it received is broadcast to all ranks, so that they run the same forwards in step.
"""

import collections
import json
import logging
import os
import signal
import sys
import time
import traceback

import torch

from lab_engine import distributed, trouble
from lab_engine.model_runner import ModelRunner, crash

log = logging.getLogger(__name__)
IDLE_S = 5.0
"""An idle rank 0 broadcasts so often: a collective that waits for ever would run into the group's timeout."""


class Request:
    def __init__(self, message):
        self.rid = message["rid"]
        self.input_ids = message["input_ids"]
        self.max_new_tokens = message["max_new_tokens"]
        self.begin = time.monotonic()
        self.sequence = None
        self.made = 0

    def meta(self, num_steps):
        """Per-request numbers, named as SGLang's meta_info; num_steps: drafted tokens per verify."""
        meta = {
            "id": self.rid,
            "finish_reason": {"type": "length", "length": self.max_new_tokens},
            "prompt_tokens": len(self.input_ids),
            "completion_tokens": self.made,
            "cached_tokens": 0,
            "e2e_latency": time.monotonic() - self.begin,
        }
        if self.sequence.verifies:
            meta["spec_verify_ct"] = self.sequence.verifies
            meta["spec_accept_length"] = 1 + self.sequence.accepted / self.sequence.verifies
            meta["spec_accept_rate"] = self.sequence.accepted / self.sequence.verifies / num_steps
        return meta


class Scheduler:
    def __init__(self, args, runner, pipe):
        self.args = args
        self.runner = runner
        self.worker = runner.worker
        self.pipe = pipe  # None but on rank 0
        self.waiting = collections.deque()
        self.running = []
        self.stats = {"prompt_tokens": 0, "generation_tokens": 0, "requests": 0, "aborted": 0, "verifies": 0, "accepted": 0, "throughput": 0.0}
        self.forwards = 0
        self.since = self._mark()
        self.last_prefill = time.monotonic()

    def serve(self):
        """Until told to exit."""
        while True:
            for message in self._receive():
                if message["type"] == "exit":
                    return
                self._take(message)
            if self.waiting and len(self.running) < self.args.max_running_requests:
                self._prefill(self.waiting.popleft())
            elif self.running:
                self._decode()

    def _receive(self):
        messages = []
        if self.pipe is not None:
            idle = not self.running and not self.waiting
            if self.pipe.poll(IDLE_S if idle else 0):
                messages.append(self.pipe.recv())
        return json.loads(distributed.broadcast(json.dumps(messages).encode()))

    def _take(self, message):
        if message["type"] == "abort":
            for request in [r for r in (*self.running, *self.waiting) if r.rid == message["rid"]]:
                (self.running if request in self.running else self.waiting).remove(request)
                self.stats["aborted"] += 1
        elif message.get("health") and (self.running or self.waiting):
            self._send({"rid": message["rid"], "ids": [], "meta": {}})  # work in progress is answer enough
        else:
            self.waiting.append(Request(message))

    def _prefill(self, request):
        crash(self.args, "prefill")
        trouble.meet(self.args, "prefill")
        count, now = len(request.input_ids), time.monotonic()
        request.sequence = self.worker.sequence(request.input_ids, count + request.max_new_tokens + 2 * self.args.speculative_num_steps)
        rate, self.last_prefill = count / (now - self.last_prefill), now
        self._log(
            f"Prefill batch, #new-seq: 1, #new-token: {count}, #cached-token: 0, token usage: {self._usage():.2f}, "
            f"#running-req: {len(self.running)}, #queue-req: {len(self.waiting)}, cuda graph: False, input throughput (token/s): {rate:.2f}"
        )
        new = self.worker.prefill(request.sequence)
        self.stats["prompt_tokens"] += count
        self.stats["requests"] += 1
        self.running.append(request)
        self._deliver(request, new)
        self.since = self._mark() if len(self.running) <= 1 else self.since

    def _decode(self):
        crash(self.args, "decode")
        for request in list(self.running):
            verifies, accepted = request.sequence.verifies, request.sequence.accepted
            new = self.worker.step(request.sequence)
            self.stats["verifies"] += request.sequence.verifies - verifies
            self.stats["accepted"] += request.sequence.accepted - accepted
            self._deliver(request, new)
        self.forwards += 1
        if self.forwards % self.args.decode_log_interval == 0:
            self._log_decode()

    def _deliver(self, request, new):
        new = new[: request.max_new_tokens - request.made]
        request.made += len(new)
        self.stats["generation_tokens"] += len(new)
        self.runner.gpu.touch()
        done = request.made >= request.max_new_tokens
        if done:
            self.running.remove(request)
        self._send({"rid": request.rid, "ids": new, "meta": request.meta(self.args.speculative_num_steps) if done else None})

    def _send(self, message):
        if self.pipe is not None:
            state = {"running": len(self.running), "queue": len(self.waiting), "token_usage": self._usage()}
            self.pipe.send({**message, "stats": {**self.stats, **state}})

    def _usage(self):
        return sum(len(r.sequence.ids) for r in self.running) / self.runner.max_total_num_tokens

    def _mark(self):
        return time.monotonic(), self.stats["generation_tokens"], self.stats["verifies"], self.stats["accepted"]

    def _log_decode(self):
        """Averages since the line before this one, or since the last prefill that found nothing else running."""
        began, tokens, verifies, accepted = (now - then for now, then in zip(self._mark(), self.since))
        self.since = self._mark()
        self.stats["throughput"] = tokens / max(began, 1e-6)
        spec = ""
        if verifies:
            length = 1 + accepted / verifies
            spec = f"accept len: {length:.2f}, accept rate: {accepted / verifies / self.args.speculative_num_steps:.2f}, "
        held = sum(len(r.sequence.ids) for r in self.running)
        self._log(
            f"Decode batch, #running-req: {len(self.running)}, #token: {held}, token usage: {self._usage():.2f}, {spec}"
            f"cuda graph: False, gen throughput (token/s): {self.stats['throughput']:.2f}, #queue-req: {len(self.waiting)}"
        )

    def _log(self, line):
        if self.pipe is not None:
            log.info(line)


@torch.no_grad()
def run(args, rank, dist_port, ready, pipe):
    """Body of a rank process. `ready`: where to say that everything is loaded; `pipe`: requests and tokens, rank 0 only."""
    torch.set_num_threads(1)
    runner = None
    try:
        runner = ModelRunner(args, rank, dist_port)
        scheduler = Scheduler(args, runner, pipe if rank == 0 else None)
        if rank == 0:
            log.info(
                "max_total_num_tokens=%d, chunked_prefill_size=-1, max_prefill_tokens=%d, max_running_requests=%d, context_len=%d, "
                "available_gpu_mem=%.2f GB",
                runner.max_total_num_tokens, args.context_length, args.max_running_requests, args.context_length, runner.gpu.available(),
            )  # fmt: skip
        ready.send({"status": "ready", "max_total_num_tokens": runner.max_total_num_tokens})
        scheduler.serve()
        distributed.shutdown()
    except EOFError:
        pass  # the main process is gone
    except Exception:
        log.error("Scheduler hit an exception: %s", traceback.format_exc())
        sys.stderr.flush()
        os.kill(os.getppid(), signal.SIGQUIT)
        time.sleep(60)  # the main process ends us; leaving now would make it look like a second fault
    finally:
        if runner is not None:
            runner.gpu.release()
