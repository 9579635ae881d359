"""Redmine: notes on an issue."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from runbook.tickets.base import Client, Comment, Draft, File, Limit, Login, Refused, Request, Tracker, address
from runbook.tickets.marker import Mark, is_about
from runbook.tickets.markup import BLANK
from runbook.tickets.tokens import elsewhere, first_set, header, missing, other_host

HOSTS = ("REDMINE_URL", "REDMINE_HOST")
_PATH = re.compile(r"^(?P<root>(?:/[^/]+)*?)/issues/(?P<number>\d+)/?$")


class Redmine(Tracker):
    """One issue."""

    name = "Redmine"
    # What a `text` column of MySQL holds; SQLite and PostgreSQL take more.
    limit = Limit(65_535, "bytes")

    def __init__(self, host: str, root: str, number: int) -> None:
        self.host, self.base = host, root
        self._issue = f"{root}/issues/{number}.json"

    def login(self, environ: Mapping[str, str]) -> Login:
        """REDMINE_API_KEY, when REDMINE_URL names no other host."""
        if differs := other_host(environ, HOSTS, self.host):
            raise elsewhere(self.name, differs, environ[differs], self.host)
        found = first_set(environ, ("REDMINE_API_KEY",))
        if found is None:
            raise missing(self.name, "REDMINE_API_KEY", self.host, "it stands on the page `My account` when the REST API is switched on")
        return header("X-Redmine-API-Key", "{}", *found)

    def compose(self, draft: Draft, markdown: str, mark: Mark) -> str:
        """Preformatted: whether a Redmine reads Textile or Markdown cannot be asked, and both know `<pre>`."""
        text = re.sub(r"</?pre", lambda tag: f"<{BLANK}{tag[0][1:]}", markdown.rstrip(), flags=re.IGNORECASE)
        return f"<pre>\n{text}\n</pre>\n\n{mark.visible}"

    def find(self, client: Client, draft: Draft) -> Comment | None:
        """Our note among the issue's journals."""
        me = client.send(Request(method="GET", url=f"{self.base}/users/current.json", repeatable=True)).data["user"]["id"]
        for row in self._journals(client):
            if (row.get("user") or {}).get("id") == me and is_about(row.get("notes") or "", draft.run):
                return Comment(str(row["id"]), row["notes"])
        return None

    def _journals(self, client: Client) -> Any:
        return self._show(client, "journals").get("journals") or ()

    def _show(self, client: Client, include: str) -> Any:
        return client.send(Request(method="GET", url=f"{self._issue}?include={include}", repeatable=True)).data["issue"]

    def create(self, client: Client, draft: Draft, payload: Any) -> Comment:
        """A PUT that adds: sent twice it adds two notes. Its answer is empty, so the note is looked up."""
        client.send(Request(method="PUT", url=self._issue, data={"issue": {"notes": payload}}))
        if client.dry:
            return Comment("<id>")
        found = self.find(client, draft)
        if found is None:
            raise Refused(
                "Redmine answered that all is well and kept no note", "the key's user needs the permission `Add notes` in this project"
            )
        return found

    def update(self, client: Client, draft: Draft, found: Comment, payload: Any) -> Comment:
        """Change the note's text; a Redmine whose API cannot do that answers 404."""
        url = f"{self.base}/journals/{found.id}.json"
        request = Request(method="PUT", url=url, data={"journal": {"notes": payload}}, repeatable=True)
        if client.send(request, accept=(403, 404)).status in (403, 404):
            raise Refused(
                f"this Redmine does not let the key's user change note {found.id}",
                "it needs the permission `Edit own notes`, and a version whose API changes notes; or delete that note and post again",
            )
        return found

    def read(self, client: Client, comment: Comment) -> str:
        """See `Tracker`."""
        return next((str(row.get("notes") or "") for row in self._journals(client) if str(row["id"]) == comment.id), "")

    def attached(self, client: Client, found: Comment | None, draft: Draft) -> dict[str, str]:
        """Names of all attachments: Redmine shows them itself."""
        return {row["filename"]: "" for row in self._show(client, "attachments").get("attachments") or ()}

    def attach(self, client: Client, file: File) -> str:
        """Two steps: the bytes for a token, then the token to the issue. An upload without an issue is dropped by Redmine."""
        url = f"{self.base}/uploads.json?filename={quote(file.name)}"
        kind = {"content-type": "application/octet-stream"}  # anything else is a 406
        token = client.send(Request(method="POST", url=url, headers=kind, raw=file, repeatable=True)).data["upload"]["token"]
        upload = {"token": token, "filename": file.name, "content_type": file.media}
        client.send(Request(method="PUT", url=self._issue, data={"issue": {"uploads": [upload]}}))
        return ""


def match(url: str, environ: Mapping[str, str]) -> Redmine | None:
    """https://HOST[/PREFIX]/issues/N."""
    parts = address(url)
    found = _PATH.match(parts.path) if parts else None
    if parts is None or found is None:
        return None
    return Redmine(parts.netloc.lower(), f"{parts.scheme}://{parts.netloc.lower()}{found['root']}", int(found["number"]))
