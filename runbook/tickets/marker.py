"""The marker at the end of a comment: it names the run, so that the next post finds it, and digests the text, for the look back.

    <!-- runbook run=20260301-101500-ab12 body=0123456789abcdef -->     where comments are hidden
    runbook run 20260301-101500-ab12, body 0123456789abcdef            where they are not

It counts only as the last line: a quotation of our comment in somebody's answer is not our comment.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

_LINE = re.compile(r"^(?:<!-- runbook run=(\S+) body=([0-9a-f]{16}) -->|runbook run (\S+), body ([0-9a-f]{16}))$")


class Mark(msgspec.Struct, frozen=True):
    """A run and the digest of one text about it."""

    run: str
    digest: str

    @property
    def hidden(self) -> str:
        """As a comment of HTML."""
        return f"<!-- runbook run={self.run} body={self.digest} -->"

    @property
    def visible(self) -> str:
        """As a small last line."""
        return f"runbook run {self.run}, body {self.digest}"


def safe_run(run: str) -> str:
    """A run's id in letters that can end no comment and no quotation: a journal may come from anywhere."""
    return re.sub(r"-{2,}", "-", re.sub(r"[^A-Za-z0-9._-]+", "_", run))[:100].strip("-") or "run"


def mark(run: str, text: str) -> Mark:
    """The mark of this text about this run."""
    return Mark(safe_run(run), hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16])


def marked(text: str) -> Mark | None:
    """The mark on a text's last line."""
    lines = text.rstrip().splitlines()
    found = _LINE.match(lines[-1].strip()) if lines else None
    return Mark(found[1] or found[3], found[2] or found[4]) if found else None


def is_about(text: str, run: str) -> bool:
    """Whether a text is our comment on this run."""
    found = marked(text)
    return found is not None and found.run == safe_run(run)
