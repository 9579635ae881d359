"""The published schemas, to check what real commands print."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import jsonschema

SCHEMAS = Path(__file__).parents[2] / "schemas"


@functools.cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    """The committed schema of that name."""
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)
