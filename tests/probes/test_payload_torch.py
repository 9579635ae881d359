"""Probes on real tensors: statistics where they may be read, shapes only where reading would change what torch does."""

from __future__ import annotations

import math
import types

import pytest

from runbook.probes import payload
from runbook.probes.describing import describer
from runbook.probes.reading import read
from runbook.probes.spec import Probe

pytestmark = pytest.mark.slow
"""Importing torch and its compiler takes seconds."""


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def probes(tmp_path):
    side = tmp_path / "side.jsonl"
    side.touch()
    probe = {"hits": 20, "per": 10.0, "plain": ["x"], "when_plain": True}
    config = {"marker": "m", "side": str(side), "total": 2000, "probes": [probe], "home": globals(), "describer": describer}
    made = payload.arm(config)
    made.records = lambda: read(side.read_bytes(), "m")
    return made


def test_statistics_leave_nan_and_inf_out_and_count_them(torch, probes):
    x = torch.tensor([[1.0, 2.0], [float("nan"), float("inf")], [3.0, 6.0]], dtype=torch.bfloat16)
    probes.hit(0, {"x": lambda: x})
    seen = probes.records().hits[0].shown["x"]
    assert (seen["shape"], seen["dtype"], seen["device"], seen["nan"], seen["inf"]) == ([3, 2], "bfloat16", "cpu", 1, 1)
    assert (seen["mean"], seen["min"], seen["max"]) == (3.0, 1.0, 6.0)
    assert seen["std"] == pytest.approx(math.sqrt(14 / 3))


@pytest.mark.parametrize("dtype", ["float64", "float16", "int64", "bool", "uint8", "complex64"])
def test_every_kind_of_number_has_statistics(torch, probes, dtype):
    x = torch.ones(4, dtype=getattr(torch, dtype))
    probes.hit(0, {"x": lambda: x})
    assert probes.records().hits[0].shown["x"]["mean"] == 1.0


def test_a_large_tensor_is_sampled_and_says_so(torch, probes):
    x = torch.ones(64, 1 << 18).t()
    probes.hit(0, {"x": lambda: x})
    seen = probes.records().hits[0].shown["x"]
    assert seen["shape"] == [1 << 18, 64] and seen["read"] == "every 4. along axis 0" and seen["mean"] == 1.0


def test_without_values_only_the_shape_is_told(torch, probes):
    class Sharded(torch.Tensor):
        """As a distributed tensor: reading it may start a collective that the other ranks do not join."""

    meta, empty = torch.ones(2, device="meta"), torch.ones(0, 3)
    sharded = torch.ones(2).as_subclass(Sharded)
    probes.hit(0, {"meta": lambda: meta, "empty": lambda: empty, "sharded": lambda: sharded})
    shown = probes.records().hits[0].shown
    assert all("mean" not in seen and "not read" in seen["values"] for seen in shown.values())


def test_a_probe_leaves_autograd_alone(torch, probes):
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    probes.hit(0, {"x": lambda: y})
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0, 2.0]


def test_a_compiled_graph_is_whole_and_its_silence_is_announced(torch, probes):
    def step(x):
        y = x * 2
        _ = probes(0) and probes.hit(0, {"x": lambda: y})
        return y + 1

    graphs = []

    def backend(graph, inputs):
        graphs.append(str(graph.code))
        return graph.forward

    compiled = torch.compile(step, fullgraph=True, backend=backend)
    assert compiled(torch.ones(3)).tolist() == [3.0, 3.0, 3.0]
    assert len(graphs) == 1 and "hit" not in graphs[0]
    assert [(one.kind, one.how) for one in probes.records().silences] == [("graph", "torch.compile")]
    assert probes.records().hits == ()


def test_tracing_reads_shapes_only_and_leaves_nothing_in_the_graph(torch, probes):
    from torch.fx.experimental.proxy_tensor import make_fx

    def step(x):
        _ = probes(0) and probes.hit(0, {"x": lambda: x, "sum": lambda: x.sum().item()})
        return x + 1

    assert "sum" not in make_fx(step)(torch.ones(5)).code
    hit = probes.records().hits[0]
    assert hit.mode == "torch tracing" and hit.shown["x"]["shape"] == [5] and "mean" not in hit.shown["x"]
    assert "not evaluated" in hit.shown["sum"]["error"]


MODEL = """
import torch
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(3, 3)
    def forward(self, x):
        y = self.up(x)
        if x.shape[0] > 100:
            return y
        return double(y) + 1
def double(y):
    return y * 2
def breaks(x):
    y = x * 2
    torch._dynamo.graph_break()
    return y + 1
"""


def test_an_exit_probe_leaves_a_compiled_graph_whole(torch, probed):
    made = probed(MODEL, *(Probe(at=at, where="exit", alive="M") for at in ("M.forward", "double")), Probe(at="M.forward", where="entry"))
    plain = types.ModuleType("plain")
    exec(MODEL, vars(plain))
    graphs = {"plain": [], "watched": []}
    for name, module in (("plain", plain), ("watched", made.module)):
        model, x = module.M(), torch.ones(2, 3)

        def backend(graph, inputs, to=graphs[name]):
            to.append([str(node.target).split(" at ")[0] for node in graph.graph.nodes if node.op != "placeholder"])
            return graph.forward

        assert torch.equal(torch.compile(model, fullgraph=True, backend=backend)(x), model.up(x) * 2 + 1)
    assert graphs["plain"] == graphs["watched"] and len(graphs["watched"]) == 1
    assert {(one.kind, one.probe) for one in made.records.silences} == {("graph", 0), ("graph", 1), ("graph", 2)}
    assert made.records.hits == () and [one.made.split(".")[-1] for one in made.records.built] == ["M"]


def test_a_function_whose_graph_breaks_runs_uncompiled_and_is_seen(torch, probed):
    made = probed(MODEL, Probe(at="breaks", where="exit"))
    compiled = torch.compile(made.module.breaks, backend="eager")
    assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]
    hits = made.records.hits
    assert [(hit.exit, hit.shown["result"]["mean"]) for hit in hits] == [("return", 3.0)]


def test_a_compiled_function_and_a_custom_operator_still_lead_to_the_patched_code(torch, probed):
    source = (
        "import torch\n@torch.compile(backend='eager')\ndef f(x): return x\n"
        "@torch.library.custom_op('probed::g', mutates_args=())\ndef g(x: torch.Tensor) -> torch.Tensor: return x + 1\n"
    )
    made = probed(source, *(Probe(at=at, where="entry") for at in "fg"))
    assert made.records.loaded[0].replaced == {}
    assert made.module.g(torch.ones(1)).item() == 2.0 and [hit.probe for hit in made.records.hits] == [1]
