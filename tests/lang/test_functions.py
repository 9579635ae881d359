"""Each function: its answer and its refusal."""

import pytest

from runbook.lang.expressions import Raw, evaluate, parse

# A backslash in an expression's text warns nobody, but pytest resets the filter that says so.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")

SCOPE = {
    "vars": {"a": {"b": [{"c": 1}], "k.x": 2}, "none": None, "log": "INFO start\nERROR 42: bad\r\ndone\n", "nan": float("nan")},
    "__env__": {"HOME": "/root"},
}


def run(source):
    return evaluate(parse(source), SCOPE)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("len('äb')", 2),
        ("len({'a': 1})", 1),
        ("min(3, 1, 2)", 1),
        ("max([1.5, 2])", 2),
        ("max(x * 2 for x in [1, 5])", 10),
        ("min('b', 'a')", "a"),
        ("sum([1, 2.5])", 3.5),
        ("sum(x > 1 for x in [1, 2, 3])", 2),
        ("sorted([3, 1, 2])", [1, 2, 3]),
        ("sorted({'b': 1, 'a': 2})", ["a", "b"]),
        ("abs(-3)", 3),
        ("round(2.5678, 2)", 2.57),
        ("round(2.6)", 3),
        ("get(vars.a, 'b[0].c')", 1),
        ("get(vars.a, 'b[-1].c', 9)", 1),
        ("get(vars.a, 'b[5].c', 9)", 9),
        ("get(vars.a, 'x.y')", None),
        ("get(vars.a, \"['k.x']\")", 2),
        ("get(vars.none, 'a', 'd')", "d"),
        ("search('ERROR (\\\\d+)', vars.log)", ["ERROR 42", "42"]),
        (r"search('(?m)^(\w+)$', vars.log)", ["done", "done"]),
        ("match('a.c', 'abc')", ["abc"]),
        ("match('a', 'abc')", None),
        ("search('(a)|(b)', 'b')", ["b", None, "b"]),
        ("lines(vars.log)", ["INFO start", "ERROR 42: bad", "done"]),
        ("lines('')", []),
        ("lines('\\n')", [""]),
        ("json({'a': [1, true, null, 'ü']})", '{"a": [1, true, null, "ü"]}'),
        ("duration('1h30m')", 5400.0),
        ("size('1.5KiB')", 1536),
        ("basename('/a/b.py')", "b.py"),
        ("basename('/a/b/')", "b"),
        ("env('HOME')", "/root"),
        ("env('NOPE', 'x')", "x"),
    ],
)
def test_a_function_answers(source, expected):
    result = run(source)
    assert result.problem is None
    assert result.value == expected and type(result.value) is type(expected)


@pytest.mark.parametrize(
    ("source", "text"), [("raw('a | b')", "a | b"), ("quote('a b')", "'a b'"), ("quote(['a b', 1])", "'a b' 1"), ("raw(3)", "3")]
)
def test_raw_and_quote_mark_shell_text(source, text):
    found = run(source).value
    assert isinstance(found, Raw) and found == text


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("len(3)", "no length"),
        ("max([])", "empty"),
        ("max([1, 'a'])", "not a mix"),
        ("sum(['a'])", "number"),
        ("abs('a')", "number"),
        ("round(vars.nan)", "round"),
        ("round(1.5, 99)", "digits"),
        ("search('(', 'a')", "not a regular expression"),
        ("search('(a+)+$', 'a')", "forever"),
        (r"search(r'(\b\w+\b)+$', 'a')", "forever"),
        ("search(r'(\\w+\\s?)*$', 'a')", "forever"),
        ("search('" + "a" * 1001 + "', 'a')", "1001 characters"),
        ("match('a', 3)", "takes text"),
        ("lines(3)", "takes text"),
        ("duration('5')", "write `5s`"),
        ("duration(5)", "takes text"),
        ("size('1XB')", "units are"),
        ("size('" + "9" * 400 + "B')", "size"),
        ("duration('" + "9" * 400 + "s')", "duration"),
        ("get(vars.a, 'b..c')", "cannot read the path"),
        ("raw([1])", "json(x)"),
        ("quote(vars.none)", "default"),
        ("quote('a\\x00b')", "NUL"),
    ],
)
def test_a_function_refuses_with_a_reason(source, said):
    assert said in run(source).problem


def test_separated_repetitions_are_no_explosion():
    assert run(r"match('(?:\d+,)+', '1,22,')").value == ["1,22,"]


def test_a_long_text_is_not_searched():
    assert "grep" in evaluate(parse("search('a', steps.x)"), {"steps": {"x": "b" * (2**20 + 1)}}).problem
