"""A webhook: one signed POST. What it says is a template, so the same file serves chat tools."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from runbook.tickets.base import Client, Comment, Draft, Limit, Login, Misused, Request, Tracker, address
from runbook.tickets.marker import Mark
from runbook.tickets.markup import BLANK
from runbook.tickets.tokens import first_set

SECRET = "RUNBOOK_WEBHOOK_SECRET"
SIGNATURE = "X-Runbook-Signature-256"
_SLOT = re.compile(r"\{\{\s*(\w+)\s*\}\}")


def _plain(data: Mapping[str, Any]) -> Any:
    return {"event": "runbook.run", **data}


def _slack(data: Mapping[str, Any]) -> Any:
    """Slack takes 12,000 characters in a Markdown block; `&`, `<`, `>` are escaped so that host text calls nobody (`<!channel>`)."""
    return {"text": _slack_text(data["headline"]), "blocks": [{"type": "markdown", "text": _slack_text(data["markdown"])}]}


def _slack_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _mattermost(data: Mapping[str, Any]) -> Any:
    return {"text": re.sub(r"@(?=\w)", "@" + BLANK, data["markdown"])}


def _discord(data: Mapping[str, Any]) -> Any:
    return {"content": data["markdown"], "allowed_mentions": {"parse": []}}


TEMPLATES: dict[str, tuple[Callable[[Mapping[str, Any]], Any], Limit]] = {
    "plain": (_plain, Limit(1_000_000, "bytes")),
    "slack": (_slack, Limit(12_000, "characters")),
    "mattermost": (_mattermost, Limit(16_383, "characters")),
    "discord": (_discord, Limit(2_000, "characters")),
}
CHATS = {"hooks.slack.com": "slack", "discord.com": "discord", "discordapp.com": "discord"}
"""Hosts whose addresses need no `webhook+` and choose their template."""


class Webhook(Tracker):
    """One receiver."""

    name = "webhook"
    limit = Limit(1_000_000, "bytes")
    takes_files = False
    no_files = "a webhook carries no files"
    keeps_comments = False

    def __init__(self, url: str, template: str) -> None:
        self.base, self._template = url, template
        self._write, self.limit = TEMPLATES.get(template) or (_from_file(template), Limit(1_000_000, "bytes"))  # type: ignore[misc]
        self._secret = b""

    def login(self, environ: Mapping[str, str]) -> Login:
        """No header: the body is signed with the secret, if there is one. The path is a secret in itself for chat tools."""
        found = first_set(environ, (SECRET,))
        self._secret = found[1].encode() if found else b""
        secrets = {found[0]: found[1]} if found else {}
        parts = urlsplit(self.base)
        path = parts.path.strip("/") + (f"?{parts.query}" if parts.query else "")
        if len(path) >= 20:
            secrets["WEBHOOK_PATH"] = path
        return Login(secrets=secrets, source=found[0] if found else "")

    def compose(self, draft: Draft, markdown: str, mark: Mark) -> Any:
        """The template filled in."""
        return self._write({**draft.facts, "run": draft.run, "markdown": markdown, "digest": mark.digest})

    def length(self, payload: Any) -> int:
        """The longest text in it: that is what chat tools limit."""
        return max((self.limit.size(text) for text in _texts(payload)), default=0)

    def find(self, client: Client, draft: Draft) -> None:
        """A webhook tells nothing; the receiver can know a second delivery by its Idempotency-Key."""

    def create(self, client: Client, draft: Draft, payload: Any) -> Comment:
        """One POST, never repeated when it may have arrived."""
        key = hashlib.sha256(json.dumps([draft.run, payload], sort_keys=True).encode()).hexdigest()[:32]
        request = Request(method="POST", url=self.base, headers={"Idempotency-Key": key}, data=payload, sign=self._sign)
        client.send(request)
        return Comment("")

    def _sign(self, body: bytes) -> dict[str, str]:
        return {SIGNATURE: "sha256=" + hmac.new(self._secret, body, hashlib.sha256).hexdigest()} if self._secret else {}


def _texts(data: Any) -> list[str]:
    if isinstance(data, str):
        return [data]
    items = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return [text for item in items for text in _texts(item)]


def _from_file(template: str) -> Callable[[Mapping[str, Any]], Any]:
    """A JSON file whose strings may hold `{{ markdown }}`, `{{ verdict }}` …: filled after parsing, so no value can break out."""
    known = f"known templates: {', '.join(TEMPLATES)}, or @FILE.json"
    if not template.startswith("@"):
        raise Misused(f"no template `{template}`", known)
    try:
        shape = json.loads(Path(template[1:]).read_text(encoding="utf-8"))
    except OSError as problem:
        raise Misused(f"cannot read the template {template[1:]}: {problem.strerror}", known) from problem
    except ValueError as problem:
        raise Misused(f"the template {template[1:]} is not JSON: {problem}", known) from problem
    return lambda data: _filled(shape, data)


def _filled(shape: Any, data: Mapping[str, Any]) -> Any:
    if isinstance(shape, str):
        return _SLOT.sub(lambda slot: _value(slot[1], data), shape)
    if isinstance(shape, dict):
        return {key: _filled(item, data) for key, item in shape.items()}
    return [_filled(item, data) for item in shape] if isinstance(shape, list) else shape


def _value(name: str, data: Mapping[str, Any]) -> str:
    if name not in data:
        raise Misused(f"the template asks for `{{{{ {name} }}}}`", "it can have: " + ", ".join(sorted(data)))
    value = data[name]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def match(url: str, environ: Mapping[str, str], template: str | None = None) -> Webhook | None:
    """webhook+https://…, and the addresses of known chat tools."""
    plain = url.removeprefix("webhook+")
    parts = address(plain)
    if parts is None or (plain == url and (parts.hostname or "") not in CHATS):
        return None
    return Webhook(plain, template or CHATS.get(parts.hostname or "", "plain"))
