"""Command line and tokenizer of the engine: no torch needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.lab.sources import WEIGHTS, import_engine

import_engine()
from lab_engine import server_args, tokenizer  # noqa: E402

MODEL = ["--model-path", str(WEIGHTS / "tiny"), "--speculative-draft-model-path", str(WEIGHTS / "tiny-eagle3")]


@given(st.text(alphabet=tokenizer.SYMBOLS))
def test_text_of_the_64_symbols_survives(text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.text())
def test_any_text_becomes_ids_of_the_vocabulary(text: str) -> None:
    assert all(0 <= i < 64 for i in tokenizer.encode(text))


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--prot", "8000"], "--prot"),
        (["--ranks", "3"], "1, 2, 4 or 8 ranks"),
        (["--load-rate", "fast"], "not a size"),
        (["--aux-layers", "1,9"], "neither `zeros` nor"),
        (["--speculative-algorithm", "MEDUSA"], "MEDUSA"),
        (["--model-path", "nowhere"], "no model at 'nowhere'"),
    ],
)
def test_a_bad_flag_exits_2_and_is_named(argv: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        server_args.parse([*MODEL, *argv])
    assert exit.value.code == 2
    assert says in capsys.readouterr().err


def test_sizes_carry_units() -> None:
    args = server_args.parse([*MODEL, "--load-rate", "64KiB", "--mem-hog", "1.5GiB"])
    assert (args.load_rate, args.mem_hog) == (64 << 10, 3 << 29)


def test_shipped_weights_stay_below_a_megabyte() -> None:
    assert sum(file.stat().st_size for file in Path(WEIGHTS).rglob("*") if file.is_file()) <= 1 << 20
