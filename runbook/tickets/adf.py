"""Atlassian Document Format, the JSON in which Jira Cloud keeps text, from the blocks of a transcript; and the text in one."""

from __future__ import annotations

from typing import Any

from runbook.tickets.markup import Block, Bullets, Code, Heading, Table, blocks


def document(markdown: str, last_line: str) -> dict[str, Any]:
    """A document that ends in a paragraph of its own for the marker."""
    return {"type": "doc", "version": 1, "content": [*map(_node, blocks(markdown)), _paragraph(last_line)]}


def _text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text else []  # an empty text node is refused


def _paragraph(text: str) -> dict[str, Any]:
    return {"type": "paragraph", "content": _text(text)}


def _node(block: Block) -> dict[str, Any]:
    if isinstance(block, Heading):
        return {"type": "heading", "attrs": {"level": block.level}, "content": _text(block.text)}
    if isinstance(block, Code):
        return {"type": "codeBlock", "content": _text(block.text)}
    if isinstance(block, Bullets):
        return {"type": "bulletList", "content": [{"type": "listItem", "content": [_paragraph(item)]} for item in block.items]}
    if isinstance(block, Table):
        return {"type": "table", "content": [_row(row, "tableHeader" if at == 0 else "tableCell") for at, row in enumerate(block.rows)]}
    return _paragraph(block.text)


def _row(cells: list[str], kind: str) -> dict[str, Any]:
    return {"type": "tableRow", "content": [{"type": kind, "content": [_paragraph(cell)]} for cell in cells]}


def text_of(node: Any) -> str:
    """The text of a document, one line for each node at the top."""
    if isinstance(node, dict) and node.get("type") == "doc":
        return "\n".join(text_of(item) for item in node.get("content") or ())
    if isinstance(node, dict):
        return str(node.get("text") or "") + "".join(text_of(item) for item in node.get("content") or ())
    return ""
