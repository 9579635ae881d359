"""Webhooks and programs: one signed delivery, templates that host text cannot leave, an argument list without a shell."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys

import pytest

from runbook.tickets import tracker_for
from runbook.tickets.base import Misused, OutcomeUnknown, Refused
from runbook.tickets.command import filled, perform, words
from tests.tickets.conftest import TEXT, draft
from tests.tickets.stub import LOST, Reply, Seen, Stub

SECRET = "a-shared-secret-of-the-team"
ENV = {"RUNBOOK_WEBHOOK_SECRET": SECRET}
FACTS = {"headline": "Fusion check: hung: <!channel> & co", "verdict": "hung", "kind": None}


class Receiver(Stub):
    """Checks the signature, as the guide tells receivers to."""

    def answer(self, seen: Seen) -> Reply:
        expected = "sha256=" + hmac.new(SECRET.encode(), seen.body, hashlib.sha256).hexdigest()
        good = hmac.compare_digest(seen.headers.get("x-runbook-signature-256", ""), expected)
        return (204, {}, None) if good and seen.headers["content-type"] == "application/json" else (401, {}, {"error": "bad signature"})


@pytest.fixture
def receiver(start):
    """A receiver."""
    return start(Receiver)


def hook(receiver, template=None):
    return tracker_for(f"webhook+{receiver.url}/hooks/abc", {}, template=template)


def test_a_webhook_gets_one_signed_delivery_with_all_facts(receiver, poster):
    assert poster(hook(receiver), ENV, draft(facts=FACTS)).action == "sent"
    (seen,) = receiver.seen
    assert seen.json["event"] == "runbook.run" and seen.json["verdict"] == "hung" and seen.json["markdown"].startswith("# Fusion check")
    assert seen.json["run"] == "20260301-101500-ab12" and SECRET.encode() not in seen.body


def test_a_wrong_secret_is_the_receivers_refusal(receiver, poster):
    with pytest.raises(Refused, match="HTTP 401: bad signature"):
        poster(hook(receiver), {"RUNBOOK_WEBHOOK_SECRET": "another-secret"})


def test_equal_deliveries_have_an_equal_key_and_others_another(receiver, poster):
    for text in (TEXT, TEXT, TEXT + "more\n"):
        poster(hook(receiver), ENV, draft(text))
    first, second, third = (seen.headers["idempotency-key"] for seen in receiver.seen)
    assert first == second != third


def test_a_delivery_whose_answer_was_lost_is_not_repeated(receiver, poster):
    receiver.script["POST"] = [LOST]
    with pytest.raises(OutcomeUnknown) as lost:
        poster(hook(receiver), ENV)
    assert receiver.count("POST") == 1 and "may have arrived" in lost.value.hint


@pytest.mark.parametrize(("template", "most"), [("slack", 12_000), ("mattermost", 16_383), ("discord", 2_000)])
def test_a_chat_tools_limit_holds_and_host_text_calls_nobody(receiver, poster, template, most):
    text = TEXT.replace("no progress", "<!channel> @here no progress") + "## Files\n\n" + "- file & more\n" * 3000
    poster(hook(receiver, template), ENV, draft(text, facts=FACTS))
    data = receiver.seen[0].json
    shown = {"slack": lambda: data["blocks"][0]["text"], "mattermost": lambda: data["text"], "discord": lambda: data["content"]}[template]()
    assert len(shown) <= most and "Fusion check" in shown and "Cut to fit" in shown
    assert {
        "slack": "<!channel>" not in receiver.seen[0].body.decode(),
        "mattermost": "@here" not in shown,
        "discord": data.get("allowed_mentions") == {"parse": []},
    }[template]


def test_a_template_of_ones_own_is_filled_after_it_was_read(receiver, poster, tmp_path):
    """So no value can end a string and add a field."""
    path = tmp_path / "chat.json"
    path.write_text('{"card": {"title": "{{ verdict }} {{kind}}", "lines": ["{{ markdown }}", 5]}}')
    poster(hook(receiver, f"@{path}"), ENV, draft('"}, "admin": {"x": "{{ verdict }}\n', facts=FACTS))
    assert receiver.seen[0].json == {"card": {"title": "hung null", "lines": ['"}, "admin": {"x": "{{ verdict }}\n', 5]}}


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("teams", "no template `teams`"),
        ("@/nowhere.json", "cannot read the template"),
        ("@{tmp}/bad.json", "is not JSON"),
        ("@{tmp}/unknown.json", "asks for `{{ verdikt }}`"),
    ],
)
def test_a_wrong_template_is_a_usage_error(receiver, poster, tmp_path, template, said):
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "unknown.json").write_text('"{{ verdikt }}"')
    with pytest.raises(Misused, match=said.replace("{", r"\{").replace("}", r"\}")):
        poster(hook(receiver, template.replace("{tmp}", str(tmp_path))), ENV, draft(facts=FACTS))
    assert receiver.seen == []


def test_a_template_is_for_webhooks_only():
    with pytest.raises(Misused, match="a template is for webhooks"):
        tracker_for("https://github.com/o/r/issues/1", {}, template="slack")


def test_the_address_of_a_chat_tool_is_a_secret():
    login = tracker_for("https://hooks.slack.com/services/T000/B000/abcdefghijkl", {}).login({})
    assert "services/T000/B000/abcdefghijkl" in login.secrets.values()


def test_a_program_gets_its_words_as_they_are():
    argv = filled(words("prog --text '{verdict} {reason}' {md}"), {"verdict": "hung; rm -rf /", "reason": "{md} $(x)", "md": "/tmp/a b.md"})
    assert argv == ["prog", "--text", "hung; rm -rf / {md} $(x)", "/tmp/a b.md"]


def test_a_program_that_is_done_says_what_it_said():
    assert perform([sys.executable, "-c", "print('posted', 'tok-secret')"], lambda text: text.replace("tok-secret", "***")) == "posted ***"


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda: words("a 'b"), Misused, "No closing quotation"),
        (lambda: words(" "), Misused, "is empty"),
        (lambda: filled(["a", "{mdd}"], {"md": "x"}), Misused, r"no value for \{mdd\}"),
        (lambda: perform(["/no/such/program"], str), Misused, "cannot start"),
        (lambda: perform(["/bin/sh", "-c", "echo no right; exit 3"], str), Refused, "exited 3: no right"),
        (lambda: perform(["/bin/sh", "-c", "sleep 30 & sleep 30"], str, time_box_s=0.1), Refused, r"took more than 0 s and was killed"),
    ],
)
def test_a_program_that_fails_is_told(call, kind, said):
    with pytest.raises(kind, match=said):
        call()


def test_bodies_are_json_that_a_receiver_can_read(receiver, poster):
    poster(hook(receiver), ENV, draft('é "\u2028 \\ \x00\n', facts=FACTS))
    assert json.loads(receiver.seen[0].body)["markdown"].startswith('é "\u2028 \\ \x00')
