"""Properties of the loader: it reads back what was dumped, points at what it names, and never raises."""

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.lang.yaml_loader import load
from runbook.model.diagnostic import Severity

PRINTABLE = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufeff\ufffe\uffff\u2028\u2029\x85"), max_size=12)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(allow_nan=False, allow_infinity=False), PRINTABLE)
DATA = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PRINTABLE, inner, max_size=4), max_leaves=12)
SOUP = st.text(st.sampled_from("abc012 \n\t:-[]{},'\"&*!|>%@`#?~.<$\\é\ud800\0\x1b"), max_size=60)


class Quoted(yaml.SafeDumper):
    """Text in quotes, so that its type is the same in each version of YAML."""


Quoted.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


@settings(max_examples=60)
@given(DATA.filter(lambda data: data is not None), st.booleans())
def test_a_dumped_document_loads_equal(data, flow):
    document, problems = load(yaml.dump(data, Dumper=Quoted, default_flow_style=flow, allow_unicode=True), "f.yaml")
    assert problems == [] and document.data == data


@settings(max_examples=60)
@given(
    st.dictionaries(st.from_regex(r"\A[a-z]{1,6}\Z"), st.integers(0, 10**9) | st.from_regex(r"\Ax[a-z]{0,8}\Z"), min_size=1, max_size=6),
    st.booleans(),
)
def test_each_span_covers_the_text_it_names(data, flow):
    text = yaml.dump({"top": [data]}, default_flow_style=flow)
    document, problems = load(text, "f.yaml")
    lines = text.split("\n")
    assert problems == []
    for key, value in data.items():
        for span, shown in ((document.span(("top", 0, key)), str(value)), (document.key_span(("top", 0, key)), key)):
            assert lines[span.line - 1][span.column - 1 :][: span.length] == shown


@settings(max_examples=80)
@given(st.binary(max_size=80) | SOUP | SOUP.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_input_raises(source):
    document, problems = load(source, "f.yaml")
    assert document is not None or any(problem.severity is Severity.ERROR for problem in problems)
    for problem in problems:
        assert problem.span.line >= 1 and problem.span.column >= 1 and problem.summary and problem.hint


@given(SOUP)
def test_what_is_accepted_is_what_yaml_accepts(text):
    document, problems = load(text, "f.yaml")
    if document is not None and not any(problem.severity is Severity.ERROR for problem in problems):
        list(yaml.parse(text.removeprefix("\ufeff"), Loader=yaml.CSafeLoader))


@given(
    st.lists(st.sampled_from(["a", "b", " ", "'", "${{ a }}", "${{ b }}", "ab"]), max_size=6).map(
        lambda parts: "a${{ b }}" + "".join(parts)
    ),
    st.integers(0, 20),
    st.integers(1, 4),
    st.booleans(),
)
def test_a_part_of_a_value_points_at_the_same_text(value, offset, length, block):
    text = f"k: |\n  {value}\n" if block and value.strip() == value else yaml.dump({"k": value}, width=1000)
    document, _ = load(text, "f.yaml")
    wanted = value[offset : offset + length]
    span = document.within(("k",), offset, length)
    if len(wanted) == length and span != document.span(("k",)):
        assert text.split("\n")[span.line - 1][span.column - 1 :][:length] == wanted
