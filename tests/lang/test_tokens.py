"""Where expressions stand in a text."""

import time

import pytest

from runbook.lang.expressions import find_expressions, is_whole


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("no expression $x {{ y }} }}", []),
        ("a ${{ vars.x }} b ${{y}}", [" vars.x ", "y"]),
        ("${{ {'a': {'b': 1}} }}", [" {'a': {'b': 1}} "]),
        ("${{ {'a': {'b': 1}}}}", [" {'a': {'b': 1}}"]),
        ("${{ '}}' }} tail }}", [" '}}' "]),
        ("${{ 'it\\'s }}' }}", [" 'it\\'s }}' "]),
        ("$${{ not }} ${{ yes }}", [" yes "]),
        ("${{ it's }} b", [" it's "]),
        ("${{ (1 }} b", [" (1 "]),
        ("${{\n a\n}}", ["\n a\n"]),
    ],
)
def test_expressions_are_found(text, sources):
    found = find_expressions(text)
    assert [item.source for item in found] == sources
    assert all(item.closed and text[item.start : item.end] == "${{" + item.source + "}}" for item in found)
    assert all(text[item.offset :].startswith(item.source) for item in found)


def test_an_unclosed_expression_is_a_value_not_an_exception():
    found = find_expressions("a ${{ b }} c ${{ d } e")
    assert [item.closed for item in found] == [True, False]
    assert (found[1].start, found[1].end) == (13, 22)


@pytest.mark.parametrize("text", ["${{ a }}", "  ${{ a }}\n", "${{ '}} ${{' }}"])
def test_a_whole_expression_is_recognised(text):
    assert is_whole(text)


@pytest.mark.parametrize("text", ["${{ a }} ${{ b }}", "x${{ a }}", "$${{ a }}", "${{ a", "", "${{ a }}x }}"])
def test_what_is_more_or_less_than_one_expression_is_not_whole(text):
    assert not is_whole(text)


def test_a_text_full_of_openings_is_read_in_linear_time():
    begin = time.process_time()
    find_expressions("${{ ( " * 20_000)
    find_expressions("${{ ' }} " * 20_000)
    assert time.process_time() - begin < 5
