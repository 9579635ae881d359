"""`post:` names tickets: what cannot be one is said with its place."""

from __future__ import annotations

import pytest

from runbook.playbook.build import load_playbook
from runbook.steps import TABLE

BOOK = "runbook: 1\nhosts: {box: local}\npost: %s\nsteps: [{run: 'true'}]\n"


def read(value: str):
    playbook, found = load_playbook((BOOK % value).encode(), "p.yaml", table=TABLE, profiles=set())
    return playbook and playbook.post, [(one.code, one.span.line) for one in found]


@pytest.mark.parametrize(
    ("value", "tickets"),
    [
        ("https://github.com/o/r/issues/3", ("https://github.com/o/r/issues/3",)),
        ("[env:TICKET, 'webhook+https://ci.example/runs']", ("env:TICKET", "webhook+https://ci.example/runs")),
        ("[]", ()),
    ],
)
def test_tickets_are_addresses_or_variables(value, tickets):
    assert read(value) == (tickets, [])


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("github.com/o/r/issues/3", "bad-ticket"),
        ("https://me:pw@redmine.example/issues/3", "bad-ticket"),
        ("'${{ vars.ticket }}'", "bad-ticket"),
        ("'env:no name'", "bad-ticket"),
        ("[env:T, env:T]", "duplicate-ticket"),
        ("3", "type"),
        ("{url: x}", "type"),
    ],
)
def test_what_cannot_be_a_ticket(value, code):
    assert read(value) == (None, [(code, 3)])
