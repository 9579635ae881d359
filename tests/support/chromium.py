"""A real browser over its debugging pipe: pages are opened, looked at, walked through with keys, printed. No port, no driver program.

with Browser(folder) as browser:
    page = browser.open(path, width=1280, height=800)
    page.evaluate("document.title")
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"
    " --disable-sync --disable-dev-shm-usage --hide-scrollbars --remote-debugging-pipe"
).split()
ANSWER_S = 60.0


def binary() -> str:
    """The browser's path. A machine without one cannot run these tests, and says so."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found, "no Chromium on this machine: on Debian and Ubuntu, apt install chromium"
    return found


class Browser:
    """A browser process with an empty profile of its own."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._folder = folder
        self._flags = flags
        self._number = 0
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        pipes = (os.pipe(), os.pipe())
        self._write, self._read = pipes[0][1], pipes[1][0]
        # The shell puts them at 3 and 4, where the browser looks: they must not stand there before.
        read, write = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (pipes[0][0], pipes[1][1]))
        os.close(pipes[0][0])
        os.close(pipes[1][1])
        argv = [binary(), *FLAGS, f"--user-data-dir={self._folder}", *self._flags, "about:blank"]
        shell = f'exec "$@" 3<&{read} 4>&{write}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *argv],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(read)
        os.close(write)
        return self

    def __exit__(self, *problem: object) -> None:
        with contextlib.suppress(OSError, AssertionError):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """One command and its answer; events that come meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        deadline = time.monotonic() + ANSWER_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self.events.append(answer)

    def _next(self, deadline: float) -> dict[str, Any]:
        waiter = select.poll()  # select() takes no descriptor above 1,023
        waiter.register(self._read, select.POLLIN)
        while b"\0" not in self._rest:
            ready = waiter.poll(1000 * max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self._read, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(line))

    def open(self, path: Path, *, width: int = 1280, height: int = 800, dark: bool = False) -> Page:
        """A page from a file, loaded to its end."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Runtime", "Network"):
            self.call(f"{domain}.enable", session)
        self.call("Emulation.setDeviceMetricsOverride", session, width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", session, features=scheme)
        page = Page(self, session)
        self.call("Page.navigate", session, url=path.resolve().as_uri())
        deadline = time.monotonic() + ANSWER_S
        while page.evaluate("document.readyState + location.protocol") != "completefile:":
            assert time.monotonic() < deadline, "the page is not loaded"
            time.sleep(0.05)
        return page


class Page:
    """An open page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def evaluate(self, expression: str) -> Any:
        """What an expression gives in the page, run from outside: the page's own policy does not apply to it."""
        answer = self._browser.call("Runtime.evaluate", self._session, expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def of(self, *methods: str) -> list[dict[str, Any]]:
        """What the browser told of this page so far under these names."""
        told = [event for event in self._browser.events if event.get("sessionId") == self._session]
        return [event["params"] for event in told if event["method"] in methods]

    def complaints(self) -> list[str]:
        """Lines of the console: errors, warnings, broken policies."""
        logged = [entry["entry"]["text"] for entry in self.of("Log.entryAdded")]
        return logged + [str(entry["args"]) for entry in self.of("Runtime.consoleAPICalled")]

    def requested(self) -> list[str]:
        """Every URL that the page asked for."""
        return [event["request"]["url"] for event in self.of("Network.requestWillBeSent")]

    def above_the_fold(self) -> str:
        """The text that a reader sees without scrolling."""
        return str(self.evaluate(ABOVE))

    def press(self, key: str) -> None:
        """One key, down and up."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            more = text if kind == "keyDown" else {}
            self._browser.call("Input.dispatchKeyEvent", self._session, type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)

    def screenshot(self, part: str | None = None) -> bytes:
        """What is to be seen, as PNG; with a selector, the whole of that part, also below the fold."""
        more: dict[str, Any] = {}
        if part:
            box = self.evaluate(f"JSON.parse(JSON.stringify(document.querySelector({part!r}).getBoundingClientRect()))")
            more = {"clip": {"x": 0, "y": box["y"] - 12, "width": self.evaluate("innerWidth"), "height": box["height"] + 24, "scale": 1}}
            more["captureBeyondViewport"] = True
        return base64.b64decode(self._browser.call("Page.captureScreenshot", self._session, format="png", **more)["data"])

    def pdf(self) -> bytes:
        """The page on paper."""
        return base64.b64decode(self._browser.call("Page.printToPDF", self._session, printBackground=False)["data"])


ABOVE = """(() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), seen = [], range = document.createRange();
  while (walker.nextNode()) {
    range.selectNodeContents(walker.currentNode);
    const box = range.getBoundingClientRect();
    if (box.width > 0 && box.top >= 0 && box.bottom <= innerHeight && box.right > 0 && box.left < innerWidth) seen.push(walker.currentNode.data);
  }
  return seen.join(' ').replace(/\\s+/g, ' ');
})()"""
