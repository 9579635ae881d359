"""Tensors come to the host's disk whole and readable, and never at the server's cost."""

from __future__ import annotations

import json
import os
import resource

import pytest

from runbook.model.units import Rate
from runbook.probes.saving import saver
from runbook.probes.spec import Probe

SOURCE = "def f(x, y=None):\n    z = x\n    return z\n"


def test_what_is_no_tensor_is_not_saved_and_says_so(probed):
    made = probed(SOURCE, Probe(at="f", after="z = x", save={"x": "x", "w": "nothing"}))
    assert made.module.f([1]) == [1]
    told = {one["name"]: one["error"] for one in made.records.hits[0].saved}
    assert told["x"] == "not saved: a builtins.list, not a plain tensor" and told["w"].startswith("NameError")
    assert [path.name for path in made.path.parent.glob("*.safetensors*")] == []


def test_a_hit_with_many_long_names_is_still_one_line(probed):
    made = probed(SOURCE, Probe(at="f", after="z = x", save={"n" * 300 + str(n): "x" for n in range(16)}))
    made.module.f(1)
    assert len(made.records.hits) == 1 and max(map(len, made.side.read_bytes().splitlines())) < 4096


def test_too_many_tensors_are_told_before_anything_runs():
    assert [key for key, _, _ in Probe(at="f", where="entry", save=[f"x{n}" for n in range(17)]).problems()] == ["save"]


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def library():
    return pytest.importorskip("safetensors.torch")


DTYPES = "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 int64 int32 int16 int8 uint8 bool complex64".split()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_comes_back_bit_by_bit(torch, library, probed, dtype):
    x = (torch.arange(24).reshape(4, 6) - 3).to(getattr(torch, dtype)).t()[1:]
    made = probed(SOURCE, Probe(at="f", after="z = x", save={"turned": "x", "one": "x[0, 0]", "none": "x[:0]"}))
    made.module.f(x)
    saved = {one["name"]: one for one in made.records.hits[0].saved}
    back = library.load_file(saved["turned"]["file"])
    assert set(back) == {"turned", "one", "none"}
    assert back["turned"].dtype == x.dtype and torch.equal(back["turned"].view(torch.uint8), x.contiguous().view(torch.uint8))
    assert back["one"].shape == () and back["none"].shape == (0, 4)
    assert (saved["turned"]["shape"], saved["turned"]["dtype"], saved["turned"]["bytes"]) == ([5, 4], dtype, 20 * x.element_size())


@pytest.mark.slow
def test_the_file_says_where_it_is_from(torch, library, probed):
    made = probed(SOURCE, Probe(at="f", where="exit", save=["result"]))
    made.module.f(torch.ones(2, requires_grad=True))
    path = made.records.hits[0].saved[0]["file"]
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    assert header["__metadata__"]["runbook"] == "run1/taps/1" and header["__metadata__"]["pid"] == str(os.getpid())
    assert os.stat(path).st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_each_hit_has_a_file_of_its_own_and_an_empty_bucket_none(torch, probed):
    made = probed(SOURCE, Probe(at="f", after="z = x", save=["x"], hits=Rate("3 per 1h")))
    for n in range(6):
        made.module.f(torch.full((2,), n))
    assert len(made.records.hits) == 3 and len(list(made.path.parent.glob("*.safetensors"))) == 3


@pytest.mark.slow
def test_what_has_no_values_or_no_place_is_left_out_and_the_rest_saved(torch, library, probed):
    class Sharded(torch.Tensor):
        """As a distributed tensor."""

    made = probed(
        SOURCE, Probe(at="f", after="z = x", save={"good": "y", "meta": "x[0]", "sharded": "x[1]", "sparse": "x[2]", "c": "x[3]"})
    )
    odd = torch.ones(2, device="meta"), torch.ones(2).as_subclass(Sharded), torch.eye(2).to_sparse(), torch.ones(2, dtype=torch.complex128)
    made.module.f(odd, torch.ones(3))
    saved = {one["name"]: one for one in made.records.hits[0].saved}
    assert [name for name, one in saved.items() if "error" in one] == ["meta", "sharded", "sparse", "c"]
    assert list(library.load_file(saved["good"]["file"])) == ["good"]


@pytest.mark.slow
def test_sizes_are_capped_for_one_tensor_and_in_all(torch, tmp_path):
    import sys

    side = tmp_path / "s.jsonl"
    side.touch()
    save = saver(str(side), sys.modules, most=100, most_in_all=250)
    facts = {"pid": "1"}
    assert "a tensor" in save(1, {"x": torch.ones(26)}, facts)["x"]["error"]
    told = [save(n, {"x": torch.ones(25)}, facts)["x"] for n in range(2, 5)]
    assert ["file" in one for one in told] == [True, True, False] and "of 0.0 MiB at most" in told[2]["error"]


BROKEN = ["the run is over", "the disk is full", "the folder takes no file"]


@pytest.mark.slow
@pytest.mark.parametrize("how", BROKEN)
def test_the_server_goes_on_when(torch, probed, how):
    made = probed(SOURCE, Probe(at="f", after="z = x", save={"x": "x"}))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    x = torch.ones(1 << 20)
    try:
        if how == "the run is over":
            made.side.rename(made.side.with_suffix(".gone"))
        elif how == "the disk is full":  # the kernel answers as for a full disk once a file would grow beyond this
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
        else:
            (made.path.parent / f"{made.side.stem}.{os.getpid()}.1.safetensors.part").mkdir()
        assert made.module.f(x) is x
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    if how != "the run is over":
        assert made.records.hits[0].saved[0]["error"].startswith("not saved: ")
    assert [path for path in made.path.parent.glob("*.safetensors*") if path.is_file()] == []


@pytest.mark.slow
def test_nothing_is_saved_while_a_graph_is_traced(torch, probed):
    from torch.fx.experimental.proxy_tensor import make_fx

    made = probed(SOURCE, Probe(at="f", after="z = x", save={"x": "x"}))
    make_fx(lambda x: made.module.f(x))(torch.ones(3))
    assert made.records.hits[0].saved[0]["error"] == "not saved: torch tracing"
