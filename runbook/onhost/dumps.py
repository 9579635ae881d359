"""What a launch arms so that a hang can be looked into: nothing (`off`), what changes no experiment (`auto`), all there is (`full`).

auto   no core file; PYTHONFAULTHANDLER comes with the launch's environment
full   also, by a sitecustomize of ours before the host's own: py-spy may read each Python process where Yama would forbid it, and a
       real-time signal that nobody else uses prints its threads into a file; torch's flight recorder with its FIFO; a RAS port of
       its own. Variables that the author sets stay his.
"""

import os
import resource
import signal
import socket
from typing import Any, Dict, Optional, Set

from .files import make_private

SIGNAL = signal.SIGRTMAX - 5
"""Caught by nothing that we know; a process that does not catch it is never sent it."""
FOLDER = "RUNBOOK_DUMPS"
SITE = '''"""Put here by runbook (`dumps: full`), so that the stacks of this process can be read. Removed with the run's folder."""

import os
import sys


def _arm():
    try:
        import ctypes

        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER, ANY: does nothing where Yama is not
    except Exception:
        pass
    try:
        import faulthandler

        file = open(os.path.join(os.environ["%(folder)s"], "%%d.stacks" %% os.getpid()), "w")
        faulthandler.register(%(signal)d, file=file, all_threads=True)
        _arm.file = file
    except Exception:
        pass


_arm()
os.register_at_fork(after_in_child=_arm)
_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _here]
_own = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = _own
'''


def forbid_core(pid: int) -> None:
    """No core file of it and what it starts: that of a server with its weights fills a disk. The process may raise the limit itself."""
    try:
        hard = resource.prlimit(pid, resource.RLIMIT_CORE)[1]
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, hard))
    except (OSError, ValueError):
        pass  # it has ended already, or has become another user's


def prepare(folder: str, env: Dict[str, str]) -> Dict[str, str]:
    """The variables of `full`, with what they point to made in `folder`."""
    site = make_private(os.path.join(folder, "site"))
    with open(os.path.join(site, "sitecustomize.py"), "w", encoding="ascii") as file:
        file.write(SITE % {"folder": FOLDER, "signal": SIGNAL})
    stem = os.path.join(folder, "flight_")
    found = {
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",  # its name before torch 2.9
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": stem + "rank_",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": stem + "rank_",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": stem + "pipe_",
        "NCCL_RAS_ADDR": "localhost:%d" % free_port(),
    }
    found = {name: value for name, value in found.items() if name not in env}
    found["PYTHONPATH"] = os.pathsep.join(part for part in (site, env.get("PYTHONPATH", "")) if part)
    return dict(found, **{FOLDER: folder})


def free_port() -> int:
    """A loopback port that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def armed(pid: int, environ_value: Any, caught: Optional[Set[int]]) -> str:
    """The file into which the signal makes this process print its threads; empty when it is not known to be armed.

    caught: the signals for which it has a handler.
    """
    folder = environ_value(pid, FOLDER)
    path = os.path.join(folder, "%d.stacks" % pid) if folder else ""
    return path if path and os.path.isfile(path) and caught is not None and SIGNAL in caught else ""
