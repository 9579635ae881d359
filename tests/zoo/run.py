"""Run the zoo: python -m tests.zoo.run --seeds 0..4 [--only NAME,…] [--load] [--perturb N] [--jobs 2] [--json FILE] [--out DIR].

Even seeds are for building. Odd ones are held out: no threshold may be chosen by looking at them.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from tests.zoo.actor import collect
from tests.zoo.looking import perform
from tests.zoo.outcome import Outcome, table, wrong
from tests.zoo.scenario import SCENARIOS, Scenario


def main(argv: list[str] | None = None) -> int:
    """Exit 1 when a live process was called hung, a hung one slow or passed, or a scenario could not be run."""
    args = _arguments(argv)
    collect()
    chosen = [scenario for name, scenario in SCENARIOS.items() if not args.only or name in args.only.split(",")]
    todo = [(scenario, seed) for seed in args.seeds for scenario in chosen]
    args.out.mkdir(parents=True, exist_ok=True)
    failed, done = 0, list[Outcome]()
    if not args.again:
        with _load(args.load), ThreadPoolExecutor(args.jobs) as pool:
            played = list(pool.map(lambda job: _one(*job, args), todo))
        done = [one for one in played if one is not None]
        failed = len(played) - len(done)
    if args.perturb or args.again:
        from tests.zoo.perturb import rejudge

        done += rejudge(args.out, [scenario.name for scenario in chosen], args.seeds, args.perturb)
    for title, part in (
        ("in real time", [one for one in done if not one.variant]),
        ("judged again, from recordings", [one for one in done if one.variant]),
    ):
        if part:
            sys.stdout.write(f"{title}\n\n{table(part)}\n\n")
    if args.json:
        args.json.write_bytes(msgspec.json.format(msgspec.json.encode(done)))
    if failed:
        sys.stderr.write(f"{failed} could not be run\n")
    return 1 if failed or any(one.word in ("false_hung", "missed") for one in wrong(done)) else 0


def _one(scenario: Scenario, seed: int, args: argparse.Namespace) -> Outcome | None:
    try:
        if args.typed:
            from tests.zoo.typed import ask

            outcome = ask(scenario, seed, args.out, args.most)
        else:
            outcome = perform(scenario, seed, args.out, load=args.load, most_s=args.most, stall_after=args.stall_after)
    except Exception:
        sys.stderr.write(f"{scenario.name} seed {seed} could not be run:\n{traceback.format_exc()}\n")
        return None
    after = "" if outcome.after_s is None else f" {outcome.after_s:.1f} s after its last progress"
    said = f"{outcome.verdict}/{outcome.kind} by {outcome.rule}{after}"
    sys.stderr.write(f"{outcome.word:<10} {scenario.name} seed {seed} ({scenario.truth}): {said}, looked {outcome.looked_s} s\n")
    return outcome


@contextlib.contextmanager
def _load(wanted: bool):  # type: ignore[no-untyped-def]
    if not wanted:
        yield
        return
    from tests.zoo.load import hogs

    with hogs():
        yield


def _seeds(text: str) -> list[int]:
    """`4`, `0..9`, `even:0..9` or `odd:0..9`."""
    which, _, rest = text.rpartition(":")
    first, _, last = rest.partition("..")
    seeds = range(int(first), int(last or first) + 1)
    return [seed for seed in seeds if not which or (seed % 2 == 1) == (which == "odd")]


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.run", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=_seeds, default=[0], help="A..B, even:A..B or odd:A..B")
    parser.add_argument("--only", default="", help="names, with commas")
    parser.add_argument("--jobs", type=int, default=2, help="scenarios side by side")
    parser.add_argument("--typed", action="store_true", help="ask `runbook diagnose local --pid N --json`, a process each")
    parser.add_argument("--load", action="store_true", help="beside 4 x cores of CPU hogs and one that takes memory")
    parser.add_argument("--perturb", type=int, default=0, metavar="N", help="judge each recording N times more, with perturbed samples")
    parser.add_argument("--again", action="store_true", help="start nothing: only judge the recordings of --out")
    parser.add_argument("--most", type=float, default=None, metavar="S", help="look no longer than this")
    parser.add_argument("--stall-after", default="auto", metavar="DURATION", help="stall budget instead of the profile's")
    parser.add_argument("--out", type=Path, default=Path(".cache/zoo"), help="folder of the recordings")
    parser.add_argument("--json", type=Path, default=None, help="all outcomes as JSON")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
