"""Folders in which compilers and downloaders work: they grow while one does, and their locks outlive one that was killed."""

from __future__ import annotations

from collections.abc import Mapping

CACHES = {
    "TORCH_EXTENSIONS_DIR": "{base}/torch_extensions",
    "TRITON_CACHE_DIR": "{home}/.triton/cache",
    "TORCHINDUCTOR_CACHE_DIR": "/tmp/torchinductor_{user}",
    "VLLM_CACHE_ROOT": "{base}/vllm",
    "FLASHINFER_WORKSPACE_BASE": "{base}/flashinfer",
    "DG_JIT_CACHE_DIR": "{home}/.deep_gemm",
    "HF_HOME": "{base}/huggingface",
}
"""Variable to the default that engines and compilers use without it."""
VARIABLES = ("HOME", "USER", "XDG_CACHE_HOME", *CACHES)
"""What says where they are; nothing else of a server's environment is asked for."""


def caches(env: Mapping[str, str], home: str, user: str) -> list[str]:
    """The folders, by the server's variables as far as they are known, else by those of the account that looks."""
    home, user = env.get("HOME") or home, env.get("USER") or user
    base = env.get("XDG_CACHE_HOME") or f"{home}/.cache"
    return [env.get(variable) or default.format(home=home, base=base, user=user) for variable, default in CACHES.items()]
