"""The subset of Python that is an expression, what it refers to, and what is told to those who write more."""

import subprocess
import sys
import warnings

import pytest

from runbook.lang.expressions import FUNCTIONS, Parsed, ParseProblem, Reference, parse


def refused(source):
    problem = parse(source)
    assert isinstance(problem, ParseProblem), problem
    return problem


@pytest.mark.parametrize(
    ("source", "references"),
    [
        ("vars.model", [("vars", ("model",), "vars.model")]),
        ("  vars.a\n  + vars.b ", [("vars", ("a",), "vars.a"), ("vars", ("b",), "vars.b")]),
        ("steps.chat.hits[0].x[-1] > 3", [("steps", ("chat", "hits", 0, "x", -1), "steps.chat.hits[0].x[-1]")]),
        ("hosts['gpu'][0].name", [("hosts", ("gpu", 0, "name"), "hosts['gpu'][0].name")]),
        ("vars.table[item].x", [("vars", ("table",), "vars.table"), ("item", (), "item")]),
        ("steps.a.text[1:3]", [("steps", ("a", "text"), "steps.a.text")]),
        ("any(h.a == vars.t for h in steps.s.hits if h.b)", [("steps", ("s", "hits"), "steps.s.hits"), ("vars", ("t",), "vars.t")]),
        ("[b for a in vars.x for b in a]", [("vars", ("x",), "vars.x")]),
        ("'é' + vars.ü", [("vars", ("ü",), "vars.ü")]),
        ("known(steps.a.b)", [("steps", ("a", "b"), "steps.a.b")]),
        ("true and null == false", []),
        ("x in [x for x in item]", [("x", (), "x"), ("item", (), "item")]),
    ],
)
def test_references_are_the_free_names_with_their_places(source, references):
    parsed = parse(source)
    assert isinstance(parsed, Parsed), parsed
    assert [(ref.root, ref.path, source[ref.offset : ref.offset + ref.length]) for ref in parsed.references] == references


@pytest.mark.parametrize(
    ("source", "marked", "hint"),
    [
        ("x.lower()", ".lower", "(?i)"),
        ("a.get('b')", ".get", "get(x, 'key', default)"),
        ("len(x.items())", ".items", "[k for k in x]"),
        ("f'{x}'", "f'{x}'", "${{ value }}"),
        ("(lambda: 1)", "lambda: 1", "comprehension"),
        ("2 ** 3", "2 ** 3", "multiply"),
        ("(a := 1)", "a := 1", "`set`"),
        ("a.__class__", "a.__class__", "['__class__']"),
        ("_x", "_x", "vars, steps"),
        ("serch('a', b)", "serch", "did you mean `search`?"),
        ("str(a)", "str", "text ${{ value }}"),
        ("range(3)", "range", "[0, 1, 2]"),
        ("eval('1')", "eval", "functions are: "),
        ("len(a, b)", "len(a, b)", "len(a)"),
        ("max()", "max()", "max("),
        ("sorted(a, reverse=True)", "sorted(a, reverse=True)", "sorted(a)"),
        ("lines", "lines", "lines(…)"),
        ("a is None", "a is None", "`==`"),
        ("x | default(1)", "x | default(1)", "default(x, 1)"),
        ("{1, 2}", "{1, 2}", "[1, 2]"),
        ("{**a}", "{**a}", "keys"),
        ("[*a]", "*a", "`+`"),
        ("b'x'", "b'x'", "text"),
        ("1j", "1j", "number"),
        ("...", "...", "text"),
        ("(x for x in y)", "(x for x in y)", "[x for x in items]"),
        ("9223372036854775809", "9223372036854775809", "text"),
        ("1e999", "1e999", "smaller"),
        ("[len for len in x]", "len", "plain name"),
        ("a # b", " # b", "comment"),
        ("a && b", "&", "`and`"),
        ("a || b", "|", "`or`"),
        ("!a", "!", "`not`"),
        ("a = 1", "=", "`==`"),
        ("a ? b : c", "?", "if condition else"),
        ("${{ a }}", "$", "drop the inner"),
        ("a.from", "f", "['from']"),
        ("'abc", "'", "closing '"),
        ("a +", "+", "missing"),
        ("[1, 2", "[", "1 `[` and 0 `]`"),
    ],
)
def test_what_is_not_in_the_language_is_refused_with_the_allowed_way(source, marked, hint):
    problem = refused(source)
    assert source[problem.offset : problem.offset + problem.length] == marked
    assert hint in problem.hint


def test_an_offset_counts_characters_from_the_start_of_the_source():
    problem = refused("  'é' + x.lower()")
    assert (problem.offset, problem.length) == (9, 6)


@pytest.mark.parametrize(
    "source", ["", "  ", "\0", "\ud800", "-" * 4000 + "1", "(" * 300 + "1" + ")" * 300, "1" * 4090, "x" * 5000, "[" * 4000]
)
def test_an_unreadable_source_is_a_problem_not_an_exception(source):
    assert refused(source).summary


def test_nesting_is_bounded():
    assert isinstance(parse("not " * 30 + "a"), Parsed)
    for source in ("not " * 60 + "a", "a" + ".b" * 1000, "a" + "[0]" * 1000, "[1]" + "[0]" * 1000):
        assert "deeper" in refused(source).summary


def test_a_backslash_in_a_pattern_warns_nobody():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        warnings.filterwarnings("ignore", module="<expression>")
        assert isinstance(parse(r"search('\d+\.', vars.x)"), Parsed)
    assert seen == []


def test_equal_sources_give_equal_results():
    assert parse("vars.a") == parse("vars.a") != parse("vars.b")
    assert parse("vars.a").references == (Reference("vars", ("a",), 0, 6),)


def test_the_functions_are_exactly_these():
    assert sorted(FUNCTIONS) == sorted(
        "len min max sum any all sorted abs round default get known quote raw match search lines json duration size basename env"
        " tensor_diff".split()
    )


def test_a_name_that_python_would_spell_otherwise_is_refused():
    """Its key in the YAML text is another one, so it would never be found."""
    assert "['…']" in refused("vars.µ").hint
    assert isinstance(parse("vars['µ'] + vars.ü"), Parsed)


def test_parsing_loads_none_of_the_evaluator():
    code = "import sys, runbook.lang.parse; print([m for m in ('json', 'shlex', 'runbook.lang.functions') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30).stdout == "[]\n"
