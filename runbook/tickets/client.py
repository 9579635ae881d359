"""The only door to httpx and tenacity here: one client, one host, one rule for trying again. Imported with the first request.

Tried again: what surely was not done (no connection, 429) and, of repeatable requests, what perhaps was (no answer, 502, 503, 504).
A request that writes something new and whose outcome is unknown raises OutcomeUnknown: the caller looks for its marker first.

TLS is verified. Proxies and CA files of the environment are used (HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE): trackers stand where a
browser reaches them. Redirects are followed on the same origin only, because a token must not travel.
"""

from __future__ import annotations

import email.utils
import functools
import json
import ssl
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin

import httpx
import tenacity

import runbook
from runbook.model.clock import Clock, SystemClock
from runbook.tickets.base import Answer, Login, OutcomeUnknown, Refused, Request, TicketError, Unreachable, origin
from runbook.tickets.bodies import encoded, merged
from runbook.tickets.said import refusal

TRIES = 5
LONGEST_WAIT_S = 120.0
"""A tracker that asks to wait longer is not waited for: the error says how long."""
MOST_REDIRECTS = 5
MOST_ANSWER = 32 << 20
TIMEOUT = httpx.Timeout(60.0, connect=10.0, pool=10.0)
UNSURE = (502, 503, 504)
MOVED = (301, 302, 303, 307, 308)

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
_SENT = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.DecodingError)
_NEVER = (
    httpx.UnsupportedProtocol,
    httpx.LocalProtocolError,
    httpx.TooManyRedirects,
    httpx.InvalidURL,
    httpx.StreamError,
    httpx.CookieConflict,
)
FAILURES = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, httpx.CookieConflict)


class _Again(Exception):
    """Worth another try after `wait_s`, or after the usual pause; `error` is what it is when there is none."""

    def __init__(self, error: TicketError, wait_s: float | None = None) -> None:
        super().__init__(error.summary)
        self.error, self.wait_s = error, wait_s


class HttpClient:
    """A `Client` over the network. `mask` runs over every body once more; `tell` gets a sentence for each wait."""

    dry = False

    def __init__(
        self,
        base: str,
        login: Login,
        *,
        mask: Callable[[str], str],
        tell: Callable[[str], None] = lambda _: None,
        clock: Clock | None = None,
        timeout: httpx.Timeout = TIMEOUT,
    ) -> None:
        self._origin, self._login, self._mask, self._tell = origin(base), login, mask, tell
        self._clock: Clock = clock or SystemClock()
        headers = {"user-agent": f"runbook/{runbook.__version__}", "accept": "application/json"}
        self._http = httpx.Client(timeout=timeout, headers=headers, verify=_trusted())

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self._clock.wait(threading.Event(), seconds)

    def send(self, request: Request, accept: tuple[int, ...] = ()) -> Answer:
        """See `Client`."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_Again),
            stop=tenacity.stop_after_attempt(TRIES),
            wait=self._wait,
            sleep=self.pause,
            before_sleep=lambda state: self._tell(f"{_again(state).error.summary}; trying again in {self._wait(state):.0f} s"),
            reraise=True,
        )
        try:
            return retrying(self._once, request, accept)
        except _Again as given_up:
            raise given_up.error from given_up

    def _wait(self, state: tenacity.RetryCallState) -> float:
        asked = _again(state).wait_s
        return asked if asked is not None else min(30.0, 0.5 * 2**state.attempt_number)

    def _once(self, request: Request, accept: tuple[int, ...]) -> Answer:
        content, headers = encoded(request, self._mask)
        url = request.url
        for _ in range(MOST_REDIRECTS):
            what = f"{request.method} {self._mask(url)}"
            if origin(url) != self._origin:
                raise Refused(f"the tracker points to another host: {self._mask(url)}", "post to that address when it is the right one")
            answer = self._exchange(request, what, url, content, merged(self._login.headers, headers, request.headers))
            target = answer.headers.get("location")
            if answer.status not in MOVED or not target:
                break
            if request.method != "GET" and answer.status not in (307, 308):
                raise Refused(
                    f"{what}: HTTP {answer.status}, it has moved to {self._mask(target)}", "post to that address", status=answer.status
                )
            url = urljoin(url, target)
        else:
            raise Refused(f"{request.method} {request.url}: more than {MOST_REDIRECTS} redirects", "is the ticket's address right?")
        if answer.status < 300 or answer.status in accept:
            return answer
        raise self._trouble(request, what, answer)

    def _exchange(self, request: Request, what: str, url: str, content: bytes | None, headers: dict[str, str]) -> Answer:
        try:
            with self._http.stream(request.method, url, content=content, headers=headers) as response:
                body = b""
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > MOST_ANSWER:
                        raise Refused(f"{what}: an answer of more than {MOST_ANSWER} bytes", "is this address a tracker?")
                return Answer(response.status_code, {k.lower(): v for k, v in response.headers.items()}, *_read(body))
        except FAILURES as error:
            raise _translated(error, request, what) from error

    def _trouble(self, request: Request, what: str, answer: Answer) -> Exception:
        wait_s = self._asked_to_wait(answer)
        error = refusal(what, answer.status, answer.data, answer.text, self._login.source)
        error.summary = self._mask(error.summary)
        if answer.status == 429 or (answer.status == 403 and wait_s is not None):
            if wait_s is not None and wait_s > LONGEST_WAIT_S:
                return Refused(f"{error.summary}; it asks to wait {wait_s:.0f} s", "post again then", status=answer.status)
            return _Again(error, wait_s)
        if answer.status in UNSURE:
            if wait_s is not None and wait_s > LONGEST_WAIT_S:
                return Unreachable(f"{error.summary}; it asks to wait {wait_s:.0f} s", "post again then")
            if request.repeatable:
                return _Again(Unreachable(error.summary, error.hint), wait_s)
            return OutcomeUnknown(error.summary, error.hint, wait_s=wait_s if wait_s is not None else 1.0)
        return error

    def _asked_to_wait(self, answer: Answer) -> float | None:
        """Seconds from Retry-After (a number or a date), or until GitHub's limit is reset."""
        text = answer.headers.get("retry-after", "").strip()
        if text.isdigit():
            return float(text)
        if text:
            date = email.utils.parsedate_to_datetime(text) if _is_date(text) else None
            return max(0.0, date.timestamp() - self._clock.now()) if date else None
        if answer.headers.get("x-ratelimit-remaining") == "0" and answer.headers.get("x-ratelimit-reset", "").isdigit():
            return max(0.0, float(answer.headers["x-ratelimit-reset"]) - self._clock.now())
        return None


@functools.cache
def _trusted() -> ssl.SSLContext:
    """Certificates are checked against the environment's or the packaged authorities: reading those takes longer than a request."""
    return httpx.create_ssl_context()


def _again(state: tenacity.RetryCallState) -> _Again:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, _Again)
    return error


def _is_date(text: str) -> bool:
    try:
        email.utils.parsedate_to_datetime(text)
    except ValueError:
        return False
    return True


def _read(body: bytes) -> tuple[Any, str]:
    text = body.decode("utf-8", "replace")
    try:
        return json.loads(text), text
    except ValueError:
        return None, text


def _translated(error: Exception, request: Request, what: str) -> Exception:
    """One of ours for each that httpx raises. Its own text may quote a header: only known sentences are repeated."""
    if isinstance(error, _NEVER):
        return Refused(f"{what}: {type(error).__name__}: this request cannot be sent", "is the ticket's address right?")
    reason = f"{what}: {error or type(error).__name__}"
    if isinstance(error, _NOT_SENT):
        return _Again(
            Unreachable(reason, "is the address right, and is the tracker up? a proxy of the environment is used when one is set")
        )
    if request.repeatable:
        return _Again(Unreachable(reason, "try again: a second post finds the first"))
    return OutcomeUnknown(reason, "try again: a second post finds the first")
