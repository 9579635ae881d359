"""Data as YAML that a person would have written: what is short in one line, long text as a block."""

from __future__ import annotations

import io
from typing import Any

import yaml

WIDTH = 130
SHORT = 125
"""Longest flow collection, in characters."""


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    lines = text.split("\n")
    block = len(lines) > 1 and not any(line != line.rstrip() for line in lines) and text.strip() == text
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if block else None)


_Dumper.add_representer(str, _text)


def dump(value: Any, block: int = 1) -> str:
    """The text without a line break at its end. It loads to the same data by YAML 1.2. The outer `block` levels are never in one line."""
    dumper = _Dumper(io.StringIO(), width=WIDTH)
    node = dumper.represent_data(value)
    dumper.dispose()
    _lay_out(node, block)
    text: str = yaml.serialize(node, Dumper=_Dumper, width=WIDTH, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _lay_out(node: Any, block: int) -> int:
    """Choose flow or block for each collection; answers about how long it is in one line, endless with a block in it."""
    if not isinstance(node, yaml.CollectionNode):
        return WIDTH * 9 if node.style == "|" else len(node.value) + 2
    inner = [one for pair in node.value for one in pair] if isinstance(node, yaml.MappingNode) else node.value
    length = 2 + sum(_lay_out(one, block - 1) + 2 for one in inner)
    node.flow_style = not inner or (block <= 0 and length <= SHORT)
    return length
