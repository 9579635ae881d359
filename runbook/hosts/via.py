"""What a `via:` prefix means for the helper: how it must be called to relay, and whether anything outlives the connection."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

_CONTAINER_TOOLS = frozenset({"docker", "podman", "nerdctl", "kubectl"})

_UNBUFFERED = frozenset({"-u", "--unbuffered"})
_JOB_OVER = re.compile(r"Slurm job \d+ has expired")


def is_over(said: str) -> bool:
    """Whether the tool of a prefix said that what it leads into has ended for good. The words are those of Slurm 22.05.8."""
    return _JOB_OVER.search(said) is not None


def relaying(via: Sequence[str]) -> list[str]:
    """The prefix, so that it passes on at once what the helper writes: `srun` keeps back what has no line end, unless told otherwise."""
    words = list(via)
    at = next((index for index, word in enumerate(words) if _name(word) == "srun"), None)
    if at is not None and not _UNBUFFERED & set(words):
        words.insert(at + 1, "--unbuffered")
    return words


def ends_with_link(via: Sequence[str]) -> str:
    """Why nothing that is started behind this prefix outlives the connection; empty where it does, as far as is known.

    Slurm kills a job step when its `srun` goes: by cgroup all of it; by other ways of tracking, a process that left its session is
    missed, and is then no part of the job. A container that was made for a command ends with it. What `docker exec`, `podman exec` or
    `kubectl exec` started goes on in its container.
    """
    names = [_name(word) for word in via]
    if "srun" in names:
        return "`srun` ends its step when the connection goes, with every process that Slurm tracks in it"
    for tool, command in itertools.pairwise(names):
        if tool in _CONTAINER_TOOLS and command == "run":
            return f"the container of `{tool} run` ends with the connection"
    return ""


def _name(word: str) -> str:
    return word.rsplit("/", 1)[-1]
