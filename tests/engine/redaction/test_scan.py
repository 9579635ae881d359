"""Secrets that nobody declared go, evidence stays; wherever a text begins, ends and however it is escaped."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.engine.redaction.scan import KINDS, find, masked
from runbook.model.masked import MARK, marks
from tests.support.secret_texts import Line, corpus, harmless, made

MUST, MAY, MUST_NOT = corpus("must_mask"), corpus("may_mask"), harmless()
fillers = st.text(st.sampled_from("ab1 =:\"'\n\\&?@/.-_*,é\x1b[{}<>|"), max_size=30)


@pytest.mark.parametrize("line", MUST, ids=lambda line: line.text[:50])
def test_a_secret_goes_and_what_stands_around_it_stays(line: Line):
    text = masked(line.text, sure_only=True)
    assert not [secret for secret in line.secrets if secret in text]
    assert line.kind in marks(text)
    kept = MARK.sub("\0", text).split("\0")
    lost = len(line.text) - sum(map(len, kept))
    assert all(piece in line.text for piece in kept) and lost <= sum(map(len, line.secrets)) + (
        60 if line.kind == "private-key" else 40 if "Credential=" in line.text else 12
    )


@pytest.mark.parametrize("line", MAY, ids=lambda line: line.text[:50])
def test_what_only_may_be_a_secret_stays_in_a_journal_and_not_in_public(line: Line):
    assert masked(line.text, sure_only=True) == line.text
    assert not [secret for secret in line.secrets if secret in masked(line.text)]


@pytest.mark.parametrize("text", MUST_NOT, ids=lambda text: text[:50])
def test_evidence_stays(text):
    assert masked(text) == text


@pytest.mark.parametrize("line", MUST, ids=lambda line: line.text[:50])
def test_escaped_as_json_and_within_a_longer_text_it_goes_as_well(line: Line):
    for text in (json.dumps({"text": line.text}), "\n".join([MUST_NOT[0], line.text, MUST_NOT[1]])):
        assert not [secret for secret in line.secrets if secret in masked(text, sure_only=True)]


def test_allowed_kinds_stay():
    text = f"{made('hf_', 34)} {made('ghp_', 36)}"
    assert masked(text, allow=["hf-token"]) == f"{made('hf_', 34)} ***github-token***"


def test_every_kind_of_the_corpus_can_be_allowed():
    assert {line.kind for line in MUST + MAY} <= set(KINDS)


@pytest.mark.parametrize("length", [30, 34, 60, 400])
def test_the_mark_does_not_tell_how_long_the_secret_was(length):
    assert masked("x " + made("hf_", length) + " y") == "x ***hf-token*** y"


def test_a_token_that_the_end_of_the_text_cut_goes():
    for prefix in ("hf_", "sk-proj-", "ghp_", "glpat-"):
        for end in ("", "…", "..."):
            assert made(prefix, 12) not in masked(f"login with {made(prefix, 12)}{end}", sure_only=True)
    assert masked("import hf_transfer") == "import hf_transfer"


PEM = [made("", 64, "b", n) for n in range(4)]


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN RSA PRIVATE KEY-----\n{0}\n{1}\n{2}\n-----END RSA PRIVATE KEY-----\nafter",
        "-----BEGIN OPENSSH PRIVATE KEY-----\n{0}\n{1}\n{2}\nxYz0=\nafter that",
        "{0}\n{1}\n{2}\nxYz0=\n-----END PRIVATE KEY-----\nafter",
        "-----BEGIN EC PRIVATE KEY-----\\n{0}\\n{1}\\n{2}\\n-----END EC PRIVATE KEY-----\\nafter",
    ],
)
def test_a_private_key_goes_whole_also_when_its_end_or_its_beginning_is_cut_off(text):
    left = masked("before\n" + text.format(*PEM), sure_only=True)
    assert not [line for line in PEM if line[:20] in left] and left.startswith("before\n") and "after" in left and "xYz0" not in left


@given(
    st.lists(
        st.one_of(fillers, st.sampled_from([line.text for line in MUST + MAY]), st.sampled_from(MUST_NOT), st.just("***x-y***")), max_size=5
    )
)
@settings(max_examples=300)
def test_masking_twice_is_masking_once(parts):
    once = masked("".join(parts))
    assert masked(once) == once and find(once) == []


@given(st.sampled_from(MUST), st.sampled_from(["\n", " ", "\t", "; ", ", ", "\r\n"]), st.sampled_from(MUST_NOT), st.sampled_from(MUST_NOT))
@settings(max_examples=300)
def test_lines_beside_it_neither_hide_it_nor_go_with_it(line, between, before, after):
    text = masked(f"{before}\n{line.text}\n{after}", sure_only=True)
    assert not [secret for secret in line.secrets if secret in text]
    assert text.startswith(before + "\n") and text.endswith("\n" + after)


@given(st.text(max_size=200))
def test_any_text_is_taken(text):
    masked(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        "eyJ",
        "-eyJa",
        "-sk-a",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "a://b:",
        "key=",
        "key =  ",
        "--token ",
        'key="',
        "bearer ",
        "?sig=",
        "$6$",
        "AKIA",
    ],
)
def test_hostile_text_costs_time_in_proportion_to_its_length(piece):
    import time

    def cost(length: int) -> float:
        text = piece * (length // len(piece))
        began = time.process_time()
        masked(text)
        return time.process_time() - began

    assert cost(400_000) < 0.05 + 12 * cost(100_000)
