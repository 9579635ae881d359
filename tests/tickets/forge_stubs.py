"""GitLab, Jira and Redmine as their documentation describes them: strict on headers, fields and limits, with state."""

from __future__ import annotations

import base64
import re
from typing import Any

from tests.tickets.stub import Reply, Seen, Stub, form


class GitLabStub(Stub):
    """Project `team/sub/engine` (by its encoded path), issue 7 and merge request 8."""

    token = "glpat-0123456789abcdefghij"

    def __init__(self) -> None:
        self.notes: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        super().__init__()

    def answer(self, seen: Seen) -> Reply:
        if seen.headers.get("private-token") != self.token:
            return 401, {}, {"message": "401 Unauthorized"}
        if seen.path == "/api/v4/user":
            return 200, {}, {"id": 42}
        found = re.fullmatch(r"/api/v4/projects/team%2Fsub%2Fengine/(uploads|(?:issues/7|merge_requests/8)/notes)(?:/(\d+))?", seen.path)
        if found is None:
            return 404, {}, {"message": "404 Project Not Found"}
        if found[1] == "uploads":
            return self._upload(seen)
        if found[2] is None:
            return self._list(seen) if seen.method == "GET" else self._create(seen)
        note = next((note for note in self.notes if str(note["id"]) == found[2]), None)
        if note is None:
            return 404, {}, {"message": "404 Note Not Found"}
        if seen.method == "PUT":
            note["body"] = seen.json["body"]
        return 200, {}, note

    def _create(self, seen: Seen) -> Reply:
        if seen.method != "POST" or set(seen.json) != {"body"}:
            return 400, {}, {"error": "body is missing"}
        if len(seen.json["body"]) > 1_000_000:
            return 400, {}, {"message": "400 Bad request - Note is too long (maximum is 1000000 characters)"}
        self.notes.append({"id": 300 + len(self.notes), "body": seen.json["body"], "author": {"id": 42}})
        return 201, {}, self.notes[-1]

    def _list(self, seen: Seen) -> Reply:
        size, page = int(seen.query.get("per_page", 20)), int(seen.query.get("page", 1))
        rows = sorted(self.notes, key=lambda note: -note["id"])
        link = f'<{self.url}{seen.path}?per_page={size}&page={page + 1}>; rel="next"'
        return 200, {"Link": link} if len(rows) > size * page else {}, rows[size * (page - 1) : size * page]

    def _upload(self, seen: Seen) -> Reply:
        name, _, content = form(seen)["file"]
        self.files[name] = content
        url = f"/uploads/{len(self.files):032x}/{name}"
        return 201, {}, {"alt": name, "url": url, "full_path": f"/-/project/1{url}", "markdown": f"[{name}]({url})"}


class JiraStub(Stub):
    """Issue RUN-5. Cloud: API 3, documents, Basic. Server: API 2, text, Bearer, below /jira."""

    def __init__(self, cloud: bool, most: int = 32_767) -> None:
        self.cloud, self.most = cloud, most
        self.comments: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.me = {"accountId": "5b10", "displayName": "Me"} if cloud else {"name": "me", "key": "JIRAUSER1"}
        token = base64.b64encode(b"me@example.com:ATATT-secret-0123").decode()
        self.login = f"Basic {token}" if cloud else "Bearer jira-pat-0123456789"
        self.root = "/rest/api/3" if cloud else "/jira/rest/api/2"
        super().__init__()

    def answer(self, seen: Seen) -> Reply:
        if seen.headers.get("authorization") != self.login:
            return 401, {}, {"errorMessages": ["You are not authenticated."], "errors": {}}
        path = seen.path.removeprefix(self.root)
        if path == "/myself":
            return 200, {}, self.me
        if not path.startswith("/issue/RUN-5"):
            return 404, {}, {"errorMessages": ["Issue does not exist or you do not have permission to see it."], "errors": {}}
        rest = path.removeprefix("/issue/RUN-5")
        if rest == "":
            return 200, {}, {"fields": {"attachment": [{"filename": name} for name in self.files]}}
        if rest == "/attachments":
            return self._attach(seen)
        if rest == "/comment" and seen.method == "GET":
            at, size = int(seen.query["startAt"]), min(50, int(seen.query["maxResults"]))
            return 200, {}, {"comments": self.comments[at : at + size], "total": len(self.comments), "startAt": at}
        wrong = self._wrong(seen) if seen.method in ("POST", "PUT") else None
        if wrong:
            return 400, {}, {"errorMessages": [], "errors": {"comment": wrong}}
        if rest == "/comment":
            self.comments.append({"id": str(900 + len(self.comments)), "body": seen.json["body"], "author": self.me})
            return 201, {}, self.comments[-1]
        row = next(row for row in self.comments if rest == f"/comment/{row['id']}")
        if seen.method == "PUT":
            row["body"] = seen.json["body"]
        return 200, {}, row

    def _wrong(self, seen: Seen) -> str | None:
        body = seen.json["body"]
        if isinstance(body, dict) != self.cloud:
            return "Comment body is not valid!"
        if self.cloud and (problem := adf_problem(body)):
            return f"INVALID_INPUT: {problem}"
        if len(seen.body.decode() if self.cloud else body) > self.most + (len('{"body": }') if self.cloud else 0):
            return f"The entered text is too long. It exceeds the allowed limit of {self.most:,} characters."
        return None

    def _attach(self, seen: Seen) -> Reply:
        if seen.headers.get("x-atlassian-token") != "no-check":
            return 403, {}, b"XSRF check failed"
        parts = form(seen)
        if set(parts) != {"file"}:
            return 400, {}, {"errorMessages": ["no file"]}
        name, _, content = parts["file"]
        self.files[name] = content
        return 200, {}, [{"filename": name}]


CHILDREN = {
    "doc": {"paragraph", "heading", "codeBlock", "bulletList", "table"},
    "paragraph": {"text"},
    "heading": {"text"},
    "codeBlock": {"text"},
    "bulletList": {"listItem"},
    "listItem": {"paragraph"},
    "table": {"tableRow"},
    "tableRow": {"tableHeader", "tableCell"},
    "tableHeader": {"paragraph"},
    "tableCell": {"paragraph"},
    "text": set(),
}


def adf_problem(node: Any) -> str | None:
    """What is wrong with a document, by the rules of the published format for the nodes that we use."""
    kind = node["type"]
    if kind == "doc" and (node.get("version") != 1 or not node["content"]):
        return "version"
    if kind == "text" and not node.get("text"):
        return "empty text"
    if kind == "heading" and node["attrs"]["level"] not in range(1, 7):
        return "level"
    if kind in ("bulletList", "table", "tableRow", "listItem", "tableCell", "tableHeader") and not node["content"]:
        return f"empty {kind}"
    for child in node.get("content", ()):
        if child["type"] not in CHILDREN[kind]:
            return f"{child['type']} in {kind}"
        if problem := adf_problem(child):
            return problem
    return None


class RedmineStub(Stub):
    """Issue 12 below /redmine. 5,120 kB for a file; `edits` False: an API without changing notes; `deaf`: no right to add notes."""

    key = "c0ffee0123456789c0ffee0123456789c0ffee01"

    def __init__(self) -> None:
        self.journals: list[dict[str, Any]] = []
        self.uploads: dict[str, bytes] = {}
        self.files: dict[str, bytes] = {}
        self.refused_types = {".html"}
        self.edits, self.deaf = True, False
        super().__init__()

    def answer(self, seen: Seen) -> Reply:
        if seen.headers.get("x-redmine-api-key") != self.key:
            return 401, {}, None
        path = seen.path.removeprefix("/redmine")
        if path == "/users/current.json":
            return 200, {}, {"user": {"id": 5, "login": "me"}}
        if path == "/uploads.json":
            return self._upload(seen)
        if found := re.fullmatch(r"/journals/(\d+)\.json", path):
            if not self.edits:
                return 404, {}, None
            self.journals[int(found[1])]["notes"] = seen.json["journal"]["notes"]
            return 204, {}, None
        if path != "/issues/12.json":
            return 404, {}, None
        if seen.method == "PUT":
            return self._change(seen.json["issue"])
        rows = {"journals": self.journals, "attachments": [{"filename": name} for name in self.files]}
        return 200, {}, {"issue": {"id": 12, **{name: rows[name] for name in seen.query["include"].split(",")}}}

    def _upload(self, seen: Seen) -> Reply:
        if seen.headers.get("content-type") != "application/octet-stream":
            return 406, {}, None
        if len(seen.body) > 5120 * 1024:
            return 422, {}, {"errors": ["This file cannot be uploaded because it exceeds the maximum allowed file size (5 MB)"]}
        if any(seen.query["filename"].endswith(ending) for ending in self.refused_types):
            return 422, {}, {"errors": ["Attachment extension .html is not allowed"]}
        token = f"{len(self.uploads) + 1}.abc"
        self.uploads[token] = seen.body
        return 201, {}, {"upload": {"id": len(self.uploads), "token": token}}

    def _change(self, issue: dict[str, Any]) -> Reply:
        for upload in issue.get("uploads", ()):
            self.files[upload["filename"]] = self.uploads.pop(upload["token"])
        notes = issue.get("notes", "")
        if len(notes.encode()) > 65_535:
            return 422, {}, {"errors": ["Notes is too long"]}
        if (notes and not self.deaf) or issue.get("uploads"):
            self.journals.append({"id": len(self.journals), "user": {"id": 5}, "notes": notes})
        return 204, {}, None
