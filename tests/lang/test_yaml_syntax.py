"""Broken YAML: each common mistake has its own code, its place, and a hint that says what to type."""

import pytest

from runbook.lang.yaml_loader import load

CASES = [
    ("a:\n\tb: 1", "tab-indentation", "2:1", "spaces"),
    ("a:\n  - b\n \t- c", "tab-indentation", "3:2", "spaces"),
    ("a: |\n\tx", "tab-indentation", "2:1", "spaces"),
    ("run: a: b", "unquoted-colon", "1:6", "quote it: 'a: b'"),
    ("- run: echo it's: b", "unquoted-colon", "1:8", "quote it: 'echo it''s: b'"),
    ("a: ${{ {'x': 1} }}", "unquoted-colon", "1:4", "quote it: '${{ {''x'': 1} }}'"),
    ("a:b\nc: 1", "missing-blank", "1:1", "write `a: b`"),
    ("a: 1\n  b: 2", "bad-indentation", "2:3", "column 1, below `a`"),
    ("- id: a\n  b: 2\n c: 3", "bad-indentation", "3:2", "block began"),
    ("s:\n  - id: a\n  run: b", "bad-indentation", "3:3", "column 5"),
    ("a: [*x.y, 2]", "reserved-character", "1:5", "quote it: '*x.y'"),
    ("a: 'x\n  b: 1\nc: 'y'", "unclosed-quote", "1:4", "closing '"),
    ("a: @x", "reserved-character", "1:4", "quote it: '@x'"),
    ("a: `x`", "reserved-character", "1:4", "quote it: '`x`'"),
    ("a: %x", "reserved-character", "1:4", "quote it: '%x'"),
    ("a: }", "reserved-character", "1:4", "quote it: '}'"),
    ("a: * 5", "reserved-character", "1:4", "quote it: '* 5'"),
    ("a: &&x", "reserved-character", "1:4", "quote it: '&&x'"),
    ("a: [ -f x ] && y", "text-after-value", "1:14", "quoted as a whole: '[ -f x ] && y'"),
    ('a: "x" y', "text-after-value", "1:8", "quoted as a whole"),
    ("a: {b: ${{ x }}}", "unquoted-expression", "1:8", "quote it: '${{ x }}'"),
    ("a: [1, ${{ vars.x }}, 2]", "unquoted-expression", "1:8", "quote it: '${{ vars.x }}'"),
    ("a: ['${{ b }}', ${{ c }}]", "unquoted-expression", "1:17", "quote it: '${{ c }}'"),
    ("a: {\n  b: ${{ x }},\n  c: 1}", "unquoted-expression", "2:6", "quote it: '${{ x }}'"),
    ("a: 'x\nb: 1", "unclosed-quote", "1:4", "closing '"),
    ('b: 1\na: "x\n', "unclosed-quote", "2:4", 'closing "'),
    ('a: "\\d+"', "bad-escape", "1:5", "single quotes"),
    ("a: [1, 2\nb: 1", "unclosed-bracket", "1:4", "`]`"),
    ("{a: 1", "unclosed-bracket", "1:1", "`}`"),
    ("a: b\nc\nd: e", "missing-colon", "2:1", "write `c:`"),
    ("a: |foo\n x", "bad-block-text", "1:5", "next line"),
    ("- a\nb: 1", "bad-indentation", "2:1", "line 1"),
    ("a:\n    b: 1\n  c: 2", "bad-indentation", "3:3", "line 1"),
    ("%YAML 3.0\n---\na: 1", "directive", "1:1", "remove the line"),
]


@pytest.mark.parametrize(("text", "code", "place", "hint"), CASES, ids=[repr(case[0]) for case in CASES])
def test_a_common_mistake_is_told_how_to_repair_it(text, code, place, hint):
    _, problems = load(text, "f.yaml")
    assert [(problem.code, str(problem.span)) for problem in problems] == [(code, f"f.yaml:{place}")]
    assert hint in problems[0].hint


def test_problems_before_broken_syntax_are_kept():
    _, problems = load("a: 012\nb: 'x", "f.yaml")
    assert [problem.code for problem in problems] == ["leading-zero", "unclosed-quote"]
