"""The mask: secrets leave in every form, and evidence that only looks like one stays."""

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.engine.redact import Mask, looks_secret, too_short

SECRETS = st.text(min_size=6, max_size=40).filter(lambda text: text.strip() == text and len(text.encode()) >= 6)
TOKEN = "hf_0123456789abcdefXYZ/+=&'\""


@pytest.mark.parametrize("form", [TOKEN, quote(TOKEN, safe=""), json.dumps(TOKEN), base64.b64encode(TOKEN.encode()).decode()])
def test_a_secret_is_masked_in_the_forms_in_which_programs_repeat_it(form):
    masked = Mask({"HF": TOKEN}).text(f"before {form} after")
    assert form.strip('"') not in masked and "***HF***" in masked and masked.startswith("before ") and masked.endswith(" after")


def test_a_basic_auth_header_gives_nothing_away():
    header = base64.b64encode(f"user:{TOKEN}".encode()).decode()
    masked = Mask({"HF": TOKEN}).text(header)
    assert "***HF***" in masked
    assert TOKEN.encode()[3:-3] not in base64.b64decode(masked.split("***")[0] + "==")


@given(SECRETS, st.text(), st.text())
def test_no_text_keeps_the_secret(secret, before, after):
    assert secret not in Mask({"S": secret}).text(before + secret + after).replace("***S***", "")


@given(SECRETS, st.text(max_size=60))
def test_masking_twice_is_masking_once(secret, text):
    mask = Mask({"S": secret})
    once = mask.text(text + secret)
    assert mask.text(once) == once or secret in "***S***"


def test_every_line_of_a_multi_line_secret_counts():
    mask = Mask({"PEM": "first-line\nsecond-line"})
    assert mask.text("x second-line y") == "x ***PEM*** y"


def test_nested_data_and_bytes_are_masked():
    mask = Mask({"S": "s3cretvalue"})
    assert mask.value({"a": ["s3cretvalue", 1, None]}) == {"a": ["***S***", 1, None]}
    assert mask.bytes(b"\xff s3cretvalue") == b"\xff ***S***"


@pytest.mark.parametrize("name", ["hf_token", "HF_TOKEN", "api_key", "password", "DB_PASSWORD", "client_secret"])
def test_names_of_secrets(name):
    assert looks_secret(name)


@pytest.mark.parametrize("name", ["num_draft_tokens", "max_total_num_tokens", "tokenizer_path", "keyboard", "taps", "monkey"])
def test_names_that_only_sound_like_one(name):
    assert not looks_secret(name)


def test_a_short_secret_is_named_not_masked():
    assert list(too_short({"A": "12345", "B": "123456"})) == ["A"]


@pytest.mark.parametrize("cut", range(6, len(TOKEN)))
def test_a_text_that_was_cut_inside_a_secret_keeps_no_part_of_it(cut):
    mask = Mask({"HF": TOKEN})
    assert mask.text(f"before {TOKEN[:cut]}") == "before ***HF***"
    assert mask.text(f"{TOKEN[-cut:]} after") == "***HF*** after"
    assert mask.bytes(b"\xff" + TOKEN[:cut].encode()) == b"\xff***HF***"


def test_form_encoded_and_python_forms_count():
    value = "two words/ä'x'"
    for form in (quote_plus(value), quote(value), repr(value)[1:-1]):
        assert Mask({"S": value}).text(form) == "***S***"
