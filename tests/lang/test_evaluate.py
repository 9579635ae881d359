"""Values, the third value, failed evaluations, and the parts that people are shown."""

import pytest

from runbook.lang.expressions import Parsed, Problem, Unknown, evaluate, parse

SKIPPED = Unknown("step `chat` was skipped")
HITS = [{"step": 1, "hidden": {"shape": [1, 64]}}, {"step": 2, "hidden": {"shape": [1, 192]}}, {"step": 3, "hidden": {"shape": [1, 64]}}]
SCOPE = {
    "vars": {"taps": 3, "name": "tiny", "none": None, "list": [3, 1, 2], "empty": []},
    "item": {"a": 1},
    "steps": {
        "chat": SKIPPED,
        "seen": {"hits": HITS, "empty": [], "text": "one\ntwo\r\nthree", "part": Unknown("not read"), "mixed": [1, Unknown("cut")]},
    },
    "__env__": {"HOME": "/root"},
}


def run(source, scope=SCOPE):
    parsed = parse(source)
    assert isinstance(parsed, Parsed), parsed
    return evaluate(parsed, scope)


def value(source):
    result = run(source)
    assert result.problem is None and result.unknown is None, result
    return result.value


def problem(source):
    result = run(source)
    assert result.problem is not None and result.unknown is None and result.value is None, result
    return result.problem


def unknown(source):
    result = run(source)
    assert result.unknown is not None and result.problem is None and result.value is None, result
    return result.unknown.reason


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("vars.taps * 64 == 192", True),
        ("vars['name'] + '!'", "tiny!"),
        ("steps.seen.hits[-1].step", 3),
        ("steps.seen.hits[0].hidden.shape[-1]", 64),
        ("[h.step for h in steps.seen.hits if h.hidden.shape[1] > 64]", [2]),
        ("{k: vars[k] for k in vars if k == 'taps'}", {"taps": 3}),
        ("[a + b for a, b in [[1, 2], [3, 4]]]", [3, 7]),
        ("[b for a in [[1], [2, 3]] for b in a]", [1, 2, 3]),
        ("vars.list[::-1]", [2, 1, 3]),
        ("vars.name[1:3]", "in"),
        ("1 < vars.taps <= 3", True),
        ("1 if vars.none == null else 2", 1),
        ("vars.none or 'fallback'", "fallback"),
        ("(1, 2)", [1, 2]),
        ("'a' in vars.name or 'taps' in vars and 3 in vars.list", True),
        ("7 // 2 + 7 % 4 + 7 / 2", 9.5),
        ("-vars.taps", -3),
        ("not vars.empty", True),
        ("any(x > 2 for x in vars.list)", True),
        ("all([true, 1, 'x'])", True),
        ("any(vars.empty)", False),
        ("all(vars.empty)", True),
    ],
)
def test_an_expression_gives_what_it_says(source, expected):
    found = value(source)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("false and steps.chat.x", False),
        ("steps.chat.x and false", False),
        ("true or steps.chat.x", True),
        ("steps.chat.x or true", True),
        ("known(steps.chat.x)", False),
        ("known(vars.taps)", True),
        ("default(steps.chat.metrics.rate, 4)", 4),
        ("default(vars.none, 4)", 4),
        ("default(0, 4)", 0),
        ("known(steps.chat.x) and steps.chat.x > 3", False),
        ("any(x == 1 for x in steps.seen.mixed)", True),
        ("all(x == 2 for x in steps.seen.mixed)", False),
        ("1 in steps.seen.mixed", True),
        ("[1, steps.chat.x] == [2, 3]", False),
        ("[steps.chat.x, 1] == [2, 3]", False),
        ("len(steps.seen.mixed)", 2),
        ("2 < 1 < steps.chat.x", False),
    ],
)
def test_an_unknown_that_cannot_matter_does_not(source, expected):
    found = value(source)
    assert found is expected or found == expected


@pytest.mark.parametrize(
    "source",
    [
        "steps.chat.x",
        "steps.chat.x > 3",
        "steps.chat.x == steps.chat.x",
        "not steps.chat.x",
        "true and steps.chat.x",
        "false or steps.chat.x",
        "steps.chat.x or 'text'",
        "steps.chat.hits[0].a[vars.taps]",
        "vars.list[steps.chat.x]",
        "steps.chat.x + 1",
        "-steps.chat.x",
        "len(steps.chat.x)",
        "1 if steps.chat.x else 2",
        "[x for x in steps.chat.hits]",
        "[x for x in vars.list if x > steps.chat.x]",
        "get(steps.chat, 'a.b', 1)",
        "get(steps.seen, 'part.b', 1)",
        "steps.chat.x in [1, 2]",
        "1 in steps.chat.x",
        "max(steps.seen.mixed)",
        "sorted(steps.seen.mixed)",
        "json(steps.seen.mixed)",
        "search('a', steps.chat.x)",
        "1 < steps.chat.x < 3",
    ],
)
def test_a_value_that_hangs_on_an_unknown_is_unknown_with_its_reason(source):
    assert unknown(source) in (SKIPPED.reason, "not read", "cut")


def test_a_failure_behind_an_unknown_guard_is_unknown_too():
    """Had the guard been false, nobody would have looked."""
    assert unknown("steps.chat.ok and vars.list[9] > 1") == SKIPPED.reason


@pytest.mark.parametrize(
    "source",
    [
        "any(h.x for h in steps.seen.empty)",
        "all(h.x for h in steps.seen.empty)",
        "any(steps.seen.empty)",
        "all([h.x for h in steps.seen.empty])",
        "all(h.step > 0 for h in steps.seen.hits if h.step > 99)",
        "min(steps.seen.empty)",
        "max(h.x for h in steps.seen.empty)",
        "any(x for h in [1] for x in steps.seen.empty)",
        "any(any(b for b in a) for a in [steps.seen.empty])",
    ],
)
def test_nothing_seen_on_a_host_proves_nothing(source):
    assert "is empty" in unknown(source)


def test_a_condition_that_drops_every_item_makes_any_false_when_there_were_items():
    assert value("any(h.step == 1 for h in steps.seen.hits if h.step > 99)") is False


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("vars.tops", "`vars` has no key `tops`; there are: `taps`, `name`, `none`, `list`, `empty`; did you mean `taps`?"),
        ("item.b.c", "`item` has no key `b`; there is: `a`"),
        ("stps.a", "there is no name `stps`; there are: `vars`, `item`, `steps`; did you mean `steps`?"),
        ("vars.list[3]", "`vars.list` has 3 items: there is no [3]"),
        ("vars.list.x", '`vars.list` is a list of 3 items, not a mapping: choose one, as in `vars.list[0]`, before `"x"`'),
        ("vars.none.x", "`vars.none` is null: it has no `x`"),
        ("vars.name.x", '`vars.name` is a text ("tiny"): it has no `x`'),
        ("vars.name > 3", '`>` cannot order a text and a number: "tiny" > 3'),
        ("vars.name + 3", '`+` cannot take a text and a number: "tiny" + 3'),
        ("1 / 0", "`1 / 0`: division by zero"),
        ("9223372036854775807 * 2", "the result is an integer larger than 2^63"),
        ("'x' * 3", '`*` cannot take a text and a number: "x" * 3'),
        ("1 in 2", "`in` cannot look for a number in a number: 1 in 2"),
        ("[x for x in 3]", "`3` is a number (3): `for` takes a list or a mapping"),
        ("[a for a, b in [1]]", "an item is a number (1), not a list of 2: 1"),
        ("any(vars.name)", '`vars.name` is a text ("tiny"): a list is needed'),
        ("{1: 2}", "the keys of a mapping are text, not 1"),
        ("vars.list[::0]", "the ends of a part of `vars.list` are whole numbers, and its step is not 0"),
        ("env('NOPE')", 'the environment variable "NOPE" is not set: set it, or write `env("NOPE", \'default\')`'),
    ],
)
def test_a_failed_evaluation_names_what_is_there(source, said):
    assert problem(source) == said


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "[x for x in [1] for a in steps.big for b in steps.big]",
        "len([a for a in steps.big for b in steps.big])",
        "json([steps.big for a in steps.big])",
        "[steps.big for a in steps.big] == [steps.copy for a in steps.big]",
        "any(any(a == -1 for a in steps.big) for b in steps.big)",
        "steps.text + steps.text + steps.text",
        "steps.big + steps.big + steps.big + steps.big + steps.big + steps.big",
        "min([steps.big for a in steps.big])",
        "lines(steps.breaks)",
    ],
)
def test_work_and_sizes_are_bounded(source):
    scope = {"steps": {"big": list(range(20_000)), "copy": list(range(20_000)), "text": "x" * 2_000_000, "breaks": "\n" * 300_000}}
    result = run(source, scope)
    assert result.problem is not None, result.value


def test_deep_data_is_a_problem_not_an_exception():
    deep = []
    for _ in range(5000):
        deep = [deep]
    for source in ("json(steps.x)", "steps.x == steps.y", "max(steps.x)"):
        assert "nested" in run(source, {"steps": {"x": deep, "y": [deep[0]]}}).problem


def test_a_lazy_mapping_may_refuse_a_value():
    class Lazy(dict):
        def __getitem__(self, key):
            raise Problem("`vars.a` needs itself")

    assert run("vars.a", {"vars": Lazy(a=1)}).problem == "`vars.a` needs itself"


def parts(source):
    return dict(run(source).parts)


def test_the_parts_are_the_operands_with_their_values():
    assert parts("steps.seen.hits[1].hidden.shape[-1] == vars.taps * 64 and len(vars.list) > 2") == {
        "steps.seen.hits[1].hidden.shape[-1]": "192",
        "vars.taps": "3",
        "vars.list": "[3, 1, 2]",
        "len(vars.list)": "3",
    }


def test_an_operand_that_was_not_looked_at_is_no_part():
    assert parts("vars.taps == 4 and vars.name == 'x'") == {"vars.taps": "3"}


def test_an_unknown_operand_shows_its_reason():
    assert parts("steps.chat.rate > 4") == {"steps.chat.rate": "unknown (step `chat` was skipped)"}


def test_a_true_any_shows_the_item_that_made_it_true():
    shown = parts("any(h.hidden.shape[-1] == vars.taps * 64 for h in steps.seen.hits)")
    assert shown["h.hidden.shape[-1] (item 1)"] == "192" and shown["vars.taps"] == "3"
    assert not any("item 0" in source for source in shown)


def test_a_false_any_shows_the_first_three_items():
    shown = parts("any(h.hidden.shape[-1] == 7 for h in steps.seen.hits + steps.seen.hits)")
    assert [source for source in shown if "item" in source] == [f"h.hidden.shape[-1] (item {index})" for index in range(3)]


def test_a_false_all_shows_the_item_that_broke_it():
    shown = parts("all(h.step != 3 for h in steps.seen.hits)")
    assert [source for source in shown if "item" in source] == ["h.step (item 2)"]


def test_a_long_value_is_cut():
    scope = {"steps": {"text": "x" * 10_000, "list": list(range(1000))}}
    for part in run("steps.text == steps.list", scope).parts:
        assert len(part.value_text) < 150


def test_a_lazy_mapping_that_is_only_shown_spoils_nothing():
    class Lazy(dict):
        def __getitem__(self, key):
            raise Problem("`vars.a` needs itself")

    assert run("'a' in vars", {"vars": Lazy(a=1)}).value is True
