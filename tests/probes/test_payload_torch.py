"""Probes on real tensors: statistics where they may be read, shapes only where reading would change what torch does."""

from __future__ import annotations

import math

import pytest

from runbook.probes import payload
from runbook.probes.reading import read

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
    made = payload.arm({"marker": "m", "side": str(side), "total": 2000, "probes": [probe], "home": globals()})
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
