"""The lab with this machine's own driver tool in place of the stand-in, and one of its GPUs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.conftest import Lab
from tests.real.conftest import need
from tests.real.gpu.cards import choose


class Card(NamedTuple):
    """The lab, whose processes are all that a run may end; the folder whose hosts.yaml names it `card`; and the GPU's index."""

    lab: Lab
    folder: Path
    index: int


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All in this folder is `gpu`."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker("gpu")


@pytest.fixture(scope="session")
def card(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Card:
    """Skips without a GPU, and says why."""
    choice = choose()
    if choice.index is None:
        pytest.skip(f"no GPU ({choice.says})")
    need("gpu")
    lab: Lab = request.getfixturevalue("lab")
    tool = lab.home / "bin" / "nvidia-smi"
    tool.unlink()
    tool.symlink_to(shutil.which("nvidia-smi") or "")
    folder = tmp_path_factory.mktemp("card")
    (folder / "hosts.yaml").write_text(f"hosts:\n  card: {{host: lab, gpus: [{choice.index}]}}\n")
    return Card(lab, folder, choice.index)
