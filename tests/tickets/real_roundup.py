"""Roundup served from this process, with a door that can lose the answer to one request."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import httpx

USER, PASSWORD = "demo", "a-demo-password"


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


class _Server(WSGIServer):
    def handle_error(self, *_: Any) -> None:
        """A lost answer is meant."""


class RealRoundup:
    """A tracker with the classic template, on a free loopback port."""

    def __init__(self, folder: Path) -> None:
        from roundup.cgi.wsgi_handler import RequestDispatcher
        from roundup.demo import install_demo
        from roundup.instance import open as open_tracker
        from roundup.password import Password

        home = str(folder / "tracker")
        with contextlib.redirect_stdout(io.StringIO()):
            install_demo(home, "sqlite", os.path.join(sys.prefix, "share", "roundup", "templates", "classic"))
        self._server = make_server("127.0.0.1", 0, self._serve, server_class=_Server, handler_class=_Quiet)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        config = Path(home, "config.ini")
        config.write_text(re.sub(r"(?m)^web\s*=.*$", f"web = {self.url}", config.read_text()))
        self._open = lambda: open_tracker(home).open("admin")
        database = self._open()
        database.user.set(database.user.lookup(USER), password=Password(PASSWORD, config=database.config))
        database.commit()
        database.close()
        self._app: Any = RequestDispatcher(home)
        self.lose: Callable[[dict[str, Any]], bool] = lambda environ: False
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.http = httpx.Client(
            base_url=self.url,
            auth=(USER, PASSWORD),
            headers={"X-Requested-With": "rest", "Origin": self.url.rstrip("/"), "Referer": self.url},
        )

    def close(self) -> None:
        """Stop serving."""
        self.http.close()
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, environ: dict[str, Any], start_response: Any) -> Any:
        lose = self.lose(environ)  # asked first: Roundup changes the environment
        answer = self._app(environ, start_response)
        if lose:
            raise ConnectionAbortedError("lost on the way")
        return answer

    def new_issue(self) -> Issue:
        """An issue, made by REST."""
        made = self.http.post("rest/data/issue", json={"title": "EAGLE-3 fusion check"}).json()["data"]["id"]
        return Issue(self, made)

    def messages_of(self, issue: Issue | None) -> int:
        """Messages in the database that were meant for an issue, linked or not."""
        database = self._open()
        ids = [database.msg.get(item, "messageid") or "" for item in database.msg.list()]
        database.close()
        return sum(f".issue{issue.id if issue else 9999}@" in name for name in ids)


class Issue:
    """One issue, looked at from outside."""

    def __init__(self, tracker: RealRoundup, number: str) -> None:
        self._tracker, self.id = tracker, number
        self.url = f"{tracker.url}issue{number}"

    def _linked(self, field: str) -> list[str]:
        row = self._tracker.http.get(f"rest/data/issue/{self.id}").json()
        return [item["id"] for item in row["data"]["attributes"][field]]

    def messages(self) -> list[str]:
        """The texts on the issue."""
        return [self._tracker.http.get(f"rest/data/msg/{item}/content").json()["data"]["data"] for item in self._linked("messages")]

    def files(self) -> dict[str, bytes]:
        """Name -> content as a browser downloads it."""
        found = {}
        for item in self._linked("files"):
            name = self._tracker.http.get(f"rest/data/file/{item}").json()["data"]["attributes"]["name"]
            found[name] = self._tracker.http.get(f"file{item}/{name}").content
        return found

    def rename(self) -> None:
        """Somebody else changes the issue."""
        database = self._tracker._open()
        database.issue.set(self.id, title="renamed")
        database.commit()
        database.close()


class AnswerLost:
    """While active, the first answer to a write whose path begins so is lost; `before` runs before that request instead."""

    def __init__(self, tracker: RealRoundup, path: str, before: Callable[[], None] | None = None) -> None:
        self._tracker, self._path, self._before, self.count = tracker, path, before, 0

    def _lose(self, environ: dict[str, Any]) -> bool:
        if self._before or self.count or environ["REQUEST_METHOD"] == "GET" or not environ["PATH_INFO"].startswith(self._path):
            return False
        self.count += 1
        return True

    def _first(self, environ: dict[str, Any], start_response: Any) -> Any:
        if self._before and environ["REQUEST_METHOD"] == "PATCH" and environ["PATH_INFO"].startswith(self._path):
            before, self._before = self._before, None
            before()
        return self._app(environ, start_response)

    def __enter__(self) -> AnswerLost:
        self._app, self._tracker._app = self._tracker._app, self._first
        self._tracker.lose = self._lose
        return self

    def __exit__(self, *_: object) -> None:
        self._tracker._app = self._app
        self._tracker.lose = lambda environ: False
