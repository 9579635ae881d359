"""The Pythons of this machine that a patched server could run in."""

from __future__ import annotations

import sys
from pathlib import Path

_OTHERS = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3.*"))
_WANTED = ("python3.8", "python3.12", "python3.13")

INTERPRETERS = [sys.executable, *(str(path) for path in _OTHERS if path.name in _WANTED)]
"""This one, and the oldest and newest supported ones where pyenv has them."""
