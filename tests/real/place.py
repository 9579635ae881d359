"""Where the real engines are kept, and whether one is ready: REAL_DIR/stamps/NAME.json is written when a part is whole."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def real_dir() -> Path:
    """The cache folder, as an absolute path: $REAL_DIR, else .cache/real of the checkout."""
    return (ROOT / (os.environ.get("REAL_DIR") or ".cache/real")).absolute()


def stamp_path(name: str) -> Path:
    """A part's stamp."""
    return real_dir() / "stamps" / f"{name}.json"


def stamp(name: str) -> dict[str, Any]:
    """What was built, by which recipe, in how many seconds; empty when the part is not whole."""
    try:
        return dict(json.loads(stamp_path(name).read_text()))
    except (OSError, ValueError):
        return {}


def python() -> Path:
    """The interpreter with torch, transformers and vLLM."""
    return real_dir() / "venv" / "bin" / "python"


def gpu_python() -> Path:
    """The interpreter with SGLang for a GPU: $GPU_PYTHON, else of an environment of its own."""
    return Path(os.environ.get("GPU_PYTHON") or real_dir() / "gpu" / "venv" / "bin" / "python").absolute()


def model(name: str) -> Path:
    """A folder with weights: `target`, or one of the drafts."""
    return real_dir() / "models" / name


def llama_server() -> Path:
    """llama.cpp's server."""
    return real_dir() / "llamacpp" / "build" / "bin" / "llama-server"


def gguf(name: str) -> Path:
    """A model for it: `tiny` or `large`."""
    return real_dir() / "llamacpp" / f"{name}.gguf"
