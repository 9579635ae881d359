"""assert: claims about what was seen, each with the value of its parts."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Union

import msgspec
from msgspec import Meta

from runbook.model.fields import Expression
from runbook.steps.base import Step, StepContext, StepResult

SHORT = 40
"""Characters of a value that a one-line reason may show; longer ones stand in the table of parts."""
LONGEST = 200
MOST_SAID = 2
MOST_PARTS = 6


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One expression that must be true, and why that matters."""

    that: Annotated[Expression, Meta(description="a bare expression that must give true")]
    because: Annotated[str, Meta(description="why it must hold; printed when it does not")] = ""


class Assert(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Check expressions over what the run has seen.

    All are evaluated. A false one fails and shows the value of each of its parts, as does a key that is not in data which was seen.
    An operand that nobody could see, or what cannot be computed, makes it undecided, not false.
    """

    TYPE: ClassVar[str] = "assert"
    SHORTHAND: ClassVar[str | None] = "that"
    NEEDS_HOST: ClassVar[bool] = False
    RESULTS: ClassVar[dict[str, str]] = {"claims": "that, because, outcome (true, false, unknown), parts and note of each"}
    EXAMPLE: ClassVar[str] = "assert:\n  - that: steps.chat.status == 'passed'\n    because: the server must answer"

    that: Annotated[
        Union[Expression, Claim, list[Union[Expression, Claim]]], Meta(description="an expression, `{that, because}`, or a list of them")
    ]

    def claims(self) -> list[Claim]:
        """All claims in one form."""
        items = self.that if isinstance(self.that, list) else [self.that]
        return [item if isinstance(item, Claim) else Claim(that=item) for item in items]

    def plan(self) -> list[str]:
        """One line a claim."""
        return [f"check that {' '.join(claim.that.split())}" for claim in self.claims()]

    def run(self, ctx: StepContext) -> StepResult:
        """Evaluate every claim; the first false one gives the reason."""
        rows = [_judge(ctx, claim) for claim in self.claims()]
        bad = [row for row in rows if row["outcome"] == "false"]
        open_ = [row for row in rows if row["outcome"] == "unknown"]
        fields = {"claims": rows}
        if bad:
            return StepResult(verdict="failed", reason=_sentence(bad), fields=fields)
        if open_ and ctx.check_mode:
            reason = f"would check {len(rows)} claim{'' if len(rows) == 1 else 's'}; {len(open_)} cannot be known before the run"
            return StepResult(verdict="passed", reason=reason, fields=fields)
        if open_:
            return StepResult(verdict="undecided", reason=_sentence(open_), fields=fields)
        return StepResult(verdict="passed", reason=f"{len(rows)} of {len(rows)} hold", fields=fields)


def _judge(ctx: StepContext, claim: Claim) -> dict[str, Any]:
    answer = ctx.evaluate(claim.that)
    row: dict[str, Any] = {"that": " ".join(claim.that.split()), "because": claim.because, "note": ""}
    row["parts"] = [{"source": part.source, "value": _cut(part.value_text)} for part in answer.parts]
    if answer.problem is not None:
        return {**row, "outcome": "false" if answer.missing else "unknown", "note": answer.problem}
    if answer.unknown is not None:
        return {**row, "outcome": "unknown", "note": answer.unknown.reason}
    if not isinstance(answer.value, bool):
        return {**row, "outcome": "false", "note": f"gives {answer.value!r}, not true or false: compare it with something"}
    return {**row, "outcome": "true" if answer.value else "false"}


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _sentence(rows: list[dict[str, Any]]) -> str:
    more = f" (and {len(rows) - MOST_SAID} more)" if len(rows) > MOST_SAID else ""
    return "; ".join(map(_claim, rows[:MOST_SAID])) + more


def _claim(row: dict[str, Any]) -> str:
    said = [part for part in row["parts"] if len(part["value"]) <= SHORT] or row["parts"]
    why = row["note"] or ", ".join(f"{part['source']} = {part['value']}" for part in said[:MOST_PARTS])
    word = "does not hold" if row["outcome"] == "false" else "cannot be decided"
    return f"`{row['that']}` {word}: {why}"
