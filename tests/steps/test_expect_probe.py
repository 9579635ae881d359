"""expect_probe over a real server: its four outcomes, and what each rests on."""

from __future__ import annotations

import json
import py_compile
import shlex
import time
from pathlib import Path

import msgspec
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_not_reached_is_evidence_with_every_other_explanation_excluded(patch_ctx, box, server):
    patch(patch_ctx, box, after="", before="hidden = hidden[:3]")
    server()
    serve(patch_ctx, box, "forward 2")
    result = expect(patch_ctx, expect="not_reached")
    assert (result.verdict, result.fields["outcome"]) == ("passed", "not_reached"), result.reason
    assert len(result.fields["excluded"]) >= 8
    assert expect(patch_ctx).verdict == "failed"


@pytest.mark.slow
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


@pytest.mark.slow
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


REGISTRY = """\
import importlib, sys, time
try:
    model = importlib.import_module("engine.model").Model()
except ImportError as error:
    print("Ignore import error when loading engine.model:", error, flush=True)
    model = None
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_an_import_error_that_the_engine_swallowed_is_unseen_and_quotes_the_log(patch_ctx, box, server):
    """As SGLang's registry of models: it logs a line and serves without the module."""
    box.model.write_text(box.model.read_text() + "\nimport no_such_kernel\n")
    (box.folder / "server.py").write_text(REGISTRY)
    patch(patch_ctx, box)
    server()
    with patch_ctx.span("chat"):
        pass
    result = expect(patch_ctx)
    assert (result.verdict, result.fields["outcome"]) == ("undecided", "unseen")
    assert "has not reported the end" in result.reason and "Ignore import error when loading engine.model" in result.reason
    assert expect(patch_ctx, expect="armed", wait="100ms").verdict == "undecided"


@pytest.mark.slow
def test_a_class_that_was_never_built_explains_the_silence(patch_ctx, box, server):
    source = box.model.read_text().replace("    def forward", "    def __init__(self):\n        self.n = 0\n\n    def forward")
    box.model.write_text(source + "\n\nclass Other(Model):\n    def forward(self, batch):\n        return batch.hidden\n")
    (box.folder / "server.py").write_text((box.folder / "server.py").read_text().replace("import Model", "import Other as Model"))
    patch(patch_ctx, box, alive="Model")
    server()
    serve(patch_ctx, box, "forward 2")
    result = expect(patch_ctx)
    assert result.fields["outcome"] == "unseen" and "Other.forward" in result.reason
    assert result.fields["ranks"][0]["outcome"] == "unseen"


@pytest.mark.slow
def test_each_process_has_its_own_outcome(patch_ctx, box, server):
    patch(patch_ctx, box)
    launched = server()
    serve(patch_ctx, box, "forward 2")
    (row,) = expect(patch_ctx).fields["ranks"]
    assert (row["pid"], row["outcome"], row["hits"]) == (launched.state.pid, "fired", 1)


@pytest.mark.slow
def test_bytecode_that_python_never_compares_with_the_source_is_not_armed(patch_ctx, box, server):
    """Such as a distribution's package, compiled with `--invalidation-mode unchecked-hash`; made between the patch and the launch."""
    original = box.model.read_text()
    patch(patch_ctx, box)
    patched = box.model.read_bytes()
    box.model.write_text(original)
    py_compile.compile(str(box.model), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    box.model.write_bytes(patched)
    server()
    serve(patch_ctx, box, "forward 2")
    result = expect(patch_ctx)
    assert (result.verdict, result.fields["outcome"]) == ("invalid_experiment", "not_armed")
    assert "without looking at the source" in result.reason


@pytest.mark.slow
def test_a_compiled_patch_without_a_report_is_unseen(patch_ctx, box, server):
    """Somebody imported it and could not write: then a missing report proves nothing. No launch is named, as for an attached server."""
    server()
    patch(patch_ctx, box)
    py_compile.compile(str(box.model))
    attached = msgspec.structs.replace(patch_ctx.patched("taps"), launch=None)
    with patch_ctx.span("chat"):
        pass
    goal = ProbeGoal(make(ExpectProbe, {"probe": "taps", "since": "chat"}), patch_ctx, attached, patch_ctx.window("chat"))
    goal.look()
    assert goal.outcome.outcome == "unseen" and "somebody compiled the patched file" in goal.outcome.reason


CAPTURING = """\
import sys, types

class cuda:
    capturing = False
    is_initialized = staticmethod(lambda: True)
    is_current_stream_capturing = staticmethod(lambda: cuda.capturing)

sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
"""
CAPTURES = """\
        elif line.startswith("capture"):
            cuda.capturing = True
            model.forward(Batch([1]))
            cuda.capturing = False
            print("served", line.strip(), flush=True)
        elif line.startswith("replay"):
            print("served", line.strip(), flush=True)
"""


@pytest.mark.slow
def test_what_a_graph_replays_is_unseen_whatever_was_expected(patch_ctx, box, server):
    """Its Python runs while it is captured, and no more. The torch here is a stand-in that says when it captures."""
    script = box.folder / "server.py"
    script.write_text(
        CAPTURING + script.read_text().replace('        elif line.startswith("stop")', CAPTURES + '        elif line.startswith("stop")')
    )
    patch(patch_ctx, box)
    server()
    serve(patch_ctx, box, "forward 1", "capture", step="start")
    serve(patch_ctx, box, "replay", "replay")
    for word in ("fired", "not_reached"):
        result = expect(patch_ctx, expect=word)
        assert (result.verdict, result.fields["outcome"]) == ("undecided", "unseen"), result.reason
        assert "CUDA graph capture; run it eagerly, as with --disable-cuda-graph" in result.reason
    serve(patch_ctx, box, "forward 3", "replay", step="eager")
    window = {"since": "eager", "until": "eager"}
    result = expect(patch_ctx, **window)
    assert (result.verdict, [hit["n"] for hit in result.fields["hits"]]) == ("passed", [3])
    assert [code for code, _ in patch_ctx.findings] == ["hits_missing"] and "CUDA graph capture" in result.fields["missing"][0]
    for count in ({"min": 2}, {"max": 1}):
        assert expect(patch_ctx, **window, count=count).verdict == "undecided", "what was replayed was not counted"
    assert expect(patch_ctx, **window, count={"max": 0}).verdict == "failed"


TENSORS = """\
import torch


class Model:
    def forward(self, batch):
        hidden = torch.tensor(batch.hidden, dtype=torch.bfloat16)
        return hidden
"""


@pytest.mark.slow
def test_saved_tensors_come_into_the_evidence_and_are_listed(patch_ctx, box, server):
    box.model.write_text(TENSORS)
    body = {"at": "Model.forward", "where": "exit", "save": {"out": "result", "n": "len(batch.hidden)"}}
    assert patch_ctx.at("taps").do(make(Patch, {"for": "server", "file": str(box.model), "probes": [body]})).verdict == "passed"
    server()
    serve(patch_ctx, box, "forward 3", "forward 5")
    result = expect(patch_ctx)
    tensors = [row for row in result.fields["tensors"] if row["name"] == "out"]
    assert [(row["shape"], row["dtype"], row["bytes"]) for row in tensors] == [([3], "bfloat16", 6), ([5], "bfloat16", 10)]
    files = [Path(patch_ctx.run.dir, row["file"]).read_bytes() for row in tensors]
    header = json.loads(files[0][8 : 8 + int.from_bytes(files[0][:8], "little")])
    assert header["out"] == {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}
    assert {code for code, _ in patch_ctx.findings} == {"tensor_missing"}  # `n` is a number
    short = expect(patch_ctx, fetch="100B")
    assert all(row["file"] is None and "`fetch:`" in row["note"] for row in short.fields["tensors"] if row["name"] == "out")
