"""hung/driver and crashed/gpu_lost: the GPU or its driver, by the kernel's and the driver's own word."""

from __future__ import annotations

import re

from runbook.diagnose.execution import APART_S
from runbook.diagnose.motion import readings
from runbook.diagnose.stall import stall
from runbook.diagnose.standstill import Proof, at_rest, standstill, verdict
from runbook.diagnose.view import View
from runbook.diagnose.words import quote
from runbook.model.gpu import ToolSample
from runbook.model.sample import Seen
from runbook.model.units import format_duration
from runbook.model.verdict import Culprit, Diagnosis, Evidence

TOOL_S = 60.0
XID = re.compile(r"NVRM: Xid|\bXid \(PCI")
OFF_THE_BUS = re.compile(r"fallen off the bus|GPU is lost")


def driver(view: View) -> Diagnosis | None:
    """hung/driver: when the driver's tool has been in state D for 60 s, or the kernel reports a new Xid, and nothing of the server has
    moved for 10 s or longer; of an Xid from before the wait only when the budget of a tree that executes nothing is spent.

    its live twins: a tool that is slow (that is blindness), an Xid of a fault that the server survived and works on.
    """
    tool = view.newest("gpu_tool")
    stuck = isinstance(tool, Seen) and tool.value.state == "D" and tool.value.age_s >= TOOL_S
    if view.question.about == "gpu_free":
        return _wedged(view, tool.value) if isinstance(tool, Seen) and stuck else None
    if view.once(stall).wall_s < APART_S or not at_rest(view):
        return None
    if isinstance(tool, Seen) and stuck:
        return _wedged(view, tool.value)
    reported = _xids(view)
    stand = view.once(standstill)
    if not reported or not (_is_new(view, reported[-1]) or (stand.has("execution") and stand.has("data") and stand.clock.over_frozen())):
        return None
    text = f"the kernel reports: {quote(reported[-1])}"
    return verdict(
        view,
        "driver",
        "driver",
        "the GPU or its driver has failed and the server stands still",
        accuse=view.main,
        note="waits for its GPU",
        proofs=(Proof("device", "xid", quote(reported[-1]), text, view.once(stall).wall_s),),
        next_looks=("what the number means stands in the driver's Xid table", "`dmesg -T | grep -i xid`"),
    )


def _xids(view: View) -> list[str]:
    """What the kernel's log says of Xids at the newest look."""
    return [line for _, lines in list(readings(view.samples, "kernel"))[-1:] for line in lines if XID.search(line)]


def _is_new(view: View, line: str) -> bool:
    """Whether it came while we watched: an older one may have been survived."""
    looks = list(readings(view.samples, "kernel"))
    return len(looks) >= 2 and line not in looks[0][1]


def _wedged(view: View, tool: ToolSample) -> Diagnosis:
    text = f"the driver's tool, pid {tool.pid}, has been in state D for {format_duration(tool.age_s)}" + (
        f" in {tool.wchan}" if tool.wchan else ""
    )
    found = verdict(
        view,
        "driver",
        "driver",
        "the GPU driver does not answer",
        accuse=None,
        proofs=(Proof("device", "gpu_tool_state", "D", text, tool.age_s),),
        confidence="proven",
        next_looks=("start no second copy of the tool: each one hangs as well", "`dmesg -T | grep -iE 'xid|nvrm|blocked for'`"),
    )
    return found


def gpu_lost(view: View) -> Diagnosis | None:
    """crashed/gpu_lost: when the kernel says that a GPU has left the bus, or the driver lists fewer than at the first look, at two looks,
    and nothing of the server has moved for 10 s or longer.

    its live twins: a listing that failed once, a server that works on with the GPUs it has.
    """
    if view.question.about == "gpu_free" or view.once(stall).wall_s < APART_S or not at_rest(view):
        return None
    lines = [line for _, found in list(readings(view.samples, "kernel"))[-1:] for line in found if OFF_THE_BUS.search(line)]
    counts = [(sample.t, len(found)) for sample, found in readings(view.samples, "gpus")]
    fewer = len(counts) >= 3 and counts[-1][1] == counts[-2][1] < counts[0][1]
    if not lines and not fewer:
        return None
    text = f"the kernel says: {quote(lines[0])}" if lines else f"{counts[-1][1]} GPUs are listed where there were {counts[0][1]}"
    value = quote(lines[0]) if lines else counts[-1][1]
    return Diagnosis(
        verdict="crashed",
        kind="gpu_lost",
        confidence="strong" if lines else "likely",
        rule="gpu_lost",
        reason=f"a GPU is lost and the server stands still: {text}",
        phase=view.course.current,
        quiet_s=view.quiet_s,
        culprit=Culprit(host=view.last.host if view.last else "", note="lost a GPU"),
        evidence=(Evidence(signal="gpu_lost", value=value, points_to="crashed"),),
        blind=view.blind(),
        next=("`nvidia-smi -L`, once, and `dmesg -T | grep -iE 'xid|bus'`", "a lost GPU comes back with a reset or a reboot of the host"),
    )
