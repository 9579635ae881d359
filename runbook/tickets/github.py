"""GitHub and GitHub Enterprise Server: comments on issues and pull requests."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from runbook.tickets.base import PER_PAGE, Client, Comment, Draft, Limit, Login, Request, Tracker, address, listed
from runbook.tickets.marker import Mark, is_about
from runbook.tickets.tokens import first_set, header, missing, named_host

PUBLIC = ("GH_TOKEN", "GITHUB_TOKEN")
ENTERPRISE = ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
HOSTS = ("GH_HOST", "GITHUB_SERVER_URL")
HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
DAY_S = 86_400


class GitHub(Tracker):
    """One issue or pull request: to the API both are issues."""

    name = "GitHub"
    # The message of its 422 says 65536 characters; 262,144 bytes, four for each of them, is what was seen to be stored.
    limit = Limit(65_536, "characters")
    takes_files = False
    no_files = "GitHub's API takes no attachments"

    def __init__(self, host: str, api: str, owner: str, repo: str, number: int) -> None:
        self.host, self.base = host, api
        self._repo = f"{api}/repos/{owner}/{repo}"
        self._issue = f"{self._repo}/issues/{number}"

    def login(self, environ: Mapping[str, str]) -> Login:
        """gh's order; GH_TOKEN and GITHUB_TOKEN only for github.com, *.ghe.com and the host that GH_HOST or GITHUB_SERVER_URL names."""
        public = self.host == "github.com" or self.host.endswith(".ghe.com")
        named = named_host(environ, HOSTS, self.host)
        names = PUBLIC if public else (*ENTERPRISE, *(PUBLIC if named else ()))
        found = first_set(environ, names)
        if found is None:
            more = "" if public else "GH_TOKEN and GITHUB_TOKEN are sent to another host than github.com only when GH_HOST names it"
            raise missing(self.name, " or ".join(names), self.host, more)
        return header("Authorization", "Bearer {}", *found)

    def compose(self, draft: Draft, markdown: str, mark: Mark) -> str:
        """Markdown with a hidden marker."""
        return f"{markdown.rstrip()}\n\n{mark.hidden}"

    def find(self, client: Client, draft: Draft) -> Comment | None:
        """Our comment among those changed since the run began, a day allowed for wrong clocks."""
        who = client.send(Request(method="GET", url=f"{self.base}/user", headers=HEADERS, repeatable=True), accept=(403,))
        me = who.data.get("login") if who.status == 200 else None  # an app's token may not ask who it is: then only a bot is us
        since = datetime.datetime.fromtimestamp(max(0.0, draft.started - DAY_S), datetime.timezone.utc)
        for row in listed(client, f"{self._issue}/comments?per_page={PER_PAGE}&since={since:%Y-%m-%dT%H:%M:%SZ}", HEADERS):
            user = row.get("user") or {}
            ours = user.get("login") == me if me else user.get("type") == "Bot"
            if ours and is_about(row.get("body") or "", draft.run):
                return _comment(row)
        return None

    def create(self, client: Client, draft: Draft, payload: Any) -> Comment:
        """See `Tracker`."""
        url = f"{self._issue}/comments"
        return _comment(client.send(Request(method="POST", url=url, headers=HEADERS, data={"body": payload})).data)

    def update(self, client: Client, draft: Draft, found: Comment, payload: Any) -> Comment:
        """See `Tracker`."""
        return _comment(client.send(self._request("PATCH", found, {"body": payload})).data)

    def read(self, client: Client, comment: Comment) -> str:
        """Asked anew: above its limit GitHub answers 200 and keeps the old body."""
        return str(client.send(self._request("GET", comment)).data.get("body") or "")

    def _request(self, method: str, comment: Comment, data: Any = None) -> Request:
        url = f"{self._repo}/issues/comments/{comment.id}"
        return Request(method=method, url=url, headers=HEADERS, data=data, repeatable=True)


def _comment(row: Any) -> Comment:
    return Comment(str(row["id"]), str(row.get("body") or ""), str(row.get("html_url") or ""))


def match(url: str, environ: Mapping[str, str]) -> GitHub | None:
    """https://HOST/OWNER/REPO/issues/N or …/pull/N."""
    parts = address(url)
    path = parts.path.strip("/").split("/") if parts else []
    if parts is None or len(path) < 4 or path[2] not in ("issues", "pull") or not path[3].isdigit():
        return None
    host = parts.netloc.lower().removeprefix("www.")
    return GitHub(host, _api(parts.scheme, host, environ), path[0], path[1], int(path[3]))


def _api(scheme: str, host: str, environ: Mapping[str, str]) -> str:
    if host == "github.com":
        return "https://api.github.com"
    if host.endswith(".ghe.com"):
        return f"https://api.{host}"
    given = environ.get("GITHUB_API_URL", "").rstrip("/")
    return given if given and urlsplit(given).netloc.lower() == host else f"{scheme}://{host}/api/v3"
