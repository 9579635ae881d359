"""Roundup: a message on an issue, found again by its message id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from runbook.tickets.base import Client, Comment, Draft, File, Limit, Login, Refused, Request, Tracker, Upload, address, origin
from runbook.tickets.marker import Mark, safe_run
from runbook.tickets.tokens import basic, elsewhere, first_set, missing, other_host

HOSTS = ("ROUNDUP_URL",)
_PATH = re.compile(r"^(?P<root>(?:/[^/]+)*?)/issue(?P<number>\d+)/?$")
CHANGED = 412
TRIES = 4


class Roundup(Tracker):
    """One issue."""

    name = "Roundup"
    # Roundup keeps messages in files and knows no limit; this bounds what one request carries.
    limit = Limit(1_000_000, "bytes")

    def __init__(self, host: str, root: str, number: int) -> None:
        self.host, self.base, self._number = host, root, number
        self._data = f"{root}/rest/data"
        self._issue = f"{self._data}/issue/{number}"
        web = origin(root).removesuffix(":80" if root.startswith("http:") else ":443")
        # It refuses requests that do not say where they come from: its guard against forged forms.
        self._headers = {"X-Requested-With": "rest", "Origin": web, "Referer": f"{root}/"}
        self._user = ""

    def login(self, environ: Mapping[str, str]) -> Login:
        """ROUNDUP_USER and ROUNDUP_PASSWORD, when ROUNDUP_URL names no other host."""
        if differs := other_host(environ, HOSTS, self.host):
            raise elsewhere(self.name, differs, environ[differs], self.host)
        user, password = first_set(environ, ("ROUNDUP_USER",)), first_set(environ, ("ROUNDUP_PASSWORD",))
        if user is None or password is None:
            raise missing(self.name, "ROUNDUP_USER and ROUNDUP_PASSWORD", self.host)
        self._user = user[1]
        return basic(user[1], *password)

    def compose(self, draft: Draft, markdown: str, mark: Mark) -> str:
        """Markdown as plain text, which is what a message is; the marker is visible."""
        return f"{markdown.rstrip()}\n\n{mark.visible}"

    def _key(self, draft: Draft) -> str:
        return f"<runbook.{safe_run(draft.run)}.issue{self._number}@{self.host.partition(':')[0]}>"

    def find(self, client: Client, draft: Draft) -> Comment | None:
        """Our message, on the issue or not yet: the answer may have been lost before it was linked."""
        self._get(client, f"issue/{self._number}")  # a message for an issue that is not there would lie about for ever
        key = self._key(draft)
        rows = self._rows(client, f"msg?messageid={quote(key, safe='')}&@fields=messageid,creator")
        ours = [row for row in rows if row.get("messageid") == key]
        if not ours:
            return None
        me = {
            row["id"]
            for row in self._rows(client, f"user?username={quote(self._user, safe='')}&@fields=username")
            if row["username"] == self._user
        }
        row = next((row for row in ours if (row.get("creator") or {}).get("id") in me), None)
        return Comment(str(row["id"]), url=f"{self.base}/msg{row['id']}") if row else None

    def _rows(self, client: Client, query: str) -> list[Any]:
        return list((self._get(client, query) or {}).get("collection") or ())

    def _get(self, client: Client, path: str) -> Any:
        request = Request(method="GET", url=f"{self._data}/{path}", headers=self._headers, repeatable=True)
        return client.send(request).data["data"]

    def create(self, client: Client, draft: Draft, payload: Any) -> Comment:
        """The message, then its link to the issue."""
        data = {"content": payload, "messageid": self._key(draft), "author": self._user, "date": "."}
        made = client.send(Request(method="POST", url=f"{self._data}/msg", headers=self._headers, data=data)).data["data"]
        self._link(client, "messages", str(made["id"]))
        return Comment(str(made["id"]), url=f"{self.base}/msg{made['id']}")

    def update(self, client: Client, draft: Draft, found: Comment, payload: Any) -> Comment:
        """Replace the text; link it when an earlier try did not come so far."""
        self._change(client, "PUT", f"{self._data}/msg/{found.id}", lambda _: {"content": payload})
        self._link(client, "messages", found.id)
        return found

    def read(self, client: Client, comment: Comment) -> str:
        """See `Tracker`."""
        return str(self._get(client, f"msg/{comment.id}/content")["data"])

    def attached(self, client: Client, found: Comment | None, draft: Draft) -> dict[str, str]:
        """Files of this run that the issue links; Roundup shows them itself."""
        on_issue = {str(row["id"]) for row in self._get(client, f"issue/{self._number}")["attributes"].get("files") or ()}
        return {row["name"]: "" for row in self._files(client, safe_run(draft.run)) if str(row["id"]) in on_issue}

    def _files(self, client: Client, name: str) -> list[Any]:
        return self._rows(client, f"file?name={quote(name, safe='')}&@fields=name,creator")

    def attach(self, client: Client, file: File) -> str:
        """The file, then its link to the issue. Repeatable: a file that nothing links is seen by nobody."""
        upload = Upload("content", file, {"name": file.name, "type": file.media})
        request = Request(method="POST", url=f"{self._data}/file", headers=self._headers, upload=upload, repeatable=True)
        self._link(client, "files", str(client.send(request).data["data"]["id"]))
        return ""

    def _link(self, client: Client, field: str, item: str) -> None:
        def missing_link(attributes: Any) -> Any:
            linked = {str(row["id"]) for row in attributes.get(field) or ()}
            return None if item in linked else {"@op": "add", field: [item]}

        self._change(client, "PATCH", self._issue, missing_link)

    def _change(self, client: Client, method: str, url: str, wanted: Any) -> None:
        """Change what stands there now: its ETag goes with the request, and a change in between starts anew."""
        for _ in range(TRIES):
            now = client.send(Request(method="GET", url=url, headers=self._headers, repeatable=True)).data["data"]
            data = wanted(now["attributes"])
            if data is None:
                return
            headers = {**self._headers, "If-Match": str(now["@etag"])}
            request = Request(method=method, url=url, headers=headers, data=data, repeatable=True)
            if client.send(request, accept=(CHANGED,)).status != CHANGED:
                return
        raise Refused(f"{method} {url}: the ticket was changed {TRIES} times while we looked at it", "try again")


def match(url: str, environ: Mapping[str, str]) -> Roundup | None:
    """https://HOST[/TRACKER]/issueN."""
    parts = address(url)
    found = _PATH.match(parts.path) if parts else None
    if parts is None or found is None:
        return None
    return Roundup(parts.netloc.lower(), f"{parts.scheme}://{parts.netloc.lower()}{found['root']}", int(found["number"]))
