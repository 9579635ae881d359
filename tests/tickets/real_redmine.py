"""Redmine from the distribution's package, as an instance of its own: own database, files and log; nothing of the installed one is touched."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx

APPLICATION = Path("/usr/share/redmine")
SEED = Path("/var/lib/dbconfig-common/sqlite3/redmine/instances/default/redmine_default")
"""The database that the package made; a copy is used."""
SECRET = Path("/etc/redmine/default/secret_key.txt")
SETUP = """
# Mails about the new administrator are left unsent: their threads compete with this one for the database's lock.
ActiveJob::Base.queue_adapter = :test
Setting.rest_api_enabled = '1'
Setting.notified_events = []
project = Project.create!(name: 'engine', identifier: 'engine', trackers: Tracker.all)
admin = User.find_by_login('admin')
user = User.new(firstname: 'Po', lastname: 'Ster', mail: 'poster@example.org', admin: true)
user.login = 'poster'
user.password = user.password_confirmation = 'a-demo-password'
user.save!
issues = (1..8).map do |n|
  Issue.create!(project: project, tracker: Tracker.first, author: admin, subject: "hung #{n}",
                status: IssueStatus.first, priority: IssuePriority.first).id
end
puts "KEY=#{user.api_key} ISSUES=#{issues.join(',')}"
"""
READY_S = 120.0


def is_installed() -> bool:
    """Whether the package is there, with its SQLite database, and may be read."""
    return shutil.which("puma") is not None and os.access(SEED, os.R_OK) and os.access(SECRET, os.R_OK)


class RealRedmine:
    """One Redmine on a free loopback port."""

    def __init__(self, folder: Path) -> None:
        for name in ("config", "log", "files", "tmp", "public/plugin_assets"):
            (folder / name).mkdir(parents=True)
        shutil.copy(SEED, folder / "redmine.sqlite3")
        shutil.copy(SECRET, folder / "config")
        (folder / "config" / "database.yml").write_text(
            f"production: {{adapter: sqlite3, database: {folder}/redmine.sqlite3, timeout: 5000, encoding: utf8}}\n"
        )
        (folder / "setup.rb").write_text(SETUP)
        # The package looks for an instance below a folder of its own; a path that leads out of it is taken too.
        place = "../../../.." + str(folder.resolve())
        self._environ = {**os.environ, "X_DEBIAN_SITEID": place, "RAILS_ENV": "production"}
        made = subprocess.run(
            ["bin/rails", "runner", str(folder / "setup.rb")],
            cwd=APPLICATION,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=300,
        )
        found = re.search(r"KEY=(\w+) ISSUES=([\d,]+)", made.stdout)
        assert made.returncode == 0 and found, made.stdout + made.stderr
        self.key, self._issues = found[1], found[2].split(",")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._log = (folder / "puma.log").open("wb")
        self._server = subprocess.Popen(
            ["puma", "-q", "-b", f"tcp://127.0.0.1:{port}", "-t", "1:2", "config.ru"],
            cwd=APPLICATION,
            env=self._environ,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self.http = httpx.Client(base_url=self.url, headers={"X-Redmine-API-Key": self.key}, trust_env=False)
        self._await()

    def _await(self) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            try:
                if self.http.get("/projects.json").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            assert self._server.poll() is None, "puma has ended"
            time.sleep(0.2)
        raise AssertionError("Redmine did not answer in time")

    def new_issue(self) -> str:
        """The address of an issue that nothing was posted to."""
        return f"{self.url}/issues/{self._issues.pop()}"

    def issue(self, url: str) -> dict[str, Any]:
        """An issue with its journals and attachments."""
        answer = self.http.get(f"{url}.json?include=journals,attachments")
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()["issue"]
        return found

    def notes(self, url: str) -> list[str]:
        """The notes of an issue."""
        return [row["notes"] for row in self.issue(url)["journals"] if row["notes"]]

    def files(self, url: str) -> dict[str, bytes]:
        """The attachments of an issue, downloaded."""
        return {row["filename"]: self.http.get(row["content_url"]).content for row in self.issue(url)["attachments"]}

    def close(self) -> None:
        """End the server."""
        self.http.close()
        self._server.terminate()
        self._server.wait(timeout=30)
        self._log.close()
