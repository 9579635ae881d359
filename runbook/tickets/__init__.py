"""Tickets that receive transcripts: one file per tracker, one line each in `TRACKERS`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from types import ModuleType
from urllib.parse import urlsplit

from runbook.tickets import github, gitlab, jira, redmine, roundup, webhook
from runbook.tickets.base import Misused, Tracker, address
from runbook.tickets.tokens import named_host

TRACKERS: dict[str, ModuleType] = {
    "webhook": webhook,
    "gitlab": gitlab,
    "github": github,
    "jira": jira,
    "roundup": roundup,
    "redmine": redmine,
}
"""In the order in which they look at an address."""
SHAPES = """\
https://github.com/OWNER/REPO/issues/N (or /pull/N), https://HOST/GROUP/PROJECT/-/issues/N (or /-/merge_requests/N),
https://HOST/browse/KEY-N (Jira), https://HOST/issues/N (Redmine), https://HOST/TRACKER/issueN (Roundup), webhook+https://…"""


OWN_SERVICES = re.compile(r"(?:www\.)?(?:github\.com|gitlab\.com)|[\w.-]+\.(?:ghe\.com|atlassian\.net)")


def is_trusted(ticket: Tracker, environ: Mapping[str, str]) -> bool:
    """Whether an address that a file names may get a token: the host is a tracker's own service, or its variable names it.

    A webhook gets none.
    """
    module = sys.modules[type(ticket).__module__]
    host = (urlsplit(ticket.base).netloc or "").lower()
    named = getattr(ticket, "host", host)
    return module is webhook or OWN_SERVICES.fullmatch(named) is not None or named_host(environ, getattr(module, "HOSTS", ()), named)


def tracker_for(url: str, environ: Mapping[str, str], name: str | None = None, template: str | None = None) -> Tracker:
    """The ticket of an address; one whose host a tracker's own variable names is that tracker's. Raises Misused."""
    parts = address(url)
    host = parts.netloc.lower() if parts else ""
    order = [name] if name else sorted(TRACKERS, key=lambda key: not named_host(environ, getattr(TRACKERS[key], "HOSTS", ()), host))
    if template is not None:
        found = webhook.match(url, environ, template)
        if found is None:
            raise Misused("a template is for webhooks, and this is none", "write the address as webhook+https://…")
        return found
    for key in order:
        ticket: Tracker | None = TRACKERS[key].match(url, environ)
        if ticket is not None:
            return ticket
    what = f"no {name} ticket" if name else "no ticket of a known tracker"
    raise Misused(f"{what}: {url.split('?')[0]}", f"known: {SHAPES}")
