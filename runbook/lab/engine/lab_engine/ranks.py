"""The rank processes as the main process sees them: start, wait until ready, end."""

import ctypes
import dataclasses
import logging
import multiprocessing
import os
import signal
import socket
import sys
from multiprocessing.connection import wait

from lab_engine import log as logs
from lab_engine import trouble

log = logging.getLogger(__name__)
PR_SET_PDEATHSIG = 1


@dataclasses.dataclass
class Rank:
    number: int
    process: multiprocessing.Process
    ready: object


def _rank_main(args, number, dist_port, ready, pipe, parent):
    """First code in a rank process, before torch is there."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return  # it died before the line above
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import warnings

    import setproctitle

    tag = args.tag(number)
    setproctitle.setproctitle("sglang::scheduler" + (f"_{tag}" if tag else ""))
    logs.configure(tag)
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    from lab_engine.scheduler import run

    run(args, number, dist_port, ready, pipe)


def start_ranks(args, ranks):
    """Spawn all ranks into the list. Answers our end of rank 0's pipe."""
    context = multiprocessing.get_context("spawn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        dist_port = free.getsockname()[1]
    ours, theirs = context.Pipe()
    for number in trouble.started_ranks(args):
        receiver, sender = context.Pipe(duplex=False)
        arguments = (args, number, dist_port, sender, theirs if number == 0 else None, os.getpid())
        process = context.Process(target=_rank_main, args=arguments, daemon=True)
        process.start()
        sender.close()
        ranks.append(Rank(number, process, receiver))
    theirs.close()
    return ours


def await_ready(ranks):
    """Block until every rank has said ready; answers the first rank's words. RuntimeError when one dies before."""
    missing = {rank.ready: rank for rank in ranks}
    answer = {}
    while missing:
        for readable in wait(list(missing)):
            rank = missing.pop(readable)
            try:
                said = readable.recv()
            except EOFError:
                rank.process.join()
                raise RuntimeError(
                    f"Rank {rank.number} scheduler died during initialization (exit code: {rank.process.exitcode}). "
                    "If exit code is -9 (SIGKILL), a common cause is the OS OOM killer."
                ) from None
            answer = said if rank.number == 0 else answer
    return answer


def end_ranks(ranks, pipe):
    """Ask the ranks to leave; end those that do not within 5 s."""
    try:
        pipe.send({"type": "exit"})
    except OSError:
        pass  # rank 0 is gone already
    for rank in ranks:
        rank.process.join(5)
        if rank.process.is_alive():
            rank.process.kill()
            rank.process.join()


def die_with_ranks(ranks, text):
    """SGLang's end after a child failed: SIGKILL for the whole tree, ourselves included."""
    log.error(text)
    sys.stderr.flush()
    for rank in ranks:
        rank.process.kill()
    os.kill(os.getpid(), signal.SIGKILL)
