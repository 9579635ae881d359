"""Budgets: counted as the target counts, and a bundle that stays within its own."""

from __future__ import annotations

import io
import zipfile
from random import Random

import pytest

from runbook.render.budget import SMALLEST, TARGETS, Budget, budget_of
from runbook.render.bundle import Piece, bundle


def test_bytes_are_bytes_and_characters_are_characters():
    text = "é" * 100
    assert Budget(bytes=200).fits(text) and not Budget(bytes=199).fits(text)
    assert Budget(chars=100).fits(text) and not Budget(chars=99).fits(text)


def test_every_target_can_hold_a_verdict():
    for name, limit in TARGETS.items():
        assert budget_of(limit) == limit and (limit.bytes or limit.chars or 0) >= SMALLEST, name


@pytest.mark.parametrize("small", [0, 1_999, Budget(chars=10)])
def test_a_budget_too_small_for_a_verdict_is_an_error(small):
    with pytest.raises(ValueError, match="too small"):
        budget_of(small)


def names(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_same_run_gives_the_same_bytes():
    made = [bundle({"a.md": "x"}, {"evidence/log": Piece(b"l" * 99, 99)}) for _ in range(2)]
    assert made[0] == made[1] and set(names(made[0])) == {"contents.txt", "a.md", "evidence/log"}


def test_a_bundle_is_bounded_keeps_small_files_and_says_what_is_not_in_it():
    noise = bytes(range(256)) * 16
    files = {
        "evidence/huge": Piece(Random(1).randbytes(300_000), 10**12),
        "evidence/small": Piece(noise, 4096),
        "evidence/tail": Piece(b"end", 5000),
    }
    data = bundle({"transcript.md": "# t"}, files, ["evidence/gone"], limit=72 * 1024)
    assert len(data) <= 72 * 1024
    inside = names(data)
    assert "evidence/small" in inside and "evidence/huge" not in inside
    listing = inside["contents.txt"].decode()
    assert "evidence/huge: 931.3GiB, left out" in listing and "evidence/gone: missing" in listing and "only the last 3B" in listing
