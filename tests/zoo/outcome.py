"""A verdict weighed against the truth, and the table over many of them."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from runbook.model.verdict import Diagnosis
from tests.zoo.scenario import SCENARIOS, Scenario
from tests.zoo.staging import Staged

WITHIN_S = {"decisive": (20, 45), "frozen": (60, 120), "spin": (180, 180), "crash": (5, 5), "check": (10, 10)}
"""Median and 95th percentile that the time from the last progress to the verdict is to keep."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `after_s`: from the last real progress, or from the first look when that came later, to the verdict."""

    scenario: str
    seed: int
    truth: str
    verdict: str
    rule: str
    reason: str
    kind: str | None = None
    confidence: str | None = None
    after_s: float | None = None
    looked_s: float = 0.0
    culprit_right: bool | None = None
    """None when there is nobody to blame, or the verdict named nobody."""
    kind_right: bool | None = None
    recording: str = ""
    variant: str = ""

    @property
    def word(self) -> str:
        """right, undecided, open (a recording that ended too early to tell), or what is wrong: false_hung is the worst."""
        scenario = SCENARIOS[self.scenario]
        if self.verdict in (scenario.right, *scenario.also):
            return "right"
        if self.rule == "goes_on":
            return "open"
        if self.verdict == "undecided":
            return "right" if scenario.is_untold else "undecided"
        if self.verdict == "hung":
            return "false_hung" if scenario.is_alive else "other"
        return "missed" if self.truth == "hung" and self.verdict in ("slow", "passed") else "other"


def weigh(scenario: Scenario, seed: int, answer: Diagnosis, process: Staged, began: float, record: Path) -> Outcome:
    """The outcome of a run that has just ended."""
    now, stuck = time.time(), process.stuck_at()
    outcome = compare(scenario, seed, answer, process.culprit(), str(record))
    after = now - max(stuck, began) if stuck is not None and answer.verdict == scenario.right else None
    done = msgspec.structs.replace(outcome, after_s=after, looked_s=round(now - began, 1))
    truth = {"scenario": scenario.name, "seed": seed, "truth": scenario.truth, "stuck": stuck, "began": began, "culprit": process.culprit()}
    record.with_suffix(".truth.json").write_bytes(msgspec.json.encode({**truth, "outcome": done}))
    return done


def compare(scenario: Scenario, seed: int, answer: Diagnosis, blame: Sequence[int | None], record: str, variant: str = "") -> Outcome:
    """Verdict, kind and culprit against the truth."""
    right = answer.verdict == scenario.right
    named = answer.culprit if answer.culprit and (answer.culprit.pid or answer.culprit.rank is not None) else None
    culprit = None
    if right and named is not None and any(one is not None for one in blame):
        culprit = (named.pid is not None and named.pid == blame[0]) or (named.rank is not None and named.rank == blame[1])
    return Outcome(
        scenario=scenario.name,
        seed=seed,
        truth=scenario.truth,
        verdict=answer.verdict,
        rule=answer.rule,
        reason=answer.reason,
        kind=answer.kind,
        confidence=answer.confidence,
        culprit_right=culprit,
        kind_right=answer.kind in scenario.kinds if right and scenario.kinds else None,
        recording=record,
        variant=variant,
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """A row per scenario, the totals, and each wrong run in full."""
    head = f"{'scenario':<26}{'truth':<12}{'n':>5}{'right':>7}{'undec':>7}{'wrong':>7}  {'after s: median, p95':<22}{'kind':<8}{'culprit':<9}verdicts"
    rows = [head, "-" * len(head)]
    for name in sorted({one.scenario for one in outcomes}, key=lambda name: (SCENARIOS[name].truth, name)):
        mine = [one for one in outcomes if one.scenario == name]
        rows.append(_row(name, SCENARIOS[name].truth, mine))
    rows += ["-" * len(head), *(_row(f"all {truth}", "", [o for o in outcomes if o.truth == truth]) for truth in _truths(outcomes))]
    rows += ["", *totals(outcomes)]
    rows += [
        f"{one.word}: {one.scenario} seed {one.seed} {one.variant}: {one.verdict}/{one.kind} by {one.rule}: {one.reason[:200]}"
        for one in wrong(outcomes)
    ]
    return "\n".join(rows)


def wrong(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Runs whose verdict is neither right nor undecided."""
    return [one for one in outcomes if one.word not in ("right", "undecided", "open")]


def _truths(outcomes: Sequence[Outcome]) -> list[str]:
    return sorted({one.truth for one in outcomes})


def _row(name: str, truth: str, mine: Sequence[Outcome]) -> str:
    words = [one.word for one in mine]
    times = sorted(one.after_s for one in mine if one.after_s is not None)
    took = f"{statistics.median(times):.0f}, {_p95(times):.0f}" if times else ""
    kinds = [one.kind_right for one in mine if one.kind_right is not None]
    blamed = [one.culprit_right for one in mine if one.culprit_right is not None]
    said = Counter("open" if one.word == "open" else f"{one.verdict}/{one.kind}" if one.kind else one.verdict for one in mine)
    return (
        f"{name:<26}{truth:<12}{len(mine):>5}{words.count('right'):>7}{words.count('undecided'):>7}"
        f"{len(wrong(mine)):>7}  {took:<22}"
        f"{f'{sum(kinds)}/{len(kinds)}' if kinds else '':<8}{f'{sum(blamed)}/{len(blamed)}' if blamed else '':<9}"
        + (", ".join(f"{word} {count}" for word, count in said.items()) if truth else "")
    )


def totals(outcomes: Sequence[Outcome]) -> list[str]:
    """The figures that the targets are about, each with its target."""
    alive = [one for one in outcomes if SCENARIOS[one.scenario].is_alive]
    stuck = [one for one in outcomes if one.truth == "hung"]
    told = [one for one in outcomes if one.word != "open"]
    lines = [
        f"live called hung: {sum(one.word == 'false_hung' for one in alive)} of {len(alive)} (0)",
        f"hung called slow or passed: {sum(one.word == 'missed' for one in stuck)} of {len(stuck)} (0)",
        f"undecided: {_share(told, lambda one: one.word == 'undecided')} (≤ 10 %); beside them "
        f"{sum(one.verdict == 'undecided' and one.word == 'right' for one in told)} of which nobody could tell more",
    ]
    for pace, (median, p95) in WITHIN_S.items():
        times = sorted(one.after_s for one in outcomes if one.after_s is not None and SCENARIOS[one.scenario].pace == pace)
        if times:
            lines.append(f"{pace}: median {statistics.median(times):.1f} s (≤ {median}), p95 {_p95(times):.1f} s (≤ {p95}), n {len(times)}")
    kinds = [one for one in outcomes if one.kind_right is not None]
    named = [one for one in outcomes if one.culprit_right is not None]
    apart = [one for one in named if SCENARIOS[one.scenario].ranks]
    nobody = sum(one.culprit_right is None and one.word == "right" for one in stuck if SCENARIOS[one.scenario].ranks)
    lines.append(f"kind right: {_share(kinds, lambda one: bool(one.kind_right))}")
    lines.append(f"culprit right: {_share(named, lambda one: bool(one.culprit_right))}")
    lines.append(f"of four ranks: {_share(apart, lambda one: bool(one.culprit_right))} (≥ 95 %), nobody named in {nobody}")
    return lines


def _p95(times: Sequence[float]) -> float:
    """The smallest time that 95 % of them do not exceed."""
    return times[max(0, -(-95 * len(times) // 100) - 1)]


def _share(outcomes: Sequence[Outcome], counts: Callable[[Outcome], bool]) -> str:
    count = sum(map(counts, outcomes))
    return f"{count} of {len(outcomes)}" + (f", {100 * count / len(outcomes):.1f} %" if outcomes else "")
