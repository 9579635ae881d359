"""Jira: Cloud (API 3, Atlassian Document Format) and Server or Data Center (API 2, wiki markup)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from runbook.tickets.adf import document, text_of
from runbook.tickets.base import MOST_PAGES, PER_PAGE, Client, Comment, Draft, File, Limit, Login, Request, Tracker, Upload, address
from runbook.tickets.marker import Mark, is_about
from runbook.tickets.tokens import basic, elsewhere, first_set, header, missing, other_host
from runbook.tickets.wiki import wiki

HOSTS = ("JIRA_URL", "JIRA_SERVER", "JIRA_HOST")
USERS = ("JIRA_USER", "JIRA_EMAIL", "JIRA_USERNAME", "ATLASSIAN_EMAIL")
API_TOKENS = ("JIRA_API_TOKEN", "ATLASSIAN_API_TOKEN")
ACCESS_TOKENS = ("JIRA_PAT", "JIRA_PERSONAL_TOKEN")
_PATH = re.compile(r"^(?P<context>(?:/[\w.-]+)*?)/browse/(?P<key>[A-Za-z][A-Za-z0-9_]*-\d+)/?$")


class Jira(Tracker):
    """One issue."""

    name = "Jira"
    # The default; an administrator may set another, which the refusal names.
    limit = Limit(32_767, "characters")

    def __init__(self, host: str, root: str, key: str, cloud: bool) -> None:
        self.host, self.base, self.cloud = host, root, cloud
        self._api = f"{root}/rest/api/{3 if cloud else 2}"
        self._issue = f"{self._api}/issue/{key}"

    def login(self, environ: Mapping[str, str]) -> Login:
        """Cloud: e-mail and API token; Server: a personal access token, or user and password."""
        if differs := other_host(environ, HOSTS, self.host):
            raise elsewhere(self.name, differs, environ[differs], self.host)
        user, token = first_set(environ, USERS), first_set(environ, API_TOKENS if self.cloud else (*ACCESS_TOKENS, "JIRA_PASSWORD"))
        if token and token[0] in ACCESS_TOKENS:
            return header("Authorization", "Bearer {}", *token)
        if user and token:
            return basic(user[1], *token)
        raise missing(self.name, "JIRA_USER and JIRA_API_TOKEN" if self.cloud else "JIRA_PAT, or JIRA_USER and JIRA_PASSWORD", self.host)

    def compose(self, draft: Draft, markdown: str, mark: Mark) -> Any:
        """A document or wiki text; the marker is a visible last line, because neither hides comments."""
        return document(markdown, mark.visible) if self.cloud else wiki(markdown, mark.visible)

    def length(self, payload: Any) -> int:
        """Of a document its JSON is counted: never less than what Jira counts."""
        return self.limit.size(payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False))

    def find(self, client: Client, draft: Draft) -> Comment | None:
        """Our comment."""
        me = client.send(Request(method="GET", url=f"{self._api}/myself", repeatable=True)).data
        who = "accountId" if self.cloud else "name"
        for row in self._comments(client):
            body = _body(row)
            if (row.get("author") or {}).get(who) == me.get(who) and is_about(body, draft.run):
                return Comment(str(row["id"]), body)
        return None

    def _comments(self, client: Client) -> Iterator[Any]:
        at = 0
        for _ in range(MOST_PAGES):
            url = f"{self._issue}/comment?startAt={at}&maxResults={PER_PAGE}"
            page = client.send(Request(method="GET", url=url, repeatable=True)).data
            rows = list(page.get("comments") or ())
            yield from rows
            at += len(rows)
            if not rows or at >= page["total"]:
                return

    def create(self, client: Client, draft: Draft, payload: Any) -> Comment:
        """See `Tracker`."""
        row = client.send(Request(method="POST", url=f"{self._issue}/comment", data={"body": payload})).data
        return Comment(str(row["id"]), _body(row))

    def update(self, client: Client, draft: Draft, found: Comment, payload: Any) -> Comment:
        """See `Tracker`."""
        url = f"{self._issue}/comment/{found.id}"
        row = client.send(Request(method="PUT", url=url, data={"body": payload}, repeatable=True)).data
        return Comment(found.id, _body(row))

    def read(self, client: Client, comment: Comment) -> str:
        """See `Tracker`."""
        return _body(client.send(Request(method="GET", url=f"{self._issue}/comment/{comment.id}", repeatable=True)).data)

    def attached(self, client: Client, found: Comment | None, draft: Draft) -> dict[str, str]:
        """Names of all attachments: Jira shows them itself."""
        issue = client.send(Request(method="GET", url=f"{self._issue}?fields=attachment", repeatable=True)).data
        return {row["filename"]: "" for row in (issue.get("fields") or {}).get("attachment") or ()}

    def attach(self, client: Client, file: File) -> str:
        """Attach to the issue. Without the header Jira takes it for a forged form and refuses it."""
        headers = {"X-Atlassian-Token": "no-check"}
        client.send(Request(method="POST", url=f"{self._issue}/attachments", headers=headers, upload=Upload("file", file)))
        return ""


def _body(row: Any) -> str:
    body = row.get("body")
    return text_of(body) if isinstance(body, dict) else str(body or "")


def match(url: str, environ: Mapping[str, str]) -> Jira | None:
    """https://HOST[/CONTEXT]/browse/KEY-N."""
    parts = address(url)
    found = _PATH.match(parts.path) if parts else None
    if parts is None or found is None:
        return None
    host = parts.netloc.lower()
    # Cloud also answers under a company's own name; then an API token says that it is Cloud.
    cloud = host.endswith((".atlassian.net", ".jira.com")) or (
        not first_set(environ, (*ACCESS_TOKENS, "JIRA_PASSWORD")) and bool(first_set(environ, API_TOKENS))
    )
    return Jira(host, f"{parts.scheme}://{host}{found['context']}", found["key"].upper(), cloud)
