"""python -m lab_engine.launch_server: the main process. Starts the ranks, waits until all are ready, then serves HTTP.

    refused   ranks load; nothing listens
    503       listening, warm-up under way
    200       after the warm-up
A rank that dies takes the server down, and the server's death takes the ranks down.
"""

import dataclasses
import logging
import os
import signal
import sys

from lab_engine import log as logs
from lab_engine.ranks import await_ready, die_with_ranks, end_ranks, start_ranks
from lab_engine.server_args import parse

log = logging.getLogger(__name__)


def main(argv):
    args = parse(argv)
    os.environ["SPT_NOENV"] = "1"  # setproctitle must not write over the environment: it carries the launcher's marks
    logs.configure()
    log.info("server_args=ServerArgs(%s)", ", ".join(f"{k}={v!r}" for k, v in dataclasses.asdict(args).items()))
    ranks = []

    def stop_loading(signum, frame):
        for rank in ranks:
            rank.process.kill()
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop_loading)
    said = "Received sigquit from a child process. It usually means the child failed."
    signal.signal(signal.SIGQUIT, lambda signum, frame: die_with_ranks(ranks, said))
    pipe = start_ranks(args, ranks)
    from lab_engine.http_server import serve  # here: it takes as long as the ranks' own imports

    try:
        scheduler_info = await_ready(ranks)
    except RuntimeError:
        for rank in ranks:
            rank.process.kill()
        raise
    try:
        serve(args, scheduler_info, ranks, pipe)
    finally:
        end_ranks(ranks, pipe)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
