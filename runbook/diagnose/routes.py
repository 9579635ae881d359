"""Rules about the way to the server: a proxy answers in its place, or the check goes to an address where it does not listen."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from urllib.parse import urlsplit

from runbook.diagnose import words
from runbook.diagnose.view import Check, View
from runbook.model.sample import CheckSample, ListenerSample
from runbook.model.verdict import Diagnosis, Evidence

ROW = 3
ROW_S = 5.0
PROXY_HEADERS = frozenset({"via", "x-cache", "x-squid-error", "proxy-connection", "proxy-authenticate", "x-proxy-error"})
PROXY_BODY = re.compile(r"(?i)squid|tinyproxy|proxy (?:error|server)|blocked by|access denied.*proxy|gateway")
ANYWHERE = frozenset({"0.0.0.0", "::", "*"})


def proxied(view: View) -> Diagnosis | None:
    """wrong_check/proxy: when three answers over ≥ 5 s bear a proxy's headers or page while our server listens, which never got them."""
    row = _row(view, lambda check: check.outcome == "answer" and not check.matched and _is_proxys(check))
    if not row or not _ours(view):
        return None
    check = row[-1].answer
    header = next((f"{name}: {value}" for name, value in check.headers.items() if name.lower() in PROXY_HEADERS), "its page")
    return Diagnosis(
        verdict="wrong_check",
        kind="proxy",
        rule="proxied",
        confidence="strong",
        reason=f"a proxy answers in the server's place: {check.url} brought {words.answer(check)} ({words.quote(header)[:80]}), "
        "while the server itself listens",
        phase=view.course.current,
        evidence=(Evidence(signal="proxy", value=words.quote(header)[:120], points_to="wrong_check"),),
        blind=view.blind(),
        next=("ask without a proxy: `curl --noproxy '*' URL`", "set `no_proxy` for the loopback addresses, `0.0.0.0` too"),
    )


def wrong_address(view: View) -> Diagnosis | None:
    """wrong_check/address_family: when three checks over ≥ 5 s are refused while the launched server listens on that port, on an address
    which the check's own does not reach, as IPv4 only for a check of `[::1]`."""
    row = _row(view, lambda check: check.outcome == "refused")
    ours = _ours(view)
    if not row or not ours:
        return None
    asked = _host(row[-1].answer.url)
    if asked is None or any(_reaches(asked, one.address) for one in ours):
        return None
    where = ", ".join(one.address for one in ours)
    return Diagnosis(
        verdict="wrong_check",
        kind="address_family",
        rule="wrong_address",
        confidence="strong",
        reason=f"{row[-1].answer.url} is refused, and the server listens on {where}: the check asks where it is not",
        phase=view.course.current,
        evidence=(Evidence(signal="listener", value=where, points_to="wrong_check"),),
        blind=view.blind(),
        next=(f"check the address where it listens: {where}", "write `127.0.0.1` instead of `localhost`, which may mean `::1`"),
    )


def _row(view: View, fits: Callable[[CheckSample], bool]) -> list[Check]:
    """The newest checks in a row that fit, if there are enough of them over long enough."""
    if view.question.about not in ("healthy", "state"):
        return []
    row: list[Check] = []
    for check in reversed(view.checks):
        if not fits(check.answer):
            break
        row.insert(0, check)
    return row if len(row) >= ROW and row[-1].t - row[0].t >= ROW_S else []


def _is_proxys(check: CheckSample) -> bool:
    if any(name.lower() in PROXY_HEADERS for name in check.headers):
        return True
    return bool(re.search(r"(?i)<html", check.body_head) and PROXY_BODY.search(check.body_head))


def _ours(view: View) -> list[ListenerSample]:
    """Our listeners, where they were seen all through the last two readings."""
    readings = view.listeners()[-2:]
    if len(readings) < 2 or not all(any(one.ours for one in found) for _, found in readings):
        return []
    return [one for one in readings[-1][1] if one.ours and one.address]


def _host(url: str) -> str | None:
    """The address in a URL; None for a name, which may mean several."""
    try:
        host = urlsplit(url).hostname or ""
        ipaddress.ip_address(host)
    except ValueError:
        return None
    return host


def _reaches(asked: str, address: str) -> bool:
    """Whether a connection to `asked` comes to a listener at address:port. `::` takes IPv4 as well, as a rule."""
    listens = address.rsplit(":", 1)[0].strip("[]")
    if listens in ("::", "*"):
        return True
    if listens in ANYWHERE:
        return ipaddress.ip_address(asked).version == 4
    return listens == asked or listens.replace("::ffff:", "") == asked
