"""The founding story on SGLang with its own kernels: the shipped playbook and a file of variables, with CUDA graphs and without.

With graphs a run may only say what was seen: that the prompt ran eagerly with its widths, or that a graph replayed it. It never says
that nothing reached the place.
"""

from __future__ import annotations

from runbook.probes.explanations import REPLAYED
from tests.e2e.cli import STORY, Outcome
from tests.real.gpu.playing import ended, play
from tests.real.test_sglang_story import BEST, claims, value


def was_replayed(outcome: Outcome) -> bool:
    """Whether the run is undecided because of a graph."""
    return outcome.json["verdict"] == "undecided" and any(REPLAYED in why for why in ended(outcome, "seen").result["left"])


def test_fused_layers_pass_without_graphs(card, port):
    outcome = play(card, port, "passed", STORY, graphs=False)
    assert (outcome.code, outcome.json["verdict"]) == (0, "passed"), outcome.err
    assert float(value(claims(outcome)[1], "accept_length")) > BEST - 1


def test_the_aux_states_off_fails_by_the_width_without_graphs(card, port):
    outcome = play(card, port, "failed", STORY, graphs=False, draft="draft_no_aux")
    assert (outcome.code, outcome.json["verdict"]) == (1, "failed"), outcome.err
    width = claims(outcome)[0]
    assert width["outcome"] == "false" and value(width, "h.hidden.shape[-1]") == value(width, "h.embeds.shape[-1]")


def test_fused_layers_under_graphs_pass_or_are_not_seen(card, port):
    outcome = play(card, port, "graphs_passed", STORY, graphs=True)
    assert outcome.json["verdict"] == "passed" or was_replayed(outcome), outcome.err


def test_the_aux_states_off_under_graphs_fail_or_are_not_seen(card, port):
    outcome = play(card, port, "graphs_failed", STORY, graphs=True, draft="draft_no_aux")
    assert outcome.json["verdict"] == "failed" or was_replayed(outcome), outcome.err
