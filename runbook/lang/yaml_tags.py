"""YAML tags, which are refused: what was meant, and what to write."""

from __future__ import annotations

from typing import Any

from runbook.lang.scalars import resolve

_STANDARD = "tag:yaml.org,2002:"
_TYPES = {
    "str": "write the text in quotes",
    "null": "write `null`",
    "bool": "write `true` or `false`",
    "int": "write the number alone",
    "float": "write the number alone",
    "seq": "write the list alone",
    "map": "write the mapping alone",
}
_FOREIGN = {
    "vault": "name the variable under `secrets:` and write `${{ secrets.NAME }}`",
    "secret": "name the variable under `secrets:` and write `${{ secrets.NAME }}`",
    "include": "write a step `include: {playbook: NAME}`, or name the file under `vars_files:`",
    "unsafe": "write the text in quotes; `$${{` is a literal `${{`",
}
"""Tags of other tools."""
_ENVIRONMENT = ("env", "env_var", "ENV")


def shown(tag: str) -> str:
    """A tag as it is written."""
    return "!!" + tag.removeprefix(_STANDARD)[:60] if tag.startswith(_STANDARD) else tag[:60]


def hint(tag: str, plain: bool, text: str = "") -> str:
    """What to write instead; `plain`: it stands before `text` without quotes, or before nothing."""
    name = tag.removeprefix(_STANDARD) if tag.startswith(_STANDARD) else tag.lstrip("!")
    if tag.startswith(_STANDARD):
        return _TYPES.get(name, "leave it out: a value is plain data")
    if name in _ENVIRONMENT:
        return f"write `${{{{ env('{text if text.isidentifier() else 'NAME'}') }}}}`"
    if name in _FOREIGN:
        return _FOREIGN[name]
    return "text that begins with `!` must be quoted" + (f"; in a condition write `not {name[:60]}`" if plain and name else "")


def meant(tag: str, text: str, plain: bool) -> Any:
    """The value of a scalar with a tag, so that what else is wrong with it can be told."""
    if tag.startswith(_STANDARD):
        return text if tag == f"{_STANDARD}str" or not plain else resolve(text)[0]
    return f"not {tag[1:]} {text}".rstrip() if plain and tag.lstrip("!") not in (*_FOREIGN, *_ENVIRONMENT) else text
