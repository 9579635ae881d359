"""The faults that `--fault` asks for, at their place in the start of a rank. The programs themselves stand in `faults`."""

import logging
import os

from lab_engine import HOME

log = logging.getLogger(__name__)
SEED = 2
PLACES = {
    "load": ("deadlock", "livelock", "stale_lock", "log_pipe", "slow_load", "slow_compile", "rank_stopped", "collective_mismatch"),
    "prefill": ("long_prefill",),
}
ONE_RANK = ("deadlock", "livelock", "log_pipe", "slow_compile")
"""They happen in one rank; the others wait for it, as they would."""


def started_ranks(args):
    """Numbers of the ranks that are started: all, but for the fault that leaves one out."""
    ranks = list(range(args.tp_size))
    if args.fault == "rank_missing":
        ranks.remove(_stage().odd(args.tp_size))
    return ranks


def meet(args, place):
    """Run the fault if this is its place and its rank. A hang never returns; a slow phase does, once."""
    name = args.fault
    if name not in PLACES.get(place, ()):
        return
    from lab_engine import distributed, faults  # here: the main process asks for its ranks without torch

    stage, rank, world = _stage(), distributed.rank(), distributed.world_size()
    if name in ONE_RANK and rank != stage.odd(world):
        return
    if name == "long_prefill":
        args.fault = ""  # the warm-up meets it, later requests do not
    run = getattr(faults, name)
    run(stage, rank, world) if name in faults.NEED_RANKS else run(stage)


def _stage():
    from lab_engine.faults import Stage

    folder = HOME / "faults" / str(os.getpid())
    folder.mkdir(parents=True, exist_ok=True)
    return Stage(SEED, folder, log)
