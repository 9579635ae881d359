"""What Python, torch, the shell and the kernel print when something has gone wrong, whatever the engine."""

from __future__ import annotations

import re

COMMON: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "oom_gpu",
        re.compile(
            r"CUDA out of memory|HIP out of memory|OutOfMemoryError: (CUDA|HIP)|CUDA error: out of memory|cudaMalloc failed: out of memory"
        ),
    ),
    (
        "oom_host",
        re.compile(
            r"oom-kill:|[Oo]ut of memory: Killed process|^MemoryError\b|std::bad_alloc|can't allocate memory|Cannot allocate memory"
        ),
    ),
    (
        "port_in_use",
        re.compile(r"\[Errno 98\]|EADDRINUSE|[Aa]ddress already in use|couldn.t bind HTTP server socket|Failed to bind socket to"),
    ),
    ("gpu_lost", re.compile(r"fallen off the bus|GPU is lost|Unable to determine the device handle")),
    ("config", re.compile(r"pthread_create failed|can't start new thread|Thread creation failed|fork: .*Resource temporarily unavailable")),
    ("config", re.compile(r"Driver/library version mismatch|Failed to initialize NVML|No CUDA GPUs are available|No space left on device")),
    (
        "config",
        re.compile(r": error: (unrecognized arguments|argument |the following arguments are required|invalid choice|ambiguous option)"),
    ),
    ("config", re.compile(r"(: command not found|: not found|: No such file or directory|: Permission denied|: No module named \S+)$")),
    (
        "exception",
        re.compile(r"CUDA error: |NCCL error|DistBackendError|Segmentation fault|Fatal Python error|terminate called after throwing"),
    ),
)
"""(crash kind, what names it)."""

TRACEBACK = "Traceback (most recent call last):"
EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:: .*|:)?$")
LEVEL = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b")


ENDS = re.compile(r"(?:^|\s)(?:Killed|Terminated|Aborted|Segmentation fault|Bus error|Floating point exception)(?: \(core dumped\))?$")
"""What a shell prints of a child that was ended: no cause, and no progress either."""


def is_fatal(text: str) -> bool:
    """Whether a line tells of something that has gone wrong: that is no progress, even if the server lives through it."""
    return (
        TRACEBACK in text
        or ENDS.search(text) is not None
        or LEVEL.search(text) is not None
        or any(pattern.search(text) for _, pattern in COMMON)
    )
