"""assert: every claim is judged, a false one shows its parts, an unseen one is undecided."""

from tests.engine.play import play

HEAD = "runbook: 1\nhosts: {a: local}\nvars: {n: 3, long: [" + ", ".join(f"word{i}" for i in range(60)) + "]}\n"


def claims(events):
    return next(event for event in reversed(events) if getattr(event, "type", "") == "assert" and hasattr(event, "verdict")).result[
        "claims"
    ]


def test_all_claims_are_judged_and_the_false_ones_give_the_reason(tmp_path):
    text = HEAD + "steps:\n- assert: [vars.n == 3, vars.n == 4, {that: vars.n > 9, because: it must}]\n"
    ended, events, _ = play(text, tmp_path)
    assert [claim["outcome"] for claim in claims(events)] == ["true", "false", "false"]
    assert ended.verdict == "failed" and "`vars.n == 4` does not hold: vars.n = 3; `vars.n > 9` does not hold: vars.n = 3" in ended.reason
    assert claims(events)[2]["because"] == "it must"


def test_a_comprehension_shows_the_values_of_up_to_three_items(tmp_path):
    text = HEAD + "steps:\n- assert: all(w == 'x' for w in vars.long)\n"
    _, events, _ = play(text, tmp_path)
    shown = {part["source"]: part["value"] for part in claims(events)[0]["parts"]}
    assert any("word0" in value for source, value in shown.items() if "item 0" in source)
    assert not any("item 3" in source for source in shown)


def test_a_reason_stays_short_and_the_table_keeps_long_values_cut(tmp_path):
    text = HEAD + "steps:\n- assert: len(vars.long) == 3 and vars.long == []\n"
    ended, events, _ = play(text, tmp_path)
    assert len(ended.reason) < 300 and "len(vars.long) = 60" in ended.reason
    assert all(len(part["value"]) <= 200 for part in claims(events)[0]["parts"])


def test_a_false_claim_weighs_more_than_an_unknown_one(tmp_path):
    text = HEAD + "steps:\n- {id: s, say: passed, when: 'false'}\n- assert: [steps.s.value == 1, vars.n == 4]\n"
    assert play(text, tmp_path)[0].verdict == "failed"
    text = HEAD + "steps:\n- {id: s, say: passed, when: 'false'}\n- assert: [steps.s.value == 1, vars.n == 3]\n"
    assert play(text, tmp_path / "2")[0].verdict == "undecided"


def test_a_claim_that_is_no_claim_is_said(tmp_path):
    ended, _, _ = play(HEAD + "steps:\n- assert: vars.n\n", tmp_path)
    assert ended.verdict == "failed" and "not true or false" in ended.reason


def test_what_cannot_be_computed_is_undecided_and_what_is_not_there_is_false(tmp_path):
    """Nobody knows whether it holds; a key that is not in the data is an answer."""
    for number, (claim, verdict, said) in enumerate(
        [
            ("vars.n / 0 == 1", "undecided", "cannot be decided"),
            ("vars.n < 'a'", "undecided", "cannot be decided"),
            ("vars.long[99] == 'x'", "failed", "there is no [99]"),
        ]
    ):
        ended, _, _ = play(HEAD + f"steps:\n- assert: {claim}\n", tmp_path / str(number))
        assert ended.verdict == verdict and said in ended.reason, ended.reason


def test_in_check_mode_a_claim_about_what_was_not_done_is_no_alarm(tmp_path):
    ended, events, _ = play(HEAD + "steps:\n- {id: s, say: passed, when: 'false'}\n- assert: steps.s.value == 1\n", tmp_path, check=True)
    told = next(event for event in reversed(events) if getattr(event, "type", "") == "assert" and hasattr(event, "verdict"))
    assert ended.verdict == "passed" and (told.status, told.verdict) == ("passed", "passed")
    assert told.reason == "would check 1 claim; 1 cannot be known before the run" and told.result["claims"][0]["outcome"] == "unknown"
