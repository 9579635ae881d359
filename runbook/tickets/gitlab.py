"""GitLab, its own site and others: notes on issues and merge requests, also in subgroups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from runbook.tickets.base import PER_PAGE, Client, Comment, Draft, File, Limit, Login, Request, Tracker, Upload, address, host_of, listed
from runbook.tickets.marker import Mark, is_about
from runbook.tickets.tokens import first_set, header, missing, named_host

HOSTS = ("GITLAB_HOST", "GITLAB_URI", "CI_SERVER_URL", "CI_SERVER_HOST")
_PATH = re.compile(r"^/(?P<project>.+?)/(?:-/)?(?P<kind>issues|work_items|merge_requests)/(?P<number>\d+)(?:/.*)?$")
_UPLOAD = re.compile(r"!?\[[^\]]*\]\([^)\s]*/uploads/[0-9a-f]+/([^)\s]+)\)")
FORMS = {
    "GITLAB_TOKEN": ("PRIVATE-TOKEN", "{}"),
    "GITLAB_ACCESS_TOKEN": ("PRIVATE-TOKEN", "{}"),
    "OAUTH_TOKEN": ("Authorization", "Bearer {}"),
    "CI_JOB_TOKEN": ("JOB-TOKEN", "{}"),
}
"""glab's order, and the header of each."""


class GitLab(Tracker):
    """One issue or merge request."""

    name = "GitLab"
    limit = Limit(1_000_000, "characters")

    def __init__(self, host: str, root: str, project: str, kind: str, number: int) -> None:
        self.host, self.base = host, root
        self._project = f"{root}/api/v4/projects/{quote(unquote(project), safe='')}"
        self._notes = f"{self._project}/{kind}/{number}/notes"

    def login(self, environ: Mapping[str, str]) -> Login:
        """The first variable of glab's order; to gitlab.com, or to the host that GITLAB_HOST or the CI names."""
        here = "gitlab.com" in (self.host, self.host.removeprefix("www.")) or named_host(environ, HOSTS, self.host)
        found = first_set(environ, FORMS) if here else None
        if found is None:
            more = "" if here else f"and GITLAB_HOST={self.host}: a token goes only to the host that is named"
            raise missing(self.name, ", ".join(FORMS), self.host, more)
        name, form = FORMS[found[0]]
        return header(name, form, *found)

    def compose(self, draft: Draft, markdown: str, mark: Mark) -> str:
        """Markdown with a hidden marker."""
        return f"{markdown.rstrip()}\n\n{mark.hidden}"

    def find(self, client: Client, draft: Draft) -> Comment | None:
        """Our note, newest first."""
        who = client.send(Request(method="GET", url=f"{self.base}/api/v4/user", repeatable=True), accept=(401, 403))
        me = who.data.get("id") if who.status == 200 else None  # a job's token may not ask who it is
        for row in listed(client, f"{self._notes}?per_page={PER_PAGE}&sort=desc&order_by=created_at"):
            if me in (None, (row.get("author") or {}).get("id")) and is_about(row.get("body") or "", draft.run):
                return _comment(row)
        return None

    def create(self, client: Client, draft: Draft, payload: Any) -> Comment:
        """See `Tracker`."""
        return _comment(client.send(Request(method="POST", url=self._notes, data={"body": payload})).data)

    def update(self, client: Client, draft: Draft, found: Comment, payload: Any) -> Comment:
        """See `Tracker`."""
        return _comment(client.send(Request(method="PUT", url=f"{self._notes}/{found.id}", data={"body": payload}, repeatable=True)).data)

    def read(self, client: Client, comment: Comment) -> str:
        """See `Tracker`."""
        return str(client.send(Request(method="GET", url=f"{self._notes}/{comment.id}", repeatable=True)).data.get("body") or "")

    def attached(self, client: Client, found: Comment | None, draft: Draft) -> dict[str, str]:
        """The uploads that our note links: GitLab lists uploads to maintainers only."""
        return {unquote(link[1]): link[0] for link in _UPLOAD.finditer(found.body)} if found else {}

    def attach(self, client: Client, file: File) -> str:
        """Upload to the project. Repeatable: an upload that nothing links is seen by nobody."""
        request = Request(method="POST", url=f"{self._project}/uploads", upload=Upload("file", file), repeatable=True)
        return str(client.send(request).data["markdown"])


def _comment(row: Any) -> Comment:
    return Comment(str(row["id"]), str(row.get("body") or ""))


def match(url: str, environ: Mapping[str, str]) -> GitLab | None:
    """https://HOST/GROUP/…/PROJECT/-/issues/N or …/-/merge_requests/N; without `/-/` on a host that is known to be GitLab."""
    parts = address(url)
    found = _PATH.match(parts.path) if parts else None
    if parts is None or found is None or "/" not in found["project"]:
        return None
    host = parts.netloc.lower()
    known = "gitlab" in host or named_host(environ, HOSTS, host)
    if "/-/" not in parts.path and not known:
        return None
    root, project = f"{parts.scheme}://{host}", found["project"]
    # An installation below a path cannot be told from a group; the CI's own address can.
    api = environ.get("CI_API_V4_URL", "").removesuffix("/api/v4")
    if api.startswith(f"{root}/") and host_of(api) == host and f"/{project}".startswith(api.removeprefix(root) + "/"):
        root, project = api, f"/{project}".removeprefix(api.removeprefix(root) + "/")
    return GitLab(host, root, project, found["kind"].replace("work_items", "issues"), int(found["number"]))
