"""The questions put to the driver's tool, and the reading of its answers. Pure: text in, plain data out.

An answer is `{"gpus": […]}` or `{"blind": reason}`; a figure that the tool does not give is never replaced by another.
"""

import csv
import re
from typing import Any, Dict, List, Optional, Tuple

GPU_FIELDS = ("index", "uuid", "name", "memory.used", "memory.total", "utilization.gpu")
_POWER = ("power.draw", "power.limit")
MORE_FIELDS = ((*_POWER, "clocks_throttle_reasons.active"), (*_POWER, "clocks_event_reasons.active"), ())
"""Asked too, in turn, the second with the later name of the same mask. A driver that lacks one refuses the whole question."""
_MORE = len(MORE_FIELDS[0])
APP_FIELDS = ("gpu_uuid", "pid", "used_memory")
MIB = 1 << 20
_FORMAT = "--format=csv,noheader,nounits"
_REFUSED = re.compile(r"(?i)not a valid field")
THROTTLES = {
    0x2: "applications clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal, by software",
    0x40: "thermal, by hardware",
    0x80: "power brake",
}
"""Bits of the driver's mask of why clocks are lower than they could be (nvml.h); idleness and display settings slow nobody down."""
_LOST = re.compile(r"(?i)gpu is lost|unable to determine the device handle|fallen off the bus|unknown error|no devices were found")


def gpu_question(tool: str, more: Tuple[str, ...] = ()) -> List[str]:
    """argv: memory and load of each GPU, and one of `MORE_FIELDS`."""
    return [tool, "--query-gpu=" + ",".join(GPU_FIELDS + more), _FORMAT]


def refused(code: int, stdout: str, stderr: str) -> bool:
    """Whether this driver does not know a field of the question."""
    return code != 0 and _REFUSED.search(stdout + stderr) is not None


def app_question(tool: str) -> List[str]:
    """argv: which processes hold memory."""
    return [tool, "--query-compute-apps=" + ",".join(APP_FIELDS), _FORMAT]


def read_gpus(code: int, stdout: str, stderr: str) -> Dict[str, Any]:
    """`{gpus: [{index, uuid, name, used, total, utilisation, …}], faults: [text]}`, memory in bytes; or `{blind}`.

    A lost GPU turns into a fault while the others are still reported, and into blind when none is.
    """
    faults = [line.strip() for line in (stdout + "\n" + stderr).splitlines() if _LOST.search(line)]
    if code != 0 and not faults:
        return {"blind": "nvidia-smi: exited %d%s" % (code, _quoted(stderr or stdout))}
    gpus = []
    for fields in _rows(stdout):
        if len(fields) < len(GPU_FIELDS):
            continue  # a message, not a row
        more = fields[-_MORE:] if len(fields) >= len(GPU_FIELDS) + _MORE else []
        fields = fields[: len(fields) - len(more)]
        gpu, problem = _gpu([*fields[:2], ", ".join(fields[2:-3]), *fields[-3:]])  # a name may hold a comma
        if gpu is None:
            return {"blind": problem}
        gpus.append(dict(gpu, **_more(*more)) if more else gpu)
    if not gpus:
        if faults:
            return {"blind": "nvidia-smi%s" % _quoted(faults[0])}
        return {"blind": "nvidia-smi answered nothing" + (" that can be read" + _quoted(stdout) if stdout.strip() else "")}
    return {"gpus": gpus, "faults": faults}


def _gpu(fields: List[str]) -> Tuple[Optional[Dict[str, Any]], str]:
    index, uuid, name, used, total, load = fields
    for label, text in (("index", index), ("memory.used", used), ("memory.total", total)):
        if not text.isdigit():
            return None, "nvidia-smi gives no %s for %s: `%s`" % (label, name or uuid, text)
    return {
        "index": int(index),
        "uuid": uuid,
        "name": name,
        "used": int(used) * MIB,
        "total": int(total) * MIB,
        "utilisation": int(load) if load.isdigit() else None,
    }, ""


def _more(draw: str, limit: str, reasons: str) -> Dict[str, Any]:
    """Power in watts and why the clocks are down; null where the tool does not say."""
    mask = int(reasons, 16) if re.fullmatch(r"0x[0-9a-fA-F]+", reasons) else None
    return {
        "power_w": _watts(draw),
        "power_limit_w": _watts(limit),
        "throttle": None if mask is None else [name for bit, name in THROTTLES.items() if mask & bit],
    }


def _watts(text: str) -> Optional[float]:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None


def read_apps(code: int, stdout: str, stderr: str) -> Dict[str, Any]:
    """`{apps: [{uuid, pid, used}]}`; `used` is null where the tool does not say (containers, MIG). Or `{blind}`."""
    if code != 0:
        return {"blind": "nvidia-smi: exited %d%s" % (code, _quoted(stderr or stdout))}
    apps = []
    for fields in _rows(stdout):
        if len(fields) != len(APP_FIELDS) or not fields[1].isdigit():
            continue  # "No running processes found"
        uuid, pid, used = fields
        apps.append({"uuid": uuid, "pid": int(pid), "used": int(used) * MIB if used.isdigit() else None})
    return {"apps": apps}


def read_minor(text: str) -> Optional[Tuple[str, int]]:
    """(uuid, minor number of its device file) from /proc/driver/nvidia/gpus/*/information."""
    uuid = re.search(r"(?m)^GPU UUID:\s*(\S+)", text)
    minor = re.search(r"(?m)^Device Minor:\s*(\d+)", text)
    return (uuid.group(1), int(minor.group(1))) if uuid and minor else None


def _rows(text: str) -> List[List[str]]:
    return [[field.strip() for field in fields] for fields in csv.reader(text.splitlines(), skipinitialspace=True) if fields]


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return ": %s" % line[:200] if line else ""
