"""What the loader reads, refuses and points at."""

import pytest

from runbook.lang.yaml_loader import load
from runbook.model.diagnostic import Severity


def data_of(text):
    document, problems = load(text, "f.yaml")
    assert problems == []
    return document.data


def only_problem(source):
    document, problems = load(source, "f.yaml")
    assert len(problems) == 1, problems
    return document, problems[0]


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-3", -3),
        ("0", 0),
        ("0x1F", 31),
        ("0o17", 15),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1_000", "1_000"),
        ("2024-01-02", "2024-01-02"),
        ("10:30", "10:30"),
        ("1.2.3", "1.2.3"),
        ("+", "+"),
        ("'yes'", "yes"),
        ('"012"', "012"),
        ("9223372036854775808", 2**63),
        ("${{ vars.x }}", "${{ vars.x }}"),
    ],
)
def test_a_scalar_means_what_yaml_1_2_says(scalar, value):
    found = data_of(f"a: {scalar}\nb: 1")["a"]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("scalar", "code", "hint"),
    [
        ("012", "leading-zero", "write 12 or '012'"),
        ("-012", "leading-zero", "write -12 or '-012'"),
        ("00", "leading-zero", "write 0 or '00'"),
        (".inf", "not-finite", "quote it"),
        ("-.INF", "not-finite", "quote it"),
        (".nan", "not-finite", "quote it"),
        ("1e999", "not-finite", "quote it"),
        ("9223372036854775809", "number-too-large", "quote it"),
        ("9" * 5000, "number-too-large", "quote it"),
        ("0x" + "f" * 500, "number-too-large", "quote it"),
        ("!x 5", "tag", "must be quoted"),
        ("!x", "tag", "write `not x`"),
        ("!x |\n  a", "tag", "text that begins with `!` must be quoted"),
        ("!!str 5", "tag", "write the text in quotes"),
        ("!!int 5", "tag", "write the number alone"),
        ("!!python/object:os.system x", "tag", "leave it out: a value is plain data"),
        ("!env HOME", "tag", "write `${{ env('HOME') }}`"),
        ("!env [HOME]", "tag", "write `${{ env('NAME') }}`"),
        ("!vault x", "tag", "name the variable under `secrets:`"),
        ("*nowhere", "unknown-alias", "quote it: '*nowhere'"),
    ],
)
def test_a_trap_is_an_error_at_its_place(scalar, code, hint):
    document, problem = only_problem(f"ok: 1\nkey: {scalar}")
    assert (problem.code, problem.span.line, problem.span.column) == (code, 2, 6)
    assert hint in problem.hint and problem.severity is Severity.ERROR
    assert document.data["ok"] == 1


@pytest.mark.parametrize(("word", "meant"), [("yes", "true"), ("No", "false"), ("ON", "true"), ("off", "false")])
def test_an_old_boolean_is_text_with_a_warning(word, meant):
    document, problem = only_problem(f"a: {word}")
    assert document.data == {"a": word}
    assert problem.severity is Severity.WARNING
    assert problem.hint == f'this is the text "{word}" in YAML 1.2; write {meant} or quote it'


def test_a_duplicate_key_names_both_places():
    document, problem = only_problem("a: 1\nb: 2\na: 3")
    assert problem.code == "duplicate-key" and str(problem.span) == "f.yaml:3:1"
    assert "first at f.yaml:1:1" in problem.summary
    assert document.data == {"a": 1, "b": 2}


def test_all_problems_come_at_once_in_the_order_of_the_text():
    _, problems = load("a: 012\na: {c: 1, c: 2}\n1: .nan\n<<: {x: yes}", "f.yaml")
    assert [problem.code for problem in problems] == [
        "leading-zero", "duplicate-key", "duplicate-key", "key-not-text", "not-finite", "merge-key", "text-not-boolean",
    ]  # fmt: skip
    assert [problem.span.line for problem in problems] == [1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("key", ["1", "true", "~", "1.5", "012", "[a]", "{a: b}", "? [a]\n"])
def test_a_key_that_is_not_text_is_refused(key):
    _, problem = only_problem(f"{key}: x")
    assert problem.code == "key-not-text"


def test_a_quoted_merge_sign_is_a_plain_key():
    assert data_of("'<<': 1") == {"<<": 1}


def test_unquoted_jinja_braces_are_told_how_expressions_are_written():
    _, problem = only_problem("x: {{ var }}")
    assert "${{ … }}" in problem.hint and problem.span.line == 1


def test_an_alias_is_a_value_of_its_own():
    document, problems = load("a: &x {b: [1]}\nc: *x", "f.yaml")
    assert problems == [] and document.data == {"a": {"b": [1]}, "c": {"b": [1]}}
    document.data["a"]["b"].append(2)
    assert document.data["c"] == {"b": [1]}
    assert str(document.span(("c", "b", 0))) == "f.yaml:2:4"


@pytest.mark.slow
def test_an_alias_bomb_is_refused():
    levels = "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10))
    document, problem = only_problem(f"a0: &a0 [x, x, x, x, x, x, x, x, x]\n{levels}")
    assert document is None and problem.code == "too-many-nodes" and "aliases" in problem.summary


def test_an_alias_inside_its_own_anchor_is_refused():
    assert only_problem("a: &x [*x]")[1].code == "alias-loop"


def test_aliases_cannot_nest_deeper_than_brackets_can():
    levels = "\n".join(f"a{i}: &a{i} [[[[[[[[[[*a{i - 1}]]]]]]]]]]" for i in range(1, 12))
    assert only_problem(f"a0: &a0 [x]\n{levels}")[1].code == "too-deep"


@pytest.mark.parametrize("text", ["[" * 5000, "- " * 5000, "{a: " * 5000, "[" * 102 + "]" * 102])
def test_deep_nesting_is_refused(text):
    document, problem = only_problem(text)
    assert document is None and problem.code == "too-deep"


def test_keys_within_keys_are_refused_once():
    document, problems = load("? " * 5000, "f.yaml")
    assert document is None and [problem.code for problem in problems] == ["key-not-text", "too-deep"]


def test_a_hundred_levels_are_fine():
    assert load("[" * 100 + "]" * 100, "f.yaml")[1] == []


def test_a_large_file_is_refused_with_its_size_before_it_is_read():
    document, problem = only_problem(b"\xff" * (10 * 2**20))
    assert document is None and problem.code == "file-too-large" and "10MiB" in problem.summary


@pytest.mark.parametrize(
    ("source", "code", "place"),
    [
        (b"", "empty-file", "1:1"),
        (b"# only a comment\n", "empty-file", "1:1"),
        (b"---\n", "empty-file", "1:1"),
        (b"a: 1\n\x7fELF\0\0", "not-text", "1:1"),
        (b"\x80\0\0", "not-text", "1:1"),
        (b"a: 1\nb: \xe9", "not-utf8", "2:4"),
        ("a: 1".encode("utf-16"), "not-utf8", "1:1"),
        (b"a: 1\nb: x\x1b[0m", "control-character", "2:5"),
        ("a: \ud800", "control-character", "1:4"),
        (b"a: 1\n---\nb: 1", "many-documents", "2:1"),
    ],
)
def test_a_file_that_is_no_yaml_text_gets_one_clear_error(source, code, place):
    document, problem = only_problem(source)
    assert document is None and problem.code == code
    assert str(problem.span) == f"f.yaml:{place}" and problem.hint


def test_a_byte_order_mark_moves_no_column():
    document, problems = load("\ufeffkey: 1".encode(), "f.yaml")
    assert problems == [] and document.span(("key",)).column == 6


def test_a_flood_of_problems_is_cut():
    _, problems = load("".join(f"k{i}: 012\n" for i in range(5000)), "f.yaml")
    assert len(problems) == 101 and problems[-1].code == "too-many-problems"


SPANS = """\
name: Grüße
steps:
  - kill: {match: 'a b', list: [1, 22]}
    when: >-
      vars.a and
      vars.b
    run: |
      echo ${{ vars.x }}
      echo ${{ vars.x }} ${{ vars.y }}
"""


def test_spans_point_at_values_and_keys():
    document, problems = load(SPANS, "f.yaml")
    assert problems == []
    cases = {
        ("name",): (1, 7, 5),
        ("steps", 0, "kill"): (3, 11, 29),
        ("steps", 0, "kill", "match"): (3, 19, 5),
        ("steps", 0, "kill", "list", 1): (3, 36, 2),
        ("steps", 0, "nothing", "here"): (3, 5, 35),
    }
    for path, (line, column, length) in cases.items():
        span = document.span(path)
        assert (span.line, span.column) == (line, column), path
        assert span.length == length or path == ("steps", 0, "nothing", "here"), path
    key = document.key_span(("steps", 0, "kill", "list"))
    assert (key.line, key.column, key.length) == (3, 26, 4)
    assert document.key_span(("steps", 0)) == document.span(("steps", 0))


def test_a_part_of_a_text_has_its_exact_place():
    document, _ = load(SPANS, "f.yaml")
    text = document.data["steps"][0]["run"]
    second = text.index("vars.x", text.index("vars.x") + 1)
    assert str(document.within(("steps", 0, "run"), second, 6)) == "f.yaml:9:16"
    assert str(document.within(("steps", 0, "run"), text.index("vars.y"), 6)) == "f.yaml:9:30"
    assert str(document.within(("steps", 0, "kill", "match"), 2, 1)) == "f.yaml:3:22"


def test_a_part_hidden_by_folding_falls_back_to_the_whole_value():
    document, _ = load(SPANS, "f.yaml")
    path = ("steps", 0, "when")
    assert document.within(path, 0, len("vars.a and vars.b")) == document.span(path)
