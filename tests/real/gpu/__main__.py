"""The founding story on a GPU: python -m tests.real.gpu, which is `make test-gpu`.

Looks for a free NVIDIA GPU (GPU=N names one), sets up SGLang for it, or takes GPU_PYTHON=, an interpreter that can import it, and runs
the tests marked `gpu`. Without a GPU nothing is set up, and the last line says so; the exit status is 0 then.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.real import setup
from tests.real.gpu.cards import choose


def main() -> int:
    """The exit status of the tests; 1 when SGLang could not be set up."""
    import pytest

    card = choose()
    if card.index is None:
        sys.stdout.write(f"not run: no GPU ({card.says})\n")
        return 0
    sys.stdout.write(f"GPU {card.index}: {card.says}\n")
    return setup.main(["gpu"]) or int(pytest.main([str(Path(__file__).parent), "-m", "gpu"]))


if __name__ == "__main__":
    sys.exit(main())
