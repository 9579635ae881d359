"""expect_probe over a real server: its four outcomes, and what each rests on."""

from __future__ import annotations

import shlex
import time

import pytest

from runbook.hosts.base import ProcessId
from runbook.model.sample import Blind
from runbook.steps.expect_probe import ExpectProbe, ProbeGoal
from runbook.steps.patch import Patch
from tests.support.context import LocalContext
from tests.support.patching import Box, make
from tests.support.waiting import until

PROBE = {"at": "Model.forward", "after": "hidden = batch.hidden", "show": {"hidden": "hidden", "n": "len(hidden)"}}


def patch(ctx: LocalContext, box: Box, **probe) -> None:
    body = {"for": "server", "file": str(box.model), "probes": [{**PROBE, **probe}]}
    assert ctx.at("taps").do(make(Patch, body)).verdict == "passed"


def serve(ctx: LocalContext, box: Box, *lines: str, step: str = "chat") -> None:
    """Send requests inside the window of a step, and wait until they are served."""
    log = ctx.launched("server").state.log
    time.sleep(2 * ctx.host.facts.clock_error_s)  # what came before must lie before the window, also by the host's clock
    before = served(log)
    with ctx.span(step):
        box.request(*lines)
        until(lambda: served(log) - before == len(lines), 10)
    time.sleep(2 * ctx.host.facts.clock_error_s)


def served(log: str) -> int:
    with open(log) as file:
        return file.read().count("served")


def ready(log: str) -> bool:
    with open(log) as file:
        return "ready" in file.read()


@pytest.fixture
def server(patch_ctx, box):
    """Start the server and wait until it has imported its model."""

    def start(shell: str = ""):
        launched = box.start(patch_ctx, shell=shell)
        until(lambda: ready(launched.state.log), 10)
        return launched

    return start


def expect(ctx: LocalContext, **body):
    return ctx.at("seen").do(make(ExpectProbe, {"probe": "taps", "since": "chat", "until": "chat", **body}))


def test_fired_gives_the_values_as_data(patch_ctx, box, server):
    patch(patch_ctx, box)
    launched = server()
    serve(patch_ctx, box, "forward 2", step="warmup")
    serve(patch_ctx, box, "forward 5", "forward 3")
    result = expect(patch_ctx)
    assert (result.verdict, result.fields["outcome"], result.diagnosis.rule) == ("passed", "fired", "probe_fired")
    assert [hit["n"] for hit in result.fields["hits"]] == [5, 3]
    assert result.fields["hits"][0]["hidden"] == [1] * 5 and result.fields["hits"][0]["pid"] == launched.state.pid
    assert result.fields["imports"][0]["sha"] == patch_ctx.patched("taps").record.sha256_after
    assert patch_ctx.findings == []


def test_not_reached_is_evidence_with_every_other_explanation_excluded(patch_ctx, box, server):
    patch(patch_ctx, box, after="", before="hidden = hidden[:3]")
    server()
    serve(patch_ctx, box, "forward 2")
    result = expect(patch_ctx, expect="not_reached")
    assert (result.verdict, result.fields["outcome"]) == ("passed", "not_reached"), result.reason
    assert len(result.fields["excluded"]) >= 8
    assert expect(patch_ctx).verdict == "failed"


def test_a_server_older_than_the_patch_is_not_armed(patch_ctx, box, server):
    server()
    time.sleep(3 * patch_ctx.host.facts.clock_error_s + 0.05)
    patch(patch_ctx, box)
    serve(patch_ctx, box, "forward 2")
    result = expect(patch_ctx)
    assert (result.verdict, result.fields["outcome"]) == ("invalid_experiment", "not_armed")
    assert "before the patch was written" in result.reason


@pytest.mark.slow
def test_another_copy_of_the_package_is_not_armed(patch_ctx, box, server, tmp_path):
    Box(tmp_path / "copy")
    patch(patch_ctx, box)
    server(f"PYTHONPATH={shlex.quote(str(tmp_path / 'copy'))} exec {shlex.join(box.argv()[:1])} -c {shlex.quote(runs_copy(box, tmp_path))}")
    serve(patch_ctx, box, "forward 2")
    result = expect(patch_ctx)
    assert (result.verdict, result.fields["outcome"]) == ("invalid_experiment", "not_armed")


def runs_copy(box: Box, tmp_path) -> str:
    script = str(box.folder / "server.py")
    return f"import sys; sys.path.remove(''); sys.argv = ['', {str(box.requests)!r}]; exec(open({script!r}).read())"


def test_a_bucket_that_was_used_up_is_unseen(patch_ctx, box, server):
    """Health checks with the same shapes took the hits; the silence of the request after them proves nothing."""
    patch(patch_ctx, box, hits="2 per 1h")
    server()
    serve(patch_ctx, box, *["forward 2"] * 5, step="health")
    serve(patch_ctx, box, "forward 2")
    result = expect(patch_ctx)
    assert (result.verdict, result.fields["outcome"], result.diagnosis.rule) == ("undecided", "unseen", "probe_unseen")
    assert "used up" in result.reason and result.diagnosis.next


@pytest.mark.slow
def test_a_swallowed_stderr_is_fired_with_a_finding(patch_ctx, box, server):
    patch(patch_ctx, box)
    server(f"exec {shlex.join(box.argv())} 2>/dev/null")
    serve(patch_ctx, box, "forward 2")
    assert expect(patch_ctx).fields["outcome"] == "fired"
    assert [code for code, _ in patch_ctx.findings] == ["not_in_log"]


@pytest.mark.slow
def test_a_side_file_that_is_gone_leaves_the_log(patch_ctx, box, server):
    patch(patch_ctx, box)
    server()
    serve(patch_ctx, box, "forward 2")
    patch_ctx.host.remove(patch_ctx.patched("taps").side_file)
    result = expect(patch_ctx)
    assert result.fields["outcome"] == "fired" and result.fields["hits"][0]["n"] == 2


@pytest.mark.slow
def test_an_importer_that_has_died_is_unseen_not_not_reached(patch_ctx, box, server):
    patch(patch_ctx, box, after="", before="hidden = hidden[:3]")
    launched = server()
    serve(patch_ctx, box, "forward 2")
    patch_ctx.host.kill([ProcessId(launched.state.pid, launched.state.start)], ["KILL 5s"])
    result = expect(patch_ctx, expect="not_reached")
    assert (result.verdict, result.fields["outcome"]) == ("undecided", "unseen")
    assert "is gone" in result.reason


@pytest.mark.slow
def test_a_hit_that_comes_later_is_waited_for(patch_ctx, box, server):
    patch(patch_ctx, box)
    server()
    with patch_ctx.span("chat"):
        pass
    goal = ProbeGoal(make(ExpectProbe, {"probe": "taps", "since": "chat"}), patch_ctx, patch_ctx.patched("taps"), patch_ctx.window("chat"))
    first = goal.look()
    assert goal.judge([first], first.t, final=False) is None
    box.request("forward 2")
    assert patch_ctx.watch(goal).verdict == "passed"


@pytest.mark.slow
def test_counts_and_ranks_are_part_of_the_expectation(patch_ctx, box, server):
    patch(patch_ctx, box)
    server()
    serve(patch_ctx, box, "forward 2", "forward 3")
    assert expect(patch_ctx, count={"min": 2, "max": 2}).verdict == "passed"
    assert "at most 1 hits" in expect(patch_ctx, count={"max": 1}).reason
    assert expect(patch_ctx, ranks="all").verdict == "passed"


@pytest.mark.slow
def test_armed_asks_only_whether_it_was_loaded(patch_ctx, box, server):
    patch(patch_ctx, box)
    server()
    with patch_ctx.span("chat"):
        pass
    assert expect(patch_ctx, expect="armed").verdict == "passed"


def test_a_patch_that_was_never_written_is_undecided(patch_ctx):
    with patch_ctx.span("chat"):
        pass
    assert expect(patch_ctx).verdict == "undecided"


@pytest.mark.slow
def test_a_blind_look_is_never_an_empty_one(patch_ctx, box, server):
    patch(patch_ctx, box)
    server()
    serve(patch_ctx, box, "forward 2")
    patched = patch_ctx.patched("taps")
    patch_ctx.host.remove(patched.side_file)
    patch_ctx.kept = {key: thing for key, thing in patch_ctx.kept.items() if thing is patched}
    goal = ProbeGoal(make(ExpectProbe, {"probe": "taps", "since": "chat"}), patch_ctx, patched, patch_ctx.window("chat", "chat"))
    goal.look()
    assert goal.outcome.outcome == "unseen" and isinstance(goal.view.log, Blind)
