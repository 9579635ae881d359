"""A large file comes here piece by piece: memory does not grow with it, and secrets in it are masked across the pieces."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from runbook.engine.journal import Journal
from runbook.engine.redact import LONGEST_LINE, Mask
from runbook.model.clock import SystemClock

SECRET = "correct-horse-battery"


def saved(folder: Path, pieces: list[bytes]) -> bytes:
    journal = Journal(folder, SystemClock(), Mask({"PASS": SECRET}))
    path = journal.save("x/file", iter(pieces))
    journal.close()
    return (folder / path).read_bytes()


@pytest.mark.parametrize("size", [1, 7, 64, 4096])
def test_pieces_of_any_size_give_the_bytes_and_no_secret(size: int, tmp_path: Path) -> None:
    text = "".join(f"line {n} token {SECRET if n % 7 == 0 else 'none'} end\n" for n in range(300)).encode()
    got = saved(tmp_path, [text[at : at + size] for at in range(0, len(text), size)])
    assert got == text.replace(SECRET.encode(), b"***PASS***")


def test_a_failure_on_the_way_leaves_no_half_file(tmp_path: Path) -> None:
    def broken():
        yield b"half\n"
        raise RuntimeError("the host is gone")

    journal = Journal(tmp_path, SystemClock(), Mask({}))
    with pytest.raises(RuntimeError):
        journal.save("x/file", broken())
    assert not (tmp_path / "evidence" / "x" / "file").exists()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """No line break at all, as in a trace: a piece is held until it is LONGEST_LINE long, and no more."""
    piece = b"\0" * (1 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    journal = Journal(tmp_path, SystemClock(), Mask({}, shapes=False))
    path = journal.save("x/file", (piece for _ in range(80)))
    assert (tmp_path / path).stat().st_size == 80 << 20
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown < 10 * LONGEST_LINE, f"{grown >> 20} MiB"
