"""A module that carries probes, loaded into this process."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runbook.probes.reading import Channel, read
from runbook.probes.spec import Probe
from runbook.probes.transform import Transformed, transform

MARKER = "run1/taps/1"
_NUMBER = itertools.count()


class Probed:
    """The loaded module, and what its probes wrote."""

    def __init__(self, source: str, probes: tuple[Probe, ...], folder: Path) -> None:
        self.path = folder / f"probed_{next(_NUMBER)}.py"
        self.side = self.path.with_suffix(".jsonl")
        self.side.touch()
        made = transform(source.encode(), probes, marker=MARKER, side_file=str(self.side), path=str(self.path), run="run1")
        assert isinstance(made, Transformed), made
        self.placed = made.placed
        self.text = made.data.decode()
        self.path.write_bytes(made.data)
        spec = importlib.util.spec_from_file_location(self.path.stem, self.path)
        assert spec is not None and spec.loader is not None
        self.module: Any = importlib.util.module_from_spec(spec)
        sys.modules[self.path.stem] = self.module
        spec.loader.exec_module(self.module)

    @property
    def records(self) -> Channel:
        """All records so far."""
        return read(self.side.read_bytes(), MARKER)

    @property
    def probes(self) -> Any:
        """The one object that the patch binds in the module."""
        return next(value for name, value in vars(self.module).items() if name.startswith("_rb_"))


@pytest.fixture
def probed(tmp_path: Path) -> Iterator[Callable[..., Probed]]:
    """Load a source with probes."""
    made: list[Probed] = []

    def load(source: str, *probes: Probe) -> Probed:
        made.append(Probed(source, probes, tmp_path))
        return made[-1]

    yield load
    for one in made:
        sys.modules.pop(one.path.stem, None)
