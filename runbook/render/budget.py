"""How long a text may be where it goes. Counted in UTF-8 bytes, or in characters where the target counts those."""

from __future__ import annotations

from typing import NamedTuple

SMALLEST = 2_000
"""Bytes or characters below which verdict, evidence and failing step do not fit."""


class Budget(NamedTuple):
    """Limits of one place; null: none of that kind."""

    bytes: int | None = None
    chars: int | None = None

    def fits(self, text: str) -> bool:
        """Whether the text may go there."""
        return (self.bytes is None or len(text.encode("utf-8")) <= self.bytes) and (self.chars is None or len(text) <= self.chars)

    def __str__(self) -> str:
        parts = [f"{self.bytes:,} bytes" if self.bytes else "", f"{self.chars:,} characters" if self.chars else ""]
        return " and ".join(part for part in parts if part)


DEFAULT = Budget(bytes=60_000)
TARGETS: dict[str, Budget] = {
    "default": DEFAULT,
    "github": Budget(bytes=60_000),  # a comment: 65,536 characters in the error text, 262,144 bytes when tried; issue bodies likewise
    "github_summary": Budget(bytes=1024 * 1024),  # per step; more is refused as a whole, not cut
    "gitlab": Budget(bytes=1_000_000),  # a note: 1,000,000 characters
    "jira": Budget(chars=32_767),  # an administrator may have set another
    "redmine": Budget(bytes=60_000),  # notes are a text column of 64 KiB on MySQL
    "roundup": DEFAULT,
    "slack": Budget(chars=12_000),  # a Markdown block
    "webhook": DEFAULT,
}
"""Limits by target. Sources: the trackers' documentation and error texts, docs/guides/reports.md."""


def budget_of(value: int | Budget) -> Budget:
    """A number counts bytes. Raises ValueError for one that cannot hold verdict, evidence and failing step."""
    found = Budget(bytes=value) if isinstance(value, int) else value
    if any(limit is not None and limit < SMALLEST for limit in found):
        raise ValueError(f"a budget of {found} is too small: verdict, evidence and failing step need {SMALLEST:,}")
    return found
