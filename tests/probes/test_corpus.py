"""A seeded sample of real functions takes its probes; the whole corpus is tests/benchmarks/transform_corpus.py."""

from __future__ import annotations

import collections
import sysconfig
from pathlib import Path

import pytest

from tests.benchmarks.transform_corpus import drawn, one_file, python_files

pytestmark = pytest.mark.slow
PARTS = {"the standard library": "stdlib", "torch": "purelib"}


@pytest.mark.parametrize("part", PARTS)
def test_a_sample_of_real_functions_takes_three_probes_each(part):
    folder = Path(sysconfig.get_paths()[PARTS[part]])
    files = list(python_files(folder / "torch") if part == "torch" else python_files(folder, "site-packages", "test", "tests", "lib2to3"))
    small = [(path, data) for path, data in files if len(data) < 60_000]
    told = sum((one_file((path, data, 7)) for path, data in drawn(small, 150, 7)), collections.Counter())
    assert [key for key in told if key.startswith("FAULT")] == []
    assert told["functions"] >= 120 and told["probes: exit"] > 0.9 * told["functions"]
