"""Progress in children: compilers and downloaders below the server that are new or that run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from runbook.diagnose.motion import Key, Motion, rows
from runbook.model.sample import Sample, Seen

COMPILERS = re.compile(r"(?:^|/)(nvcc|cicc|ptxas|fatbinary|ninja|cc1plus|cc1|c\+\+|g\+\+|gcc|clang\+*|ld|hipcc|as)\b")
DOWNLOADERS = re.compile(r"(?:^|/)(curl|wget|aria2c|rsync|rclone|s5cmd|azcopy|gsutil|git-lfs|git-remote-https?|hf|huggingface-cli)\b")


def is_compiler(title: str) -> bool:
    """Whether a process title is a compiler's, assembler's, linker's or build tool's."""
    return COMPILERS.search(title) is not None


def is_downloader(title: str) -> bool:
    """Whether a process title is that of a program that fetches files."""
    return DOWNLOADERS.search(title) is not None


def child_motions(samples: Sequence[Sample]) -> Iterator[Motion]:
    """Compilers that are new or ran: thread times are not read at every look, so each is held until the next.

    A new downloader is a weak sign; that it runs is none, since the timer of its bar does too: its bytes count.
    """
    ran: dict[Key, int] = {}
    readable = [sample for sample in samples if isinstance(sample.processes, Seen)]
    for index, sample in enumerate(readable):
        for key, process in rows(sample).items():
            compiles = is_compiler(process.title)
            if process.state in "ZX" or not (compiles or is_downloader(process.title)):
                continue
            run_ns = sum(thread.run_ns for thread in process.threads)
            if index and (key not in ran or (compiles and run_ns > ran[key])):
                signal = "compiler" if compiles else "downloader"
                seconds = sample.t - readable[index - 1].t
                yield Motion(sample.t, seconds, signal, 1.0, f"{signal} {process.title[:60]}", strong=compiles)
            ran[key] = max(run_ns, ran.get(key, 0))
