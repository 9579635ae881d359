"""A file in blocks, a journal as data, and a report that can be trusted."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.engine.redaction.redactor import Place, Redactor, lines
from runbook.engine.redaction.stream import blocks
from tests.support.secret_texts import corpus, harmless, made

LINES = [line.text for line in corpus("must_mask")] + harmless()
KEY = "-----BEGIN PRIVATE KEY-----\n" + "".join(made("", 64, "b", n) + "\n" for n in range(9)) + "-----END PRIVATE KEY-----"
pieces = st.lists(
    st.one_of(st.sampled_from([*LINES, KEY, "machine h\n login me\n password " + made("", 12)]), st.text(max_size=20)), max_size=12
)


@settings(max_examples=100)
@given(pieces, st.integers(1, 400), st.integers(50, 3000))
def test_a_file_read_in_any_pieces_is_masked_as_one(parts, step, block):
    text = "\n".join(parts)
    cut = [text[at : at + step] for at in range(0, len(text), step)]
    assert "".join(blocks(iter(cut), block)) == text
    whole = Redactor({}).text(text, Place("f"))
    masked = [Redactor({}).text(each, Place("f")) for each in blocks(iter(cut), block)]
    assert "".join(masked) == whole


def test_a_line_longer_than_a_block_is_cut_between_words():
    text = ("word " * 30 + made("hf_", 34) + " ") * 40
    parts = list(blocks(iter([text]), 256))
    assert len(parts) > 2 or len(text) < 9_000
    assert "".join(parts) == text
    assert not [part for part in parts if "hf_" in Redactor({}).text(part, Place("f"))]


def test_the_report_counts_by_kind_and_names_places():
    redactor = Redactor({"DECLARED": "swordfish-77"})
    text = "".join(redactor.file([f"a\n{made('hf_', 34)}\nswordfish-77 ***OLD***\n"], "server.log"))
    assert text == "a\n***hf-token***\n***DECLARED*** ***OLD***\n"
    assert redactor.report.masked == {"DECLARED": 1, "hf-token": 1} and redactor.report.before == {"OLD": 1}
    assert list(lines(redactor.report)) == [
        "masked 2 values:",
        "  DECLARED ×1: server.log:3",
        "  hf-token ×1: server.log:2",
        "masked before: OLD ×1",
    ]


def test_a_journal_is_masked_as_data_and_the_place_is_the_event():
    event = {
        "event": "step_ended",
        "n": 7,
        "step": "up",
        "result": {"stdout": f"one\n{made('ghp_', 36)}", "env": {"MY_API_KEY": "short-pw"}},
    }
    redactor = Redactor({})
    (line, torn) = redactor.journal([json.dumps(event) + "\n", '{"event":"x","text":"' + made("hf_", 34)], "events.jsonl")
    assert json.loads(line)["result"] == {"stdout": "one\n***github-token***", "env": {"MY_API_KEY": "***api-key***"}}
    assert torn == '{"event":"x","text":"***hf-token***'
    assert [str(place) for places in redactor.report.places.values() for place in places] == [
        "event 7 (step_ended of `up`), result.stdout, line 2",
        "event 7 (step_ended of `up`), result.env.MY_API_KEY",
        "events.jsonl:2",
    ]


def test_the_value_after_a_flag_counts():
    redactor = Redactor({})
    argv = ["serve", "--api-key", "pw-of-mine", "--port", "80000000"]
    assert redactor.data(argv, Place("f")) == ["serve", "--api-key", "***api-key***", "--port", "80000000"]


def test_allowed_kinds_stay_and_are_not_counted():
    redactor = Redactor({}, allow=["api-key", "hf-token"])
    data = {"api_key": "pw-of-mine", "t": made("hf_", 34)}
    assert redactor.data(data, Place("f")) == data and redactor.report.masked == {}
