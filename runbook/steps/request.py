"""request: ask a server something, and watch it while it answers."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, Union
from urllib.parse import urlencode

import msgspec
from msgspec import Meta

from runbook.hosts.base import CancelToken, HttpAnswer, Mark, Unreachable
from runbook.lang.expressions import Unknown
from runbook.model.fields import LaunchRef, Regex
from runbook.model.profile import Profile
from runbook.model.question import Expectation, Question
from runbook.model.sample import CheckSample, Sample, Seen
from runbook.model.verdict import Diagnosis
from runbook.steps.base import Launched, Step, StepContext, StepResult
from runbook.steps.exchange import Exchange
from runbook.steps.numbers import Numbers
from runbook.steps.patience import OnSuspect, StallAfter, bad_duration, bad_url, seconds_or_auto
from runbook.steps.watching import ServerGoal, Watched, answer_check, bare_sample, base_url, begin_mark

METHODS = ("get", "post", "put", "delete")
REPEATED = frozenset({"GET"})
SUCCESS = tuple(range(200, 300))
ANSWER_SOON_S = 0.4
"""A look waits this long for the answer before it samples the server."""
EVERY_S = 1.0
KEPT_TEXT = 256 * 1024
WHOLE_ABOVE = 64 * 1024
"""An answer longer than this is saved whole in evidence/."""


class ExpectAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the answer must hold. Without `status`: any status from 200 to 299."""

    status: Annotated[Union[int, list[int], None], Meta(description="status code, or a list of them")] = None
    json: Annotated[Any, Meta(description="a subset of the body's JSON")] = None
    text: Annotated[Regex | None, Meta(description="searched in the body")] = None


class Request(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Send an HTTP request from inside the host, and watch the server until it answers.

    Without `expect` any status from 200 to 299 is the expected one. Another answer is failed. A server that dies meanwhile is
    crashed; when the time box ends first, slow while it makes progress, else undecided. It is sent once and never repeated by
    itself: a repeated request is an experiment of its own (`retry:` asks for it). Only a GET is sent again when the link to the
    host was lost under it; any other is unreachable then.
    """

    TYPE: ClassVar[str] = "request"
    TIMEOUT: ClassVar[str] = "10m"
    SUSPENDS: ClassVar[bool] = True
    RESUME: ClassVar[str] = "unknown"
    RESULTS: ClassVar[dict[str, str]] = {
        "http_status": "HTTP status; of several requests the one that decided",
        "headers": "response headers, names in lower case",
        "json": "the body as JSON",
        "text": "the body as text, cut above 256 KiB; of a stream the text of its tokens",
        "bytes": "length of the body",
        "latency": "seconds until the last byte; of several requests the median",
        "percentiles": "p50, p90, p99 and max of the latency, for `times` above 1",
        "ttft": "seconds until the first event of a stream",
        "tokens": "tokens of a stream: as the server counts them, else events that carry text",
        "tokens_per_s": "tokens after the first, by the time after the first",
        "metrics": "the engine's own numbers for this window, by name",
        "metrics_info": "for each metric: source and n, or the reason why there is none",
    }
    EXAMPLE: ClassVar[str] = (
        "id: chat\nrequest:\n  server: server\n  post: /v1/chat/completions\n"
        "  json: {model: tiny, messages: [{role: user, content: Count to 20.}], max_tokens: 64}"
    )

    server: Annotated[LaunchRef | None, Meta(description="id of the launch to ask")] = None
    url: Annotated[str | None, Meta(description="where a server listens that this run did not launch, as seen from the host")] = None
    get: Annotated[str | None, Meta(description="path to GET")] = None
    post: Annotated[str | None, Meta(description="path to POST to")] = None
    put: Annotated[str | None, Meta(description="path to PUT to")] = None
    delete: Annotated[str | None, Meta(description="path to DELETE")] = None
    json: Annotated[Any, Meta(description="body, sent as JSON")] = None
    data: Annotated[Union[str, dict[str, Union[str, int, float]], None], Meta(description="body: text, or a mapping sent as a form")] = None
    headers: Annotated[dict[str, Union[str, int, float]], Meta(description="request headers")] = {}
    params: Annotated[dict[str, Union[str, int, float, bool]], Meta(description="query parameters")] = {}
    stream: Annotated[bool, Meta(description="read server-sent events as they come")] = False
    times: Annotated[int, Meta(description="how many requests", ge=1, le=10_000)] = 1
    parallel: Annotated[int, Meta(description="how many of them at once", ge=1, le=256)] = 1
    expect: Annotated[ExpectAnswer, Meta(description="what the answer must hold")] = ExpectAnswer()
    stall_after: StallAfter = "auto"
    on_suspect: OnSuspect = "collect"

    @classmethod
    def on_resume(cls, body: Mapping[str, Any]) -> str:
        """A GET asks again; what else it sends may have had its effect."""
        return "again" if "get" in body else cls.RESUME

    def problems(self) -> list[tuple[str, str, str]]:
        """Exactly one server and one method; at most one body."""
        found = []
        if (self.server is None) == (self.url is None):
            found.append(("", "`request` needs exactly one of `server` and `url`", "write for example `server: server`"))
        if sum(getattr(self, name) is not None for name in METHODS) != 1:
            found.append(("", "`request` needs exactly one of `get`, `post`, `put`, `delete`", "write for example `get: /v1/models`"))
        if self.json is not None and self.data is not None:
            found.append(("data", "`json` and `data` are both a body", "keep one of them"))
        if self.parallel > self.times:
            found.append(("parallel", f"`parallel: {self.parallel}` is more than `times: {self.times}`", f"write `times: {self.parallel}`"))
        return [*found, *bad_url(self), *bad_duration(self, "stall_after")]

    def method(self) -> tuple[str, str]:
        """("POST", "/v1/chat/completions")."""
        return next((name.upper(), getattr(self, name)) for name in METHODS if getattr(self, name) is not None)

    def plan(self) -> list[str]:
        """Method, path and place."""
        method, path = self.method()
        many = f", {self.times} times, {self.parallel} at once" if self.times > 1 else ""
        return [f"{method} {path} to {f'server `{self.server}`' if self.server else self.url}{many}"]

    def run(self, ctx: StepContext) -> StepResult:
        """Send, watch, read the engine's own numbers."""
        if ctx.check_mode:
            return StepResult(verdict="passed", reason=f"would {self.plan()[0]}", fields=_unknown("check mode"))
        launched = ctx.launched(self.server) if self.server else None
        base = base_url(launched, self.url)
        if base is None:
            why = "was not launched on this host" if launched is None else "has no known port; give its launch step `port:`"
            reason = f"`{self.server}` {why}"
            return StepResult(verdict="undecided" if launched is None else "failed", reason=reason, fields=_unknown(reason))
        begin = begin_mark(ctx, launched) if launched else None
        numbers = Numbers(ctx, launched, base, begin)
        goal = Answering(ctx, self, launched, base, begin)
        try:
            diagnosis = ctx.watch(goal)
        finally:
            goal.close()
        answers = goal.answers()
        fields = _fields(ctx, self, answers, goal.decisive(), diagnosis)
        fields.update(numbers.read([parsed for one in answers if isinstance(parsed := _json(one), dict)]))
        return StepResult(verdict=diagnosis.verdict, kind=diagnosis.kind, reason=diagnosis.reason, diagnosis=diagnosis, fields=fields)


class Plain(NamedTuple):
    """One request, ready to be sent."""

    method: str
    url: str
    headers: dict[str, str]
    content: bytes | None
    stream: bool


class Answering(ServerGoal):
    """The goal: requests go on in threads of their own, each look asks whether they have ended and samples the server."""

    def __init__(self, ctx: StepContext, step: Request, launched: Launched | None, base: str, begin: Mark | None) -> None:
        self.every_s = 0.05
        self._ctx = ctx
        self._step = step
        self.profile: Profile = launched.profile if launched else ctx.profile("generic")
        self.watched = Watched(ctx, launched, begin) if launched else None
        self._ranks = launched.ranks if launched else None
        self._expect = _expectation(step.expect)
        self._request = _plain(step, base)
        self._began = ctx.clock.now()
        self._box_s = ctx.remaining_s()
        self._answers: list[HttpAnswer] = []
        self._lost = ""
        share = [step.times // step.parallel + (lane < step.times % step.parallel) for lane in range(step.parallel)]
        self._lanes = [Exchange(ctx.cancel, self._lane(count)) for count in share if count]

    def _lane(self, count: int) -> Callable[[CancelToken], None]:
        def send(cancel: CancelToken) -> None:
            one = self._request
            for _ in range(count):
                self._answers.append(self._exchange(one, cancel))

        return send

    def _exchange(self, one: Plain, cancel: CancelToken) -> HttpAnswer:
        """One answer. What was not sent yet, and what only reads, is sent again over the next link."""
        while True:
            sent = False
            try:
                host = self._ctx.host
                sent = host.transport.lost is None
                left = max(1.0, self._box_s - (self._ctx.clock.now() - self._began)) + 5.0  # the box ends first, and is judged
                return host.http.request(
                    one.method, one.url, headers=one.headers, content=one.content, timeout_s=left, stream=one.stream, cancel=cancel
                )
            except Unreachable as lost:
                if sent and one.method not in REPEATED:
                    self._lost = lost.summary
                    raise
                self._ctx.reach(lost)

    def look(self) -> Sample:
        """Whether all have answered; while they have not, the server is sampled too. No health check: it would be a request as well."""
        done = all([lane.wait(ANSWER_SOON_S if lane is self._lanes[0] else 0.0) for lane in self._lanes])
        if not done:
            self.every_s = EVERY_S - ANSWER_SOON_S
            return self.watched.look() if self.watched else bare_sample(self._ctx)
        try:
            for lane in self._lanes:
                lane.result()
        except Unreachable:
            if not self._lost:
                raise
            return Sample(t=self._ctx.clock.now(), host="", host_t=0.0, boot_id="")
        check = Seen(self.decisive())
        if self.watched is None or check.value.outcome == "answer":
            return bare_sample(self._ctx, check=check)
        return msgspec.structs.replace(self.watched.look(), check=check)

    def judge(self, samples: Sequence[Sample], now: float, *, final: bool) -> Diagnosis | None:
        """What the samples prove; a request whose answer can never come any more ends the wait."""
        if not self._lost:
            return super().judge(samples, now, final=final)
        reason = f"the link was lost after it was sent ({self._lost}): whether it was handled is not known, and it is not sent again"
        again = "if it may be sent twice, give the step `retry: {for: 5m, every: 10s}`"
        return Diagnosis(verdict="unreachable", rule="request_lost", reason=reason, next=(again,))

    def answers(self) -> list[HttpAnswer]:
        """What came so far, in the order of arrival."""
        return list(self._answers)

    def decisive(self) -> CheckSample:
        """The first answer that is not as expected, else the last one."""
        checks = [answer_check(self._request.url, one, self._expect) for one in self._answers]
        if not checks:
            elapsed = self._ctx.clock.now() - self._began
            return CheckSample(url=self._request.url, outcome="timeout", latency_s=elapsed, error="no answer within the time box")
        return next((check for check in checks if not check.matched), checks[-1])

    def close(self) -> None:
        """End what is still under way."""
        super().close()
        for lane in self._lanes:
            lane.close()

    def question(self, final: bool) -> Question:
        """Does it answer as the step expects? The requests of this step are known to be open until then."""
        return Question(
            about="request",
            since=self._began,
            box_s=self._box_s,
            final=final,
            expect=self._expect,
            stall_after_s=seconds_or_auto(self._step.stall_after),
            on_suspect=self._step.on_suspect,
            in_flight=len(self._lanes),
            ranks=self._ranks,
            limited_by=self._ctx.limited_by(),
        )


def _plain(step: Request, base: str) -> Plain:
    method, path = step.method()
    query = urlencode({name: _text(value) for name, value in step.params.items()})
    url = base + (path if path.startswith("/") or not path else f"/{path}")
    if query:
        url += ("&" if "?" in url else "?") + query
    headers = {name: str(value) for name, value in step.headers.items()}
    content = None
    if step.json is not None:
        content = msgspec.json.encode(step.json, enc_hook=float)
        headers.setdefault("content-type", "application/json")
    elif isinstance(step.data, dict):
        content = urlencode({name: str(value) for name, value in step.data.items()}).encode()
        headers.setdefault("content-type", "application/x-www-form-urlencoded")
    elif step.data is not None:
        content = step.data.encode()
    return Plain(method, url, headers, content, step.stream)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _expectation(expect: ExpectAnswer) -> Expectation:
    status = SUCCESS if expect.status is None else (expect.status,) if isinstance(expect.status, int) else tuple(expect.status)
    return Expectation(status=status, body=expect.text, json=expect.json)


def _json(answer: HttpAnswer) -> Any:
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return Unknown("the body is not JSON")


def _fields(ctx: StepContext, step: Request, answers: list[HttpAnswer], decisive: CheckSample, diagnosis: Diagnosis) -> dict[str, Any]:
    if not answers or decisive.outcome != "answer":
        return _unknown(f"no answer: {diagnosis.reason}")
    expect = _expectation(step.expect)
    one = next(answer for answer in answers if answer_check(decisive.url, answer, expect) == decisive)
    if len(one.body) > WHOLE_ABOVE:
        ctx.evidence("answer", one.body, "the whole answer")
    latencies = sorted(answer.latency_s for answer in answers)
    fields: dict[str, Any] = {
        "http_status": one.status,
        "headers": {name.lower(): value for name, value in one.headers.items()},
        "json": _json(one),
        "text": _capped(one.body.decode("utf-8", "replace")),
        "bytes": len(one.body),
        "latency": round(statistics.median(latencies), 6),
        "percentiles": _percentiles(latencies) if step.times > 1 else Unknown("there was one request"),
    }
    return {**fields, **(_stream_fields(one) if step.stream else _no_stream())}


def _capped(text: str) -> str:
    if len(text) <= KEPT_TEXT:
        return text
    half = KEPT_TEXT // 2
    return f"{text[:half]}\n… {len(text) - KEPT_TEXT} characters cut …\n{text[-half:]}"


def _percentiles(latencies: list[float]) -> dict[str, float]:
    """Nearest rank: the smallest latency that so many percent of the requests did not exceed."""
    ranks = {f"p{share}": latencies[max(0, -(-share * len(latencies) // 100) - 1)] for share in (50, 90, 99)}
    return {**{name: round(value, 6) for name, value in ranks.items()}, "max": round(latencies[-1], 6)}


def _no_stream() -> dict[str, Any]:
    return {name: Unknown("the answer was not read as a stream") for name in ("ttft", "tokens", "tokens_per_s")}


def _stream_fields(one: HttpAnswer) -> dict[str, Any]:
    """TTFT, tokens and the text of a stream of server-sent events, in the shape of OpenAI's API or SGLang's."""
    texts, counted = [], None
    for data in one.events:
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            counted = _usage(event) or counted
            texts.append(_delta(event))
    words = [text for text in texts if text]
    tokens = counted if counted is not None else len(words)
    fields: dict[str, Any] = {"tokens": tokens, "text": _capped("".join(words)), "ttft": one.ttft_s, "tokens_per_s": 0.0}
    if one.ttft_s is None:
        return {**fields, "ttft": Unknown("no event came"), "tokens_per_s": Unknown("no event came")}
    decode_s = one.latency_s - one.ttft_s
    rate = (tokens - 1) / decode_s if tokens > 1 and decode_s > 0 else Unknown("it takes two tokens to have a rate")
    return {**fields, "tokens_per_s": rate}


def _usage(event: dict[str, Any]) -> int | None:
    usage = event.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) and count > 0 else None


def _delta(event: dict[str, Any]) -> str:
    choices = event.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    delta = first.get("delta")
    text = delta.get("content") if isinstance(delta, dict) else first.get("text")
    return text if isinstance(text, str) else ""


def _unknown(reason: str) -> dict[str, Any]:
    return {name: Unknown(reason) for name in Request.RESULTS}
