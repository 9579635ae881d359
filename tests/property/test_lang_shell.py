"""A value in shell text is always exactly one word, whatever stands around it."""

import shlex

from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.lang.shell_text import render_shell, shell_problems

WORDS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=15)
SHELLISH = st.text(st.sampled_from("ab \n\t'\"\\$(){}`#<>&|;=!*E"), max_size=25)


@given(WORDS, WORDS)
def test_a_text_is_one_word(one, two):
    found = render_shell("cmd ${{ vars.one }} --x=${{ vars.two }} end", {"vars": {"one": one, "two": two}})
    assert found.problems == ()
    assert shlex.split(found.value) == ["cmd", one, f"--x={two}", "end"]


@given(st.lists(WORDS, max_size=4))
def test_a_list_is_its_words(words):
    assert shlex.split(render_shell("cmd ${{ vars.words }} end", {"vars": {"words": words}}).value) == ["cmd", *words, "end"]
    assert shlex.split(render_shell("${{ vars.words }}", {"vars": {"words": words}}).value) == words


@given(st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False))
def test_a_number_is_one_word(number):
    found = render_shell("cmd ${{ vars.n }}", {"vars": {"n": number}})
    assert len(shlex.split(found.value)) == 2


@settings(max_examples=80)
@given(SHELLISH, SHELLISH)
def test_every_expression_is_filled_as_one_word_or_reported(before, after):
    """Where the text is plain for `shlex` too, the value arrives whole between its neighbours."""
    text = f"{before}${{{{ vars.x }}}}{after}"
    if before.endswith("$") or "${{" in before + "|" + after:  # an escape, or an expression of its own
        return
    problems = shell_problems(text)
    found = render_shell(text, {"vars": {"x": "it's; rm -rf /"}})
    whole = text.strip() == "${{ vars.x }}"
    assert (found.value == text) == bool(problems or whole)
    if not problems and not whole and not set(before) & set("`\"'\\$#<"):
        assert found.value == before + shlex.quote("it's; rm -rf /") + after


@given(SHELLISH.filter(lambda text: "E" not in text))
def test_a_quote_before_the_expression_decides_as_in_a_shell(before):
    """Where `shlex` finds an open quote in front of it, so do we."""
    if set(before) & set("`$#<()\\"):
        return
    try:
        shlex.split(before)
        is_open = False
    except ValueError:
        is_open = True
    codes = [problem.code for problem in shell_problems(before + "${{ vars.x }}")]
    assert codes == (["expression-in-quotes"] if is_open else [])
