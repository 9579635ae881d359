"""The HTTP front: health contract, introspection, routes; watches the ranks while it serves."""

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import signal
import threading
import time
import urllib.request

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import lab_engine
from lab_engine import log as logs
from lab_engine import openai_api
from lab_engine.engine_client import EngineClient
from lab_engine.ranks import die_with_ranks
from lab_engine.server_args import folder

log = logging.getLogger(__name__)
HEALTH_TIMEOUT_S = 20.0
WARMUP_TIMEOUT_S = 600.0
SIGQUIT_MEANS = "It usually means one child failed."


async def health(request):
    """An empty body always. 503 until the warm-up is over; then one token is made, unless there is work anyway, and any sign of life
    from the scheduler counts. Takes a second at least: the first look is after one."""
    state = request.app.state
    if state.status == "Starting":
        return Response(status_code=503)
    begin = time.monotonic()
    check = asyncio.create_task(state.client.complete([0], 1, prefix="HEALTH_CHECK"))
    try:
        while time.monotonic() < begin + HEALTH_TIMEOUT_S:
            await asyncio.sleep(1)
            if state.client.last_receive > begin:
                state.status = "Up"
                return Response(status_code=200)
    finally:
        check.cancel()
    log.error(
        "Health check failed. Server couldn't get a response from detokenizer for last %d seconds. tic start time: %s. last_heartbeat time: %s",
        HEALTH_TIMEOUT_S, begin, state.client.last_receive,
    )  # fmt: skip
    state.status = "UnHealthy"
    return Response(status_code=503)


async def ready(request):
    """A look at the flag only: no token is made."""
    return Response(status_code=200 if request.app.state.status == "Up" else 503)


async def models(request):
    args = request.app.state.args
    model = {"id": args.served_model_name, "object": "model", "created": int(time.time()), "owned_by": "sglang"}
    return JSONResponse({"object": "list", "data": [{**model, "root": args.model_path, "max_model_len": args.context_length}]})


async def model_info(request):
    args = request.app.state.args
    config = json.loads((folder(args.model_path) / "config.json").read_text())
    info = {"model_path": args.model_path, "tokenizer_path": args.model_path, "is_generation": True, "weight_version": "default"}
    return JSONResponse({**info, "architectures": config["architectures"]})


async def server_info(request):
    """All arguments flat, and the scheduler's latest state: the average acceptance length is there after the first verify."""
    state = request.app.state
    internal = {"last_gen_throughput": state.client.stats.get("throughput", 0.0)}
    if (length := state.client.acceptance_length()) is not None:
        internal["avg_spec_accept_length"] = length
    info = {**dataclasses.asdict(state.args), **state.scheduler_info, "version": lab_engine.__version__}
    if info["speculative_algorithm"] == "NONE":
        info["speculative_algorithm"] = None
    return JSONResponse({**info, "internal_states": [internal]})


async def metrics(request):
    client, args = request.app.state.client, request.app.state.args
    stats = client.stats
    values = {
        "num_running_reqs": ("gauge", stats.get("running", 0)),
        "num_queue_reqs": ("gauge", stats.get("queue", 0)),
        "token_usage": ("gauge", stats.get("token_usage", 0.0)),
        "gen_throughput": ("gauge", stats.get("throughput", 0.0)),
        "spec_accept_length": ("gauge", client.acceptance_length() or 0.0),
        "prompt_tokens_total": ("counter", stats.get("prompt_tokens", 0)),
        "generation_tokens_total": ("counter", stats.get("generation_tokens", 0)),
        "num_requests_total": ("counter", stats.get("requests", 0)),
        "num_aborted_requests_total": ("counter", stats.get("aborted", 0)),
        "spec_verify_calls_total": ("counter", stats.get("verifies", 0)),
    }
    label = f'{{model_name="{args.served_model_name}"}}'
    text = "".join(f"# TYPE sglang:{name} {kind}\nsglang:{name}{label} {value}\n" for name, (kind, value) in values.items())
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


async def bad_request(request, error):
    return JSONResponse({"object": "error", "message": str(error), "type": "BadRequestError", "param": None, "code": 400}, status_code=400)


ROUTES = [
    Route("/health", health),
    Route("/health_generate", health),
    Route("/ready", ready),
    Route("/v1/models", models),
    Route("/get_model_info", model_info),
    Route("/model_info", model_info),
    Route("/get_server_info", server_info),
    Route("/server_info", server_info),
    Route("/metrics", metrics),
    Route("/generate", openai_api.generate, methods=["POST"]),
    Route("/v1/completions", openai_api.completions, methods=["POST"]),
    Route("/v1/chat/completions", openai_api.chat_completions, methods=["POST"]),
]


class Server(uvicorn.Server):
    """Uvicorn that ends with exit status 0 on SIGTERM, as SGLang does."""

    @contextlib.contextmanager
    def capture_signals(self):
        def stop(signum, frame):
            self.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        yield


def serve(args, scheduler_info, ranks, pipe):
    """Listen until told to stop. Leaves by SystemExit, not 0, when the port is taken."""

    @contextlib.asynccontextmanager
    async def lifespan(app):
        loop = asyncio.get_running_loop()
        app.state.client.attach(loop)
        signal.signal(signal.SIGQUIT, lambda signum, frame: die_with_ranks(ranks, f"SIGQUIT received. {signum=}, {SIGQUIT_MEANS}"))
        for rank in ranks:
            loop.add_reader(rank.process.sentinel, _rank_died, loop, server, rank)
        yield
        for rank in ranks:
            loop.remove_reader(rank.process.sentinel)
        loop.remove_reader(pipe.fileno())

    app = Starlette(routes=ROUTES, lifespan=lifespan, exception_handlers={openai_api.BadRequest: bad_request})
    app.state.args = args
    app.state.client = EngineClient(pipe)
    app.state.status = "Starting"
    info = {"status": "ready", "max_total_num_tokens": scheduler_info["max_total_num_tokens"]}
    app.state.scheduler_info = info
    config = uvicorn.Config(
        app, host=args.host, port=args.port, log_config=logs.uvicorn_config(), timeout_graceful_shutdown=5, loop="asyncio", http="h11"
    )
    server = Server(config)
    threading.Thread(target=_warm_up, args=(args, app, server), daemon=True).start()
    server.run()


def _rank_died(loop, server, rank):
    loop.remove_reader(rank.process.sentinel)
    if not server.should_exit:
        rank.process.join()
        code, pid = rank.process.exitcode, rank.process.pid
        log.error("Subprocess scheduler_%d (pid=%d) crashed with exit code %s. Triggering SIGQUIT for cleanup...", rank.number, pid, code)
        os.kill(os.getpid(), signal.SIGQUIT)


def _warm_up(args, app, server):
    """Wait until the server answers, make eight tokens over HTTP, then call it ready."""
    base = f"http://{args.host}:{args.port}"
    try:
        while True:
            time.sleep(1)
            if server.started:
                break
        _fetch(f"{base}/get_model_info", None, 5)
        prompt = {"text": "the capital city of france is", "sampling_params": {"temperature": 0, "max_new_tokens": 8}}
        _fetch(f"{base}/generate", json.dumps(prompt).encode(), WARMUP_TIMEOUT_S)
    except Exception as error:
        log.error("Initialization failed. warmup error: %r", error)
        os.kill(os.getpid(), signal.SIGQUIT)
        return
    app.state.status = "Up"
    log.info("The server is fired up and ready to roll!")


def _fetch(url, body, timeout_s):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with opener.open(request, timeout=timeout_s) as answer:
        return answer.read()
