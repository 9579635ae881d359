"""Properties of expressions: no exception, an end, Kleene's truth tables, and Python's answers on the common subset."""

import itertools
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.lang.expressions import Evaluation, Parsed, Unknown, evaluate, find_expressions, is_whole, parse, template

NAMES = st.sampled_from(["vars.a", "vars.b", "vars.list", "vars.text", "vars.none", "steps.u", "steps.hits", "x", "vars", "vars.missing"])
LITERALS = st.sampled_from(["0", "1", "2.5", "'a'", "''", "true", "false", "null", "[]", "[1, 2]", "{'a': 1}", "9223372036854775807"])
SCOPE = {
    "vars": {"a": 3, "b": -1.5, "list": [1, 2, [3]], "text": "a\nb", "none": None},
    "steps": {"u": Unknown("not seen"), "hits": [{"a": 1}, {"a": Unknown("cut")}]},
}


OPERATORS = ["+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
FUNCTIONS = "len sum any all sorted abs round known quote raw lines json basename min max".split()
SHAPES = [
    *(f"({{0}} {op} {{1}})" for op in OPERATORS),
    *(f"{name}({{0}})" for name in FUNCTIONS),
    *("(not {0})", "(-{0})", "{0}[{1}]", "{0}[{1}:{2}]", "[{0}, {1}]", "({0}).a", "({0} if {1} else {2})", "({0} < {1} < {2})"),
    *("[{0} for x in {1}]", "any({0} for x in {1})", "all(x.a for x in {1} if {0})", "[x for y in {0} for x in {1}]"),
    *("default({0}, {1})", "search({0}, {1})", "get({0}, {1})", "match({0}, {1})", "round({0}, {1})"),
]


def grown_from(shapes):
    """Put expressions into shapes, again and again."""
    return lambda inner: st.builds(lambda shape, parts: shape.format(*parts), st.sampled_from(shapes), st.tuples(inner, inner, inner))


EXPRESSIONS = st.recursive(NAMES | LITERALS, grown_from(SHAPES), max_leaves=12)
SOUP = st.text(st.sampled_from("ab.01 '\"()[]{},:=<>!+-*/%#\\\n$&|@~?_é\0for in if else lambda"), max_size=40)


@settings(max_examples=80)
@given(EXPRESSIONS)
def test_an_evaluation_ends_in_exactly_one_way(source):
    parsed = parse(source)
    assert isinstance(parsed, Parsed), (source, parsed)
    result = evaluate(parsed, SCOPE)
    assert isinstance(result, Evaluation)
    assert (result.unknown is None) or (result.problem is None)
    if result.unknown is not None or result.problem is not None:
        assert result.value is None
    assert all(isinstance(part.source, str) and isinstance(part.value_text, str) for part in result.parts)


@settings(max_examples=80)
@given(SOUP | st.text(max_size=30))
def test_no_source_raises(source):
    parsed = parse(source)
    if isinstance(parsed, Parsed):
        evaluate(parsed, SCOPE)
        assert all(source[ref.offset :].startswith(ref.root) for ref in parsed.references)
    else:
        assert parsed.summary and 0 <= parsed.offset <= len(source)


@given(SOUP.map(lambda text: text.replace("for", "${{").replace("in", "}}")))
def test_finding_expressions_covers_the_text_in_order(text):
    found = find_expressions(text)
    ends = [0, *(item.end for item in found)]
    assert all(end <= item.start < item.end <= len(text) for end, item in zip(ends, found, strict=False))
    assert is_whole(text) <= (len(found) == 1)
    template(text, SCOPE)


BOOLEANS = {"true": True, "false": False, "steps.u": None}


def answer(source):
    result = evaluate(parse(source), SCOPE)
    assert result.problem is None
    return None if result.unknown is not None else result.value


def kleene_and(values):
    return False if False in values else None if None in values else True


def kleene_or(values):
    return True if True in values else None if None in values else False


def test_the_three_valued_truth_tables():
    for words in itertools.product(BOOLEANS, repeat=3):
        values = [BOOLEANS[word] for word in words]
        assert answer(" and ".join(words)) is kleene_and(values), words
        assert answer(" or ".join(words)) is kleene_or(values), words
        assert answer(f"all([{', '.join(words)}])") is kleene_and(values), words
        assert answer(f"any([{', '.join(words)}])") is kleene_or(values), words
        assert answer(f"any(x for x in [{', '.join(words)}])") is kleene_or(values), words
        assert answer(f"all(x for x in [{', '.join(words)}])") is kleene_and(values), words
    assert answer("not true") is False and answer("not false") is True and answer("not steps.u") is None


ATOMS = st.one_of(
    st.integers(-20, 20).map(str), st.sampled_from(["a", "b", "True", "False", "1.5", "'x'", "''", "[1, 2]", "[]", "None", "words"])
)


PYTHON_SHAPES = [
    *(f"({{0}} {op} {{1}})" for op in OPERATORS),
    *(f"{name}({{0}})" for name in "len sum any all sorted abs min max".split()),
    *("(not {0})", "(-{0})", "({0} if {1} else {2})", "[{0} for w in [{1}, 3] if w]", "words[{0}]", "words[{0}:{1}]", "({0} < {1} <= {2})"),
]


@settings(max_examples=80)
@given(st.recursive(ATOMS, grown_from(PYTHON_SHAPES), max_leaves=8))
def test_where_there_is_an_answer_it_is_pythons(source):
    """The language refuses more than Python does, and never answers otherwise."""
    names = {"a": 7, "b": -2, "words": ["x", "y", "z"]}
    result = evaluate(parse(source), names)
    if result.problem is None:
        functions = {
            name: getattr(__builtins__, name, None) or __builtins__[name]
            for name in ("len", "sum", "any", "all", "sorted", "abs", "min", "max")
        }
        expected = eval(source, {"__builtins__": {}, **functions, **names})
        assert result.value == expected and type(result.value) is type(expected)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_json_reads_back(value):
    assert json.loads(evaluate(parse("json(steps.x)"), {"steps": {"x": value}}).value) == value


@given(JSON, JSON)
def test_equality_is_pythons(left, right):
    scope = {"vars": {"l": left, "r": right}}
    assert answer_in("vars.l == vars.r", scope) is (left == right)
    assert answer_in("vars.l == vars.l", scope) is True


def answer_in(source, scope):
    return evaluate(parse(source), scope).value


@given(st.text(max_size=20))
def test_text_from_a_host_comes_out_as_it_went_in(text):
    scope = {"steps": {"x": text}}
    assert template("${{ steps.x }}", scope).value == text
    assert template("<${{ steps.x }}>", scope).value == f"<{text}>"
