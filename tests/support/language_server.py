"""The YAML language server that editors run, over its own protocol: JSON-RPC messages with a length in front, on stdin and stdout."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.waiting import until

PACKAGE, VERSION = "yaml-language-server", "1.19.2"
CACHE = Path(__file__).parents[2] / ".cache" / "node"
MOST_S = 60


def installed() -> Path | str:
    """The server's script, installed once below .cache; or why there is none."""
    script = CACHE / "node_modules" / PACKAGE / "bin" / PACKAGE
    if script.is_file():
        return script
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        return "no npm or no node on this machine"
    CACHE.mkdir(parents=True, exist_ok=True)
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(CACHE), f"{PACKAGE}@{VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return script if script.is_file() else f"npm could not install {PACKAGE}: {done.stderr[-300:]}"


class Server:
    """A running server that knows one schema for all files."""

    def __init__(self, process: subprocess.Popen[bytes], schema: Path) -> None:
        self.process = process
        self.settings = {"yaml": {"schemas": {schema.as_uri(): "*.yaml"}, "schemaStore": {"enable": False}, "format": {"enable": False}}}
        self.answers: dict[int, queue.Queue[Any]] = {}
        self.diagnostics: dict[str, queue.Queue[list[dict[str, Any]]]] = {}
        self.number = self.files = 0
        self.uri = ""
        self.lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def begin(self, folder: Path) -> None:
        """The handshake, with the abilities of an editor that takes snippets."""
        able = {
            "textDocument": {"completion": {"completionItem": {"snippetSupport": True}}, "publishDiagnostics": {}},
            "workspace": {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}},
        }
        self.ask("initialize", {"processId": os.getpid(), "rootUri": folder.as_uri(), "capabilities": able})
        self.tell("initialized", {})
        self.tell("workspace/didChangeConfiguration", {"settings": self.settings})
        until(lambda: bool(self.open("probe", "no_such_key: 1\n")), MOST_S)  # until the schema is in force

    def open(self, name: str, text: str) -> list[dict[str, Any]]:
        """Open a text and wait for what the server says of it."""
        self.files += 1  # each text is a file of its own
        self.uri = f"file:///playbooks/{name}_{self.files}.yaml"
        self.diagnostics[self.uri] = queue.Queue()
        self.tell("textDocument/didOpen", {"textDocument": {"uri": self.uri, "languageId": "yaml", "version": 1, "text": text}})
        return self.diagnostics[self.uri].get(timeout=MOST_S)

    def complete(self, name: str, text: str) -> list[dict[str, Any]]:
        """What is offered at the `|` in a text."""
        found = self._at_mark("textDocument/completion", name, text)
        return list(found["items"] if isinstance(found, dict) else found or [])

    def hover(self, name: str, text: str) -> str:
        """What is shown for the word at the `|`."""
        found = self._at_mark("textDocument/hover", name, text)
        return json.dumps((found or {}).get("contents", ""), ensure_ascii=False)

    def _at_mark(self, method: str, name: str, text: str) -> Any:
        before, _, after = text.partition("|")
        self.open(name, before + after)
        place = {"line": before.count("\n"), "character": len(before.rpartition("\n")[2])}
        return self.ask(method, {"textDocument": {"uri": self.uri}, "position": place})

    def ask(self, method: str, params: Any) -> Any:
        """A request and its result."""
        with self.lock:
            self.number += 1
            number = self.number
        self.answers[number] = queue.Queue()
        self._send({"id": number, "method": method, "params": params})
        answer = self.answers[number].get(timeout=MOST_S)
        assert "error" not in answer, answer
        return answer.get("result")

    def tell(self, method: str, params: Any) -> None:
        """A notification."""
        self._send({"method": method, "params": params})

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        with self.lock:
            self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
            self.process.stdin.flush()

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while line := stream.readline():
            length = int(line.partition(b":")[2]) if line.lower().startswith(b"content-length") else 0
            if not length:
                continue
            while stream.readline().strip():
                pass
            self._take(json.loads(stream.read(length)))

    def _take(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params") or {}
        if method is None:
            self.answers[message["id"]].put(message)
        elif method == "textDocument/publishDiagnostics":
            self.diagnostics.setdefault(params["uri"], queue.Queue()).put(params["diagnostics"])
        elif "id" in message:
            sections = [item.get("section", "") for item in params.get("items", [])] if method == "workspace/configuration" else None
            result = [self.settings.get(section) for section in sections] if sections is not None else None
            self._send({"id": message["id"], "result": result})


@contextmanager
def language_server(schema: Path, folder: Path) -> Iterator[Server]:
    """A server for the files of one folder; it ends with the block. Raises LookupError with the reason where none can be had."""
    script = installed()
    if isinstance(script, str):
        raise LookupError(script)
    with subprocess.Popen(
        ["node", str(script), "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder
    ) as process:
        try:
            server = Server(process, schema)
            server.begin(folder)
            yield server
        finally:
            process.kill()
