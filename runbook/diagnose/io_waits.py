"""hung/io_blocked: a disk, a network file system or a download that brings nothing any more."""

from __future__ import annotations

import re

from runbook.diagnose.actors import sockets
from runbook.diagnose.child_progress import is_downloader
from runbook.diagnose.execution import Run
from runbook.diagnose.family import name
from runbook.diagnose.motion import readings
from runbook.diagnose.places import Place
from runbook.diagnose.stall import stall
from runbook.diagnose.standstill import Proof, excused, proven, standstill, verdict
from runbook.diagnose.turning import standing
from runbook.diagnose.view import View
from runbook.diagnose.waiters import frozen_at, last_in_chain
from runbook.model.units import format_duration, format_size
from runbook.model.verdict import Diagnosis

DOWNLOAD_BYTES = 1024 * 1024
"""A connection that brought less may not be a download."""
FLAT_S = 120.0
"""Servers of large files let a client wait for a minute when they are busy. An estimate."""

SERVER = re.compile(r"server (\S+?),? (not responding|OK)\b")
"""What NFS tells of a server that it waits for, and again when that answers."""
REMOTE = re.compile(r"nfs|rpc", re.IGNORECASE)


def io_blocked(view: View) -> Diagnosis | None:
    """hung/io_blocked: when the stall budget is spent, nothing executed, a main thread stands in the kernel's I/O, state D, with the same
    wait channel at every look and no byte moving, and the kernel itself says that this task is blocked or that a server or a disk does not
    answer; or when a downloader whose bar stands brings no byte for two minutes or longer.

    its live twins: a slow disk, whose reader is in state D most of the time while bytes come; a file system of a network or of another
    process that answers after minutes; swapping; a slow download.
    """
    flat = _flat_download(view)
    if flat is not None:
        return flat
    stuck = frozen_at(view, ("io",)) or [one for one in frozen_at(view) if "D" in one[0].states]
    confidence = proven(view) if stuck else None
    if confidence is None or not view.once(standstill).has("execution"):
        return None
    run, place = stuck[0]
    if not _kernel_says(view, run, place):
        return None
    return verdict(
        view,
        "io_blocked",
        "io_blocked",
        f"{name(view, run.process)} waits for a disk, a network file system or a child that never comes back",
        accuse=last_in_chain(view, run),
        note=f"state {'/'.join(sorted(run.states))}, waits in {place.text}",
        confidence=confidence,
        next_looks=("see whether that file system answers: `timeout 5 ls PATH`", "and what the kernel says: `dmesg | tail`"),
    )


def _kernel_says(view: View, run: Run, place: Place) -> bool:
    """Of this very task that it is blocked; of a server of files, for which it waits, nothing better since; of a disk, since it stands."""
    looks = list(readings(view.samples, "kernel"))
    lines = looks[-1][1] if looks else ()
    task = re.compile(rf"task \S+:{run.process.pid} blocked for more than")
    if any(task.search(line) for line in lines):
        return True
    answers = {match[1]: match[2] for line in lines if (match := SERVER.search(line))}
    if REMOTE.search(place.text) and "not responding" in answers.values():
        return True
    before = [told for sample, told in looks if sample.t < view.once(stall).since] or [told for _, told in looks[:1]]
    return any("I/O error" in line for line in lines if line not in before[-1])


def _flat_download(view: View) -> Diagnosis | None:
    """Bytes came over a connection to another host, and then none for twice the budget, while the downloader waits for them and its bar
    stands."""
    stand = view.once(standstill)
    if (
        not stand.clock.over(2.0)
        or stand.clock.wall_s < FLAT_S
        or stand.actors
        or excused(view)
        or not stand.has("data")
        or not stand.has("execution")
    ):
        return None
    if any(one.kind not in ("stranger", "sleeper") for one in stand.unseen):
        return None
    for run, _ in frozen_at(view, ("recv",)):
        fed = [
            one for one in sockets(view) if one.pid == run.process.pid and one.state == "ESTAB" and (one.received or 0) >= DOWNLOAD_BYTES
        ]
        if not fed or not is_downloader(run.process.title) or not standing(view):
            continue
        text = f"{format_size(fed[0].received or 0)} came from {fed[0].peer}, and no byte for {format_duration(stand.clock.wall_s)}"
        return verdict(
            view,
            "io_blocked",
            "io_blocked",
            f"{name(view, run.process)} waits for a download that brings nothing any more",
            accuse=run.process,
            note=f"downloads from {fed[0].peer}",
            proofs=(Proof("coordination", "received", fed[0].received, text, stand.clock.wall_s),),
            confidence="likely",
            next_looks=("try the same address by another way: `curl -I URL`", "start the download again: most go on where they stood"),
        )
    return None
