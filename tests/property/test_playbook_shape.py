"""The checker and the published schema are two readings of one struct: they agree, and a step survives its own dict."""

from __future__ import annotations

import json

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.playbook.build import load_playbook
from runbook.playbook.convert import dec_hook
from runbook.playbook.keys import BLOCK, COMMON, TOP
from runbook.playbook.schema import playbook_schema, typed_form
from runbook.playbook.shape import Shape, type_of
from tests.playbook.table import PROFILES, TABLE

EXPRESSION = "${{ vars.x }}"
SCALARS = st.one_of(
    st.sampled_from(["stop", "keep", "5s", "1GiB", "TERM 15s", "x", "", EXPRESSION, f"{EXPRESSION}s", "true"]),
    st.integers(-5, 70000),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: not number.is_integer()),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["port", "cmdline", "that", "because", "A"]), inner, max_size=3)
    ),
    max_leaves=6,
)
SCHEMA = playbook_schema(TABLE)
KEYS = {name: [*step.__struct_encode_fields__, "nonsense"] for name, step in TABLE.items()}


@st.composite
def bodies(draw):
    name = draw(st.sampled_from([name for name, step in TABLE.items() if not step.FREE]))
    return name, draw(st.dictionaries(st.sampled_from(KEYS[name]), VALUES, max_size=4))


def _validator(name):
    return jsonschema.Draft202012Validator({**SCHEMA["$defs"][name], "$defs": SCHEMA["$defs"]})


VALIDATORS = {name: _validator(name) for name in TABLE}


@settings(max_examples=60, deadline=None)
@given(bodies())
def test_the_published_schema_takes_exactly_what_the_checker_takes(pair):
    name, body = pair
    misfits = Shape().visit(type_of(TABLE[name]), body).misfits
    assert VALIDATORS[name].is_valid(body) == (not misfits), misfits


@settings(max_examples=60, deadline=None)
@given(bodies())
def test_what_the_checker_takes_can_be_built_and_typed_again(pair):
    name, body = pair
    shape = Shape().visit(type_of(TABLE[name]), body)
    if shape.misfits or shape.holes:
        return
    step = msgspec.convert(body, TABLE[name], dec_hook=dec_hook)
    assert msgspec.convert(typed_form(step), TABLE[name], dec_hook=dec_hook) == step


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TABLE))
def test_the_schema_itself_is_valid(name):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$defs"]["step"]["properties"][name] == {"$ref": f"#/$defs/{name}"}


DOCUMENTS = st.recursive(
    st.one_of(SCALARS, st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from([*TABLE, *TOP, *COMMON, *BLOCK, "x", "with", "playbook", "type", "default", "choices", "value"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=25,
)


LIBRARY = b"""runbook: 1
hosts: {box: local}
inputs: {a: {default: 1}, b: {type: step}, c: {type: list, default: []}}
outputs: {x: '${{ vars.a }}'}
steps: [{id: y, stop: {step: '${{ vars.b }}'}}, {run: 'true'}]
"""


@given(
    st.one_of(
        DOCUMENTS,
        st.lists(DOCUMENTS, max_size=4).map(lambda steps: {"runbook": 1, "hosts": {"box": "local"}, "vars": {"x": 1}, "steps": steps}),
        st.dictionaries(st.sampled_from(TOP), DOCUMENTS, max_size=5).map(
            lambda top: {"runbook": 1, "hosts": {"box": "local"}, "steps": [{"id": "x", "include": "lib"}, {"run": "true"}], **top}
        ),
    )
)
def test_no_document_breaks_the_checks_and_every_refusal_says_why(document):
    """A mistake is a value: whatever is written, the answer is a playbook or diagnostics with places."""
    options = {"table": TABLE, "profiles": PROFILES, "read": lambda _: LIBRARY, "find": lambda name, _: name}
    playbook, found = load_playbook(json.dumps(document).encode(), "f.yaml", **options)
    assert (playbook is None) == any(one.severity.value == "error" for one in found)
    assert all(one.span is not None and "\n" not in one.summary for one in found)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_break_the_checks(source):
    playbook, found = load_playbook(source, "f.yaml", table=TABLE, profiles=PROFILES)
    assert playbook is None and found
