"""This process's share of the stand-in GPUs: one file per process in `gpus/`, which the lab's `nvidia-smi` adds up."""

import json
import os
import pathlib

from lab_engine import HOME

GIB = 1 << 30
TOTAL = 80 * GIB
COUNT = 2
CONTEXT = 600 << 20  # what a process takes before it has loaded anything
KV_POOL = 8 * GIB
FOLDER = HOME / "gpus"


class Gpu:
    """Memory that this process has declared on one GPU. Nothing is written where there is no `gpus/` folder."""

    def __init__(self, rank, base=0):
        visible = [int(i) for i in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if i.strip().isdigit()]
        visible = visible or list(range(COUNT))
        self.index = visible[(base + rank) % len(visible)]
        self.bytes = 0
        self.file = FOLDER / f"{os.getpid()}.json"

    def take(self, size):
        """Declare more memory."""
        self.bytes += size
        if FOLDER.is_dir():
            entry = {"pid": os.getpid(), "start": _start_ticks(os.getpid()), "gpu": self.index, "bytes": self.bytes}
            draft = self.file.with_suffix(f".{os.getpid()}.tmp")
            draft.write_text(json.dumps(entry))
            draft.replace(self.file)

    def touch(self):
        """A forward pass ran: the file's time is what utilisation is read from."""
        if FOLDER.is_dir():
            os.utime(self.file)

    def release(self):
        self.file.unlink(missing_ok=True)

    def available(self):
        """Free memory of this GPU in GiB, counting all living processes."""
        used = sum(entry["bytes"] for entry in entries(FOLDER) if entry["gpu"] == self.index)
        return (TOTAL - used) / GIB


def entries(folder):
    """What living processes have declared; a pid that was reused does not count."""
    found = []
    for file in sorted(pathlib.Path(folder).glob("*.json")):
        try:
            entry = json.loads(file.read_text())
        except (OSError, ValueError):
            continue  # the process is just going, or its writer died half-way
        if _start_ticks(entry["pid"]) == entry["start"]:
            found.append(entry)
    return found


def _start_ticks(pid):
    """Start time of a living process in clock ticks since boot; None when there is none, or only its zombie."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
