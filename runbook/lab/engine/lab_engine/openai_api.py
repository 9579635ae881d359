"""/v1/chat/completions and /v1/completions, whole and streamed, and SGLang's own /generate."""

import json
import time

from starlette.responses import JSONResponse, StreamingResponse

from lab_engine import tokenizer


class BadRequest(Exception):
    """What is wrong with a request's body, for its sender."""


class Job:
    """A request's body, checked. `ids` is the prompt."""

    def __init__(self, body, text, limit_keys, default, context_length):
        self.ids = tokenizer.encode(text) if isinstance(text, str) else text
        if not self.ids:
            raise BadRequest("the prompt is empty")
        limit = next((body[key] for key in limit_keys if body.get(key) is not None), default)
        if type(limit) is not int or limit < 1:
            raise BadRequest(f"{limit_keys[0]} must be a whole number of at least 1, not {limit!r}")
        if len(self.ids) + limit > context_length:
            total = len(self.ids) + limit
            raise BadRequest(f"{len(self.ids)} prompt tokens and {limit} new ones are {total}: the context length is {context_length}")
        self.max_new_tokens = limit
        self.stream = bool(body.get("stream"))
        options = body.get("stream_options") or {}
        if not isinstance(options, dict):
            raise BadRequest("stream_options must be an object")
        self.usage_in_stream = bool(options.get("include_usage"))


async def read_json(request):
    try:
        body = await request.json()
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadRequest("the body is not a JSON object")
    return body


async def chat_completions(request):
    body = await read_json(request)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(_is_message(m) for m in messages):
        raise BadRequest("messages must be a list of {role, content}, both text")
    job = _job(request, body, tokenizer.chat(messages), ("max_tokens", "max_completion_tokens"), 128)
    return await _answer(request, job, "chat.completion", _chat_choice, _chat_delta)


async def completions(request):
    body = await read_json(request)
    if not isinstance(body.get("prompt"), str):
        raise BadRequest("prompt must be a text")
    job = _job(request, body, body["prompt"], ("max_tokens",), 16)
    return await _answer(request, job, "text_completion", _text_choice, _text_delta)


async def generate(request):
    body = await read_json(request)
    parameters = body.get("sampling_params") or {}
    if not isinstance(parameters, dict):
        raise BadRequest("sampling_params must be an object")
    text = body.get("text") or body.get("input_ids")
    if not isinstance(text, str) and not (isinstance(text, list) and all(type(i) is int and 0 <= i < 64 for i in text)):
        raise BadRequest("text, or input_ids from 0 to 63, must be given")
    job = _job(request, parameters, text, ("max_new_tokens",), 128)
    ids, meta = await request.app.state.client.complete(job.ids, job.max_new_tokens)
    return JSONResponse({"text": tokenizer.decode(ids), "output_ids": ids, "meta_info": meta})


def _job(request, body, text, limit_keys, default):
    return Job(body, text, limit_keys, default, request.app.state.args.context_length)


def _is_message(value):
    return isinstance(value, dict) and isinstance(value.get("role"), str) and isinstance(value.get("content"), str)


async def _answer(request, job, kind, choice, delta):
    client, name = request.app.state.client, request.app.state.args.served_model_name
    if job.stream:
        head = {"object": f"{kind}.chunk" if kind.startswith("chat") else kind, "created": int(time.time()), "model": name}
        return StreamingResponse(_stream(client, job, head, delta), media_type="text/event-stream")
    ids, meta = await client.complete(job.ids, job.max_new_tokens)
    text = tokenizer.decode(ids)
    head = {"id": meta["id"], "object": kind, "created": int(time.time()), "model": name}
    return JSONResponse({**head, "choices": [choice(text)], "usage": _usage(meta), "metadata": {"weight_version": "default"}, "meta_info": meta})


async def _stream(client, job, head, delta):
    """Server-sent events: a chunk per decode step, the usage if asked for, [DONE]."""
    async for ids, meta in client.generate(job.ids, job.max_new_tokens):
        yield _event({**head, "choices": [delta(tokenizer.decode(ids), "length" if meta else None)]})
    if job.usage_in_stream:
        yield _event({**head, "choices": [], "usage": _usage(meta), "meta_info": meta})
    yield "data: [DONE]\n\n"


def _event(data):
    return f"data: {json.dumps(data)}\n\n"


def _usage(meta):
    prompt, made = meta["prompt_tokens"], meta["completion_tokens"]
    return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}


def _chat_choice(text):
    return {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "length"}


def _chat_delta(text, finish):
    return {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": finish}


def _text_choice(text):
    return {"index": 0, "text": text, "finish_reason": "length"}


def _text_delta(text, finish):
    return {"index": 0, "text": text, "finish_reason": finish}
