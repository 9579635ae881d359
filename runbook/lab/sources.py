"""Where the lab's engine source and its trained weights lie in the installed package."""

from __future__ import annotations

import sys
from pathlib import Path

ENGINE = Path(__file__).parent / "engine"
"""Folder that holds the package `lab_engine`; the lab copies that package into its home and runs the copy."""
WEIGHTS = Path(__file__).parent / "weights"


def import_engine() -> None:
    """Make `import lab_engine` find the packaged source: for training and measuring, which need no server."""
    if str(ENGINE) not in sys.path:
        sys.path.insert(0, str(ENGINE))
