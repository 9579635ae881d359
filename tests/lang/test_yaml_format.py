"""One form for playbooks: what it changes, what it leaves, and that twice is as good as once."""

from __future__ import annotations

import re

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

from runbook.lang.yaml_format import format_yaml
from runbook.lang.yaml_loader import load
from runbook.playbook.keys import TOP
from runbook.playbook.order import ORDER


def formed(text: str) -> str:
    """The text in its form; as a side effect: a second time changes nothing, the data and the comments are the same."""
    new, problems = format_yaml(text, "x.yaml", ORDER)
    assert new is not None, problems
    assert format_yaml(new, "x.yaml", ORDER).text == new
    before, after = load(text, "x.yaml")[0], load(new, "x.yaml")[0]
    assert before is not None and after is not None and before.data == after.data
    return new


CASES = {
    "indentation and list items": (
        "steps:\n- run: a\n- kill:\n      match:\n           port: 1\n  name: b\n",
        "steps:\n  - run: a\n  - kill:\n      match:\n        port: 1\n    name: b\n",
    ),
    "blank lines and blanks behind lines": ("\n\na: 1   \n\n\n\nb: 2\n\n\n", "a: 1\n\nb: 2\n"),
    "top keys with the comments above them": (
        "# head\nrunbook: 1\n# what\nsteps:\n  - run: a\n\n# where\nhosts: {x: local}\nname: n # why\n",
        "# head\nrunbook: 1\nname: n # why\n\n# where\nhosts: {x: local}\n# what\nsteps:\n  - run: a\n",
    ),
    "a step's own keys come before its type": (
        "runbook: 1\nsteps:\n  # first\n  - run: a   # short\n    # it is slow\n    timeout: 5m\n    id: one\n  - block:\n      - run: b\n        id: two\n    when: x\n",
        "runbook: 1\nsteps:\n  # first\n  - id: one\n    # it is slow\n    timeout: 5m\n    run: a   # short\n  - when: x\n    block:\n      - id: two\n        run: b\n",
    ),
    "a comment above the key that becomes the first": (
        "runbook: 1\nsteps:\n  - run: a\n    # what for\n    id: one\n",
        "runbook: 1\nsteps:\n  # what for\n  - id: one\n    run: a\n",
    ),
    "shell text keeps its own indentation": (
        "runbook: 1\nsteps:\n- run: |\n        if x; then\n          y  \n        fi\n\n\n        z\n",
        "runbook: 1\nsteps:\n  - run: |\n      if x; then\n        y  \n      fi\n\n\n      z\n",
    ),
    "a block scalar that names its indentation": ("a:\n    b: |2\n        x\n       y\n", "a:\n  b: |2\n      x\n     y\n"),
    "flow style and quotes stay": ("a:   {b: 'x',   c: [1,\n      2]}\nd: \"e\"\n", "a:   {b: 'x',   c: [1,\n      2]}\nd: \"e\"\n"),
    "an item out of a list, as a comment": ("a:\n- 1\n# - 2\nb: 3\n", "a:\n  - 1\n# - 2\nb: 3\n"),
    "lists in lists": ("a:\n-   - 1\n    - b: 2\n      c: 3\n", "a:\n  - - 1\n    - b: 2\n      c: 3\n"),
    "carriage returns": ("a: 1\r\nb: |\r\n    x\r\n", "a: 1\r\nb: |\r\n  x\r\n"),
    "the first line's end counts": ("a: 1\nb: |\r\n    x\r\n", "a: 1\nb: |\n  x\n"),
    "a break inside a value that counts as text": ("a:\n    b: {c: x\u2028y}\n", "a:\n    b: {c: x\u2028y}\n"),
    "a byte order mark": ("\ufeffa:\n    b: 1\n", "\ufeffa:\n  b: 1\n"),
    "blank lines that are data": ("a: |+\n  x\n\n\nb: 1\n", "a: |+\n  x\n\n\nb: 1\n"),
    "an alias must stay behind its anchor": (
        "runbook: 1\nsteps:\n  - run: &it a\nname: *it\n",
        "runbook: 1\nsteps:\n  - run: &it a\nname: *it\n",
    ),
    "umlauts": ("a:\n    b: 'ä →'   # ö\n", "a:\n  b: 'ä →'   # ö\n"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_form(case):
    before, after = CASES[case]
    assert formed(before) == after


@pytest.mark.parametrize("text", ["a: [", "a: 1\na: 2\n", "", "a: !x 1\n"])
def test_what_cannot_be_read_is_answered_with_what_is_wrong(text):
    new, problems = format_yaml(text, "x.yaml", ORDER)
    assert new is None and problems


WORD = st.text("abc xyz:#'\"-{}[]&*!|>%@\n", max_size=12) | st.sampled_from(["true", "012", "1e3", "x # y", "ä", "a\n\n b\n", "${{ x }}"])
VALUE = st.recursive(
    WORD | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.from_regex(r"[a-z]{1,4}", fullmatch=True), inner, max_size=3),
    max_leaves=8,
)
STEP = st.dictionaries(st.sampled_from(["id", "name", "run", "when", "kill", "timeout", "vars", "loop"]), VALUE, min_size=1, max_size=4)
STEPS = st.recursive(STEP, lambda inner: st.fixed_dictionaries({"block": st.lists(inner, min_size=1, max_size=3)}), max_leaves=4)
BOOK = st.tuples(
    st.dictionaries(st.sampled_from(TOP), VALUE, max_size=3), st.lists(STEPS, max_size=3), st.permutations(["runbook", "steps"])
).map(
    lambda made: {
        **{key: {"runbook": 1, "steps": made[1]}[key] for key in made[2]},
        **{k: v for k, v in made[0].items() if k not in made[2]},
    }
)


@st.composite
def texts(draw) -> str:
    """A document as many hands would write it: any indentation, styles, comments and blank lines where they may stand."""
    style = draw(st.sampled_from([False, None, True]))
    text = yaml.safe_dump(
        draw(BOOK),
        sort_keys=draw(st.booleans()),
        default_flow_style=style,
        indent=draw(st.integers(2, 7)),
        width=draw(st.sampled_from([10, 40, 1000])),
        default_style=draw(st.sampled_from([None, None, '"', "|", ">"])),
        allow_unicode=True,
    )
    lines = text.split("\n")
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(lines)))
        comment = " " * draw(st.integers(0, 8)) + draw(st.sampled_from(["# note", "#", "", "# - id: x", "  "]))
        lines.insert(place, comment)
    return "\n".join(lines)


@given(texts())
def test_twice_is_as_once_and_nothing_is_lost(text):
    """Comments put at random may fall into a value or break the text: then it is that text's own data that must stay."""
    before, problems = load(text, "x.yaml")
    if before is None or any(problem.severity == "error" for problem in problems):
        return
    new = formed(text)
    assert sorted(re.findall(r"#.*", text)) == sorted(re.findall(r"#.*", new))


@given(st.text(max_size=60))
def test_any_text_is_formed_or_refused(text):
    new, problems = format_yaml(text, "x.yaml", ORDER)
    assert (new is None) == bool(problems)
