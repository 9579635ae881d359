"""GitHub's issue comments: every request is checked against GitHub's own description of its API."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema

from tests.tickets.stub import Reply, Seen, Stub

TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
MOST = 65_536


@functools.cache
def description() -> dict[str, Any]:
    """GitHub's description, cut to the paths of issue comments."""
    return json.loads((Path(__file__).parents[1] / "data" / "github_issues_openapi.json").read_text())


def violations(seen: Seen, path: str) -> list[str]:
    """What a request breaks in the description: path, query, body."""
    found = next((p for p in description()["paths"] if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", p), path)), None)
    operation = description()["paths"].get(found, {}).get(seen.method.lower())
    if operation is None:
        return [f"no operation {seen.method} {path}"]
    parameters = [
        description()["components"]["parameters"][p["$ref"].rsplit("/", 1)[1]] if "$ref" in p else p
        for p in operation.get("parameters", [])
    ]
    known = {p["name"]: p["schema"] for p in parameters if p["in"] == "query"}
    wrong = [f"unknown query {name}" for name in seen.query if name not in known]
    wrong += [
        f"query {name}={value}"
        for name, value in seen.query.items()
        if known.get(name, {}).get("type") == "integer" and not value.isdigit()
    ]
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if schema is None:
        return wrong + (["a body where none is described"] if seen.body else [])
    whole = {**schema, "components": description()["components"]}
    wrong += [error.message for error in jsonschema.Draft202012Validator(whole).iter_errors(seen.json)]
    return wrong + [f"unknown field {name}" for name in seen.json if name not in schema["properties"]]


class GitHubStub(Stub):
    """One repository with issue 3. A wrong request is remembered in `wrong` and answered 400."""

    def __init__(self, prefix: str = "/api/v3") -> None:
        self.comments: dict[int, dict[str, Any]] = {}
        self.wrong: list[str] = []
        self.me = "octo"
        self.keeps_old = False
        self.prefix = prefix
        super().__init__()

    def add(self, login: str, body: str, kind: str = "User") -> int:
        """A comment of somebody."""
        number = 100 + len(self.comments)
        self.comments[number] = {
            "id": number,
            "body": body,
            "user": {"login": login, "type": kind},
            "html_url": f"{self.url}/o/r/issues/3#issuecomment-{number}",
        }
        return number

    def answer(self, seen: Seen) -> Reply:
        """As GitHub would."""
        if seen.headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, {}, {"message": "Bad credentials"}
        path = seen.path.removeprefix(self.prefix)
        wrong = violations(seen, path)
        if not seen.headers.get("user-agent") or seen.headers.get("accept") != "application/vnd.github+json":
            wrong.append("headers")
        if wrong:
            self.wrong += wrong
            return 400, {}, {"message": f"Problems: {wrong}"}
        if path == "/user":
            return 200, {}, {"login": self.me}
        if path == "/repos/o/r/issues/3/comments":
            return self._list(seen) if seen.method == "GET" else self._create(seen)
        found = re.fullmatch(r"/repos/o/r/issues/comments/(\d+)", path)
        if found is None or int(found[1]) not in self.comments:
            return 404, {}, {"message": "Not Found"}
        row = self.comments[int(found[1])]
        if seen.method == "PATCH" and row["user"]["login"] != self.me:
            return 403, {}, {"message": "not yours"}
        if seen.method == "PATCH" and not self.keeps_old:
            if refusal := _too_long(seen):
                return refusal
            row["body"] = seen.json["body"]
        return 200, {}, row

    def _create(self, seen: Seen) -> Reply:
        return _too_long(seen) or (201, {}, self.comments[self.add(self.me, seen.json["body"])])

    def _list(self, seen: Seen) -> Reply:
        size, page = int(seen.query.get("per_page", 30)), int(seen.query.get("page", 1))
        rows = list(self.comments.values())
        more = len(rows) > size * page
        following = f'<{self.url}{seen.path}?per_page={size}&page={page + 1}>; rel="next", <x>; rel="last"'
        return 200, {"Link": following} if more else {}, rows[size * (page - 1) : size * page]


def _too_long(seen: Seen) -> Reply | None:
    if len(seen.json["body"]) <= MOST:
        return None
    errors = [
        {
            "resource": "IssueComment",
            "code": "unprocessable",
            "field": "data",
            "message": f"Body is too long (maximum is {MOST} characters)",
        }
    ]
    return 422, {}, {"message": "Validation Failed", "errors": errors}
