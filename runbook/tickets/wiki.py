"""Jira's wiki markup (Server and Data Center) from the blocks of a transcript."""

from __future__ import annotations

import re

from runbook.tickets.markup import BLANK, Block, Bullets, Code, Heading, Table, blocks

_SPECIAL = re.compile(r"([\\{}\[\]*_+^~|!?#-])")
_ENDS = re.compile(r"\{(?=noformat|code)", re.IGNORECASE)


def wiki(markdown: str, last_line: str) -> str:
    """The text, the marker as its last line."""
    return "\n\n".join([*map(_block, blocks(markdown)), last_line])


def escaped(text: str) -> str:
    """Text in which nothing is markup."""
    return _SPECIAL.sub(r"\\\1", text)


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"h{block.level}. {escaped(block.text)}"
    if isinstance(block, Code):
        return "{noformat}\n" + _ENDS.sub("{" + BLANK, block.text) + "\n{noformat}"
    if isinstance(block, Bullets):
        return "\n".join(f"* {escaped(item)}" for item in block.items)
    if isinstance(block, Table):
        return "\n".join(_row(row, "||" if at == 0 else "|") for at, row in enumerate(block.rows))
    return escaped(block.text)


def _row(cells: list[str], bar: str) -> str:
    return bar + bar.join(escaped(cell) or " " for cell in cells) + bar
