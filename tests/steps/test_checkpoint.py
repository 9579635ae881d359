"""checkpoint: what the files hold against what is expected; damage is failed, not seen is undecided."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.lang.expressions import Unknown
from runbook.steps.checkpoint import Against, Checkpoint
from runbook.steps.draft_config import fusion, fusion_findings
from runbook.steps.expectations import Expect, differences
from runbook.steps.tensor_names import Entry, near, renames, unmatched
from tests.support.context import LocalContext
from tests.support.tensor_files import save, tensor

ROOT = Path(__file__).parents[2]
WEIGHTS = ROOT / "runbook" / "lab" / "weights"
DRAFT = WEIGHTS / "tiny-eagle3"


@pytest.fixture
def ctx(patch_host, tmp_path):
    return LocalContext(patch_host, tmp_path / "run", box_s=60)


def entries(**shapes):
    return {key.replace("__", "."): Entry("float16", tuple(shape)) for key, shape in shapes.items()}


# one checkpoint ------------------------------------------------------------------------------------------------------


def test_the_labs_draft_is_told_as_it_is(ctx):
    result = ctx.do(Checkpoint(path=str(DRAFT), tensors=["*.norm.weight"]))
    fields = result.fields
    assert (result.verdict, result.diagnosis.rule) == ("passed", "checkpoint_whole")
    assert fields["shapes"]["model.fc.weight"] == [64, 192] and fields["dtypes"]["model.fc.weight"] == "float16"
    assert set(fields["keys"]) == set(fields["shapes"]) and fields["count"] == len(fields["keys"])
    assert fields["bytes"] == sum(path.stat().st_size for path in DRAFT.glob("*.safetensors")) - header_bytes(DRAFT)
    assert fields["stats"]["model.norm.weight"]["read"] == 64 and fields["stats"]["model.norm.weight"]["std"] > 0
    assert fields["config"]["architectures"] == ["LlamaForCausalLMEagle3"]
    assert (fields["fusion"]["taps"], fields["fusion"]["fc_taps"]) == (3, 3)
    listing = json.loads((Path(ctx.run.dir) / fields["listing"]).read_text())
    assert listing["model.fc.weight"] == {"dtype": "float16", "shape": [64, 192]}
    assert set(fields) | {"unmatched"} == set(Checkpoint.RESULTS)


def test_a_tensor_without_statistics_is_said(ctx):
    result = ctx.do(Checkpoint(path=str(DRAFT), tensors=["fc.weight"]))
    assert result.fields["stats"] == {} and ("no_statistics", "`fc.weight`: no key matches") in ctx.findings


def header_bytes(folder):
    return sum(8 + int.from_bytes(path.read_bytes()[:8], "little") for path in folder.glob("*.safetensors"))


def test_an_expectation_that_does_not_hold_names_the_first_differences(ctx):
    expect = Expect(
        keys=["midlayer.self_attn.qkv_proj.weight", "model.norm.weight"],
        absent=["*midlayer*"],
        shapes={"*fc.weight": [64, 64], "*norm.weight": [None]},
        dtypes={"model.fc.weight": "torch.bfloat16"},
        prefix="model.",
    )
    result = ctx.do(Checkpoint(path=str(DRAFT), expect=expect))
    assert (result.verdict, result.diagnosis.rule) == ("failed", "checkpoint_differs")
    for words in (
        "no key matches `midlayer.self_attn.qkv_proj.weight`; there is `model.midlayer.self_attn.qkv_proj.weight`",
        "must be absent",
        "`model.fc.weight` has the shape [64, 192], expected [64, 64]",
        "`model.fc.weight` is float16, expected bfloat16",
    ):
        assert words in result.reason, result.reason


def test_expectations_that_hold_pass(ctx):
    expect = Expect(keys=["model.midlayer.*"], absent=["layers.*"], shapes={"model.fc.weight": [64, 192]}, dtypes={"*.weight": "F16"})
    assert ctx.do(Checkpoint(path=str(DRAFT), expect=expect)).verdict == "passed"


def test_a_cut_shard_is_failed_and_named(ctx, tmp_path):
    for n in (1, 2):
        save(tmp_path / "m" / f"model-0000{n}-of-00002.safetensors", {f"layers.{n}.w": tensor([64])})
    shard = tmp_path / "m" / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-7])
    result = ctx.do(Checkpoint(path=str(tmp_path / "m")))
    assert (result.verdict, result.diagnosis.rule) == ("failed", "checkpoint_damaged")
    assert shard.name in result.reason and "`layers.2.w` is cut" in result.reason


def test_what_cannot_be_read_is_undecided_and_its_keys_are_not_called_missing(ctx, tmp_path):
    path = ROOT / "tests" / "data" / "checkpoints" / "module.pt"
    result = ctx.do(Checkpoint(path=str(path), expect=Expect(keys=["weight"])))
    assert (result.verdict, result.diagnosis.rule) == ("undecided", "checkpoint_blind")
    assert "torch.nn.modules.linear.Linear" in result.reason
    assert ctx.do(Checkpoint(path=str(tmp_path / "none"))).verdict == "failed"


def test_a_wrong_key_is_failed_even_beside_a_file_that_cannot_be_read(ctx, tmp_path):
    save(tmp_path / "a.safetensors", {"w": tensor([1])})
    (tmp_path / "b.safetensors").write_bytes((ROOT / "tests" / "data" / "checkpoints" / "module.pt").read_bytes())
    result = ctx.do(Checkpoint(path=str(tmp_path), expect=Expect(absent=["w"], keys=["v"])))
    assert result.verdict == "failed" and "`v`" not in result.reason and result.diagnosis.blind


def test_a_token_map_is_a_finding_with_both_readings(ctx, tmp_path):
    kept = [0, 1, 2, 7, 9, 40, 41, 99]
    save(tmp_path / "model.safetensors", {"d2t": tensor([8], [id - at for at, id in enumerate(kept)], "int64")})
    (tmp_path / "config.json").write_text('{"vocab_size": 100, "architectures": ["X"]}')
    result = ctx.do(Checkpoint(path=str(tmp_path)))
    assert result.fields["maps"][0]["reading"] == "offsets"
    (text,) = [text for code, text in ctx.findings if code == "token_map"]
    assert (
        "looks like offsets" in text and "ids 0 to 99" in text and "as absolute ids: ids 0 to 92, within the vocabulary, some twice" in text
    )


def test_more_keys_than_a_journal_should_hold_are_in_the_listing(ctx, tmp_path, monkeypatch):
    monkeypatch.setattr("runbook.steps.checkpoint.MOST_KEYS", 2)
    save(tmp_path / "model.safetensors", {f"w{n}": tensor([1]) for n in range(3)})
    fields = ctx.do(Checkpoint(path=str(tmp_path), expect=Expect(keys=["w2"]))).fields
    assert isinstance(fields["keys"], Unknown) and fields["listing"] in fields["keys"].reason and fields["count"] == 3


# two checkpoints -----------------------------------------------------------------------------------------------------

TRAINED = {
    "fc.weight": tensor([4, 12]),
    "layers.0.self_attn.q_proj.weight": tensor([4, 8]),
    "layers.0.input_layernorm.weight": tensor([4]),
    "layers.0.hidden_norm.weight": tensor([4]),
    "norm.weight": tensor([4]),
}


def test_dropped_weights_of_a_renamed_layer_are_paired(ctx, tmp_path):
    """The founding case: the trainer saves `layers.0.*`, the engine loads `midlayer.*` and drops the rest without a word."""
    save(tmp_path / "a" / "model.safetensors", TRAINED)
    save(tmp_path / "b" / "model.safetensors", {key.replace("layers.0", "midlayer"): value for key, value in TRAINED.items()})
    result = ctx.do(Checkpoint(path=str(tmp_path / "a"), against=Against(path=str(tmp_path / "b"))))
    assert result.verdict == "passed" and result.fields["unmatched"]["count"] == 6
    assert result.fields["unmatched"]["renames"] == [{"here": "layers.0.*", "there": "midlayer.*", "pairs": 3}]
    assert any(code == "unmatched_keys" and "`layers.0.*` ↔ `midlayer.*` would pair 3" in text for code, text in ctx.findings)


def test_equal_checkpoints_have_nothing_unmatched(ctx):
    result = ctx.do(Checkpoint(path=str(DRAFT), against=Against(path=str(DRAFT))))
    assert result.fields["unmatched"]["count"] == 0 and "same keys and shapes" in result.reason


def test_a_broken_other_side_leaves_it_undecided(ctx, tmp_path):
    (tmp_path / "b.safetensors").write_bytes(b"\0" * 100)
    result = ctx.do(Checkpoint(path=str(DRAFT), against=Against(path=str(tmp_path / "b.safetensors"))))
    assert result.verdict == "undecided" and "not whole" in result.reason and isinstance(result.fields["unmatched"], Unknown)


# what a class expects ------------------------------------------------------------------------------------------------

MODEL = """
raise_if_a_gpu_is_visible = __import__("os").environ["CUDA_VISIBLE_DEVICES"] and 1 / 0
class Wrong: pass
class Draft:
    def __init__(self, config):
        assert config["hidden_size"] == config.hidden_size == config.eagle_config.width
        self.size = config.hidden_size
    def state_dict(self):
        return {"fc.weight": Value([self.size, 12]), "midlayer.norm.weight": Value([self.size])}
class Value:
    dtype = "torch.float32"
    def __init__(self, shape): self.shape = shape
class Loud:
    def __init__(self, config): print("noise"); raise RuntimeError("needs a process group")
"""
TORCH = """
import contextlib
device = lambda name: contextlib.nullcontext() if name == "meta" else 1 / 0
"""


@pytest.fixture
def module(ctx, tmp_path):
    """A launch whose interpreter sees a small `torch` and a module of model classes."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "torch.py").write_text(TORCH)
    (tmp_path / "code" / "drafts.py").write_text(MODEL)
    env = {"PYTHONPATH": str(tmp_path / "code"), "CUDA_VISIBLE_DEVICES": "0"}
    ctx.bodies["server"] = {"command": [sys.executable, "-m", "x"], "env": env}
    save(tmp_path / "w" / "model.safetensors", {"fc.weight": tensor([4, 12]), "layers.0.norm.weight": tensor([4])})
    (tmp_path / "w" / "config.json").write_text('{"hidden_size": 4, "eagle_config": {"width": 4}}')
    return lambda name: ctx.do(Checkpoint(path=str(tmp_path / "w"), against=Against(module="drafts", class_=name)))


def test_the_parameters_of_a_class_are_the_other_side(module):
    result = module("Draft")
    assert result.verdict == "passed", result.reason
    assert result.fields["unmatched"]["only_here"] == ["layers.0.norm.weight"]
    assert result.fields["unmatched"]["renames"] == [{"here": "layers.0.norm.weight", "there": "midlayer.norm.weight", "pairs": 1}]


@pytest.mark.parametrize(("name", "words"), [("Loud", "needs a process group"), ("Nope", "has no `Nope`"), ("Wrong", "TypeError")])
def test_a_class_that_cannot_be_built_leaves_it_undecided_and_says_why(module, name, words):
    result = module(name)
    assert result.verdict == "undecided" and words in result.reason and "meta device" in result.reason


def test_without_a_launch_nobody_knows_which_interpreter(ctx):
    result = ctx.do(Checkpoint(path=str(DRAFT), against=Against(module="m", class_="C")))
    assert result.verdict == "undecided" and "`for:`" in result.reason


@pytest.mark.slow
def test_the_labs_draft_class_is_built_on_torch_itself(ctx):
    env = {"PYTHONPATH": str(ROOT / "runbook" / "lab" / "engine")}
    ctx.bodies["server"] = {"command": [sys.executable, "-m", "lab_engine.launch_server"], "env": env}
    against = Against(module="lab_engine.models.llama_eagle3", class_="LlamaForCausalLMEagle3")
    result = ctx.do(Checkpoint(path=str(DRAFT), against=against))
    other = result.fields["unmatched"]
    assert result.verdict == "passed" and other["only_there"] == ["model.embed_tokens.weight"] and not other["shapes"], result.reason


# pure parts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("here", "there", "rename"),
    [
        ({"h.0.a.w": (2, 3), "h.0.b.w": (4,)}, {"model.h.0.a.w": (2, 3), "model.h.0.b.w": (4,)}, ("*", "model.*")),
        (
            {"m.layers.0.w1.weight": (2, 3), "m.layers.1.w1.weight": (2, 3)},
            {"m.layers.0.gate.weight": (2, 3), "m.layers.1.gate.weight": (2, 3)},
            ("*.w1.weight", "*.gate.weight"),
        ),
        ({"t.x.3.w": (5,), "t.x.4.w": (6,)}, {"m.y.3.w": (5,), "m.y.4.w": (6,)}, ("t.x.*", "m.y.*")),
    ],
)
def test_a_rename_is_found_wherever_in_the_key_it_is(here, there, rename):
    found = renames({k: Entry("f", v) for k, v in here.items()}, {k: Entry("f", v) for k, v in there.items()})
    assert [(one["here"], one["there"]) for one in found] == [rename] and found[0]["pairs"] == 2


def test_nothing_is_paired_across_shapes_or_by_chance():
    assert renames(entries(a__weight=[2]), entries(b__weight=[3])) == []
    assert renames(entries(a__weight=[2], c__weight=[2]), entries(b__weight=[2])) == []


@settings(max_examples=40)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["q", "k", "norm.a", "norm.b", "mlp.up", "mlp.down"]), st.sampled_from(["weight", "bias"])),
        st.lists(st.integers(1, 3), min_size=1, max_size=2),
        min_size=2,
    ),
    st.sampled_from([("layers.0", "midlayer"), ("a", "b.c"), ("x", "model.x")]),
)
def test_any_renamed_prefix_pairs_all_of_its_keys(parts, change):
    old, new = change
    here = {f"{old}.{module}.{leaf}": Entry("f", tuple(shape)) for (module, leaf), shape in parts.items()}
    there = {key.replace(old, new, 1): entry for key, entry in here.items()}
    (best, *_) = renames(here, there)
    assert best["pairs"] == len(parts), best
    assert unmatched(here, here)["count"] == 0


@settings(max_examples=40)
@given(st.dictionaries(st.text("ab.", min_size=1, max_size=6), st.lists(st.integers(1, 2), max_size=2), max_size=8), st.data())
def test_a_rename_never_uses_a_key_twice(keys, data):
    other = data.draw(st.dictionaries(st.text("ab.", min_size=1, max_size=6), st.lists(st.integers(1, 2), max_size=2), max_size=8))
    here, there = ({key: Entry("f", tuple(shape)) for key, shape in side.items()} for side in (keys, other))
    found = unmatched(here, there)
    assert sum(one["pairs"] for one in found["renames"]) <= min(len(found["only_here"]), len(found["only_there"]))


def test_a_missing_key_is_answered_by_its_likely_place():
    assert near("fc.weight", ["model.fc.weight", "norm.weight"]) == "; there is `model.fc.weight`"
    assert near("midlayer.*", ["layers.0.q", "layers.0.k", "fc"]) == "; keys begin with `layers.0`, `fc`"


def test_with_a_part_unread_only_what_is_there_can_be_wrong():
    expect = Expect(keys=["b"], shapes={"c": [1], "a": [3]}, absent=["a"])
    assert len(differences(expect, entries(a=[2]))) == 4
    assert len(differences(expect, entries(a=[2]), partial=True)) == 2


def test_a_fusion_that_contradicts_the_configuration_is_found():
    config = {"hidden_size": 64, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2], "use_aux_hidden_state": False}}
    found = fusion(config, entries(fc__weight=[64, 192]))
    assert [code for code, _ in fusion_findings(found)] == ["fusion_width", "aux_off"]
    assert fusion_findings(fusion({"hidden_size": 64}, entries(fc__weight=[64, 192]))) == []
    assert fusion({"hidden_size": "x", "eagle_config": []}, {})["fc"] is None


@pytest.mark.parametrize(
    ("against", "word"),
    [(Against(), "exactly one"), (Against(path="a", module="b", class_="C"), "exactly one"), (Against(module="b"), "needs the `class`")],
)
def test_a_comparison_has_one_other_side(against, word):
    assert word in Checkpoint(path="x", against=against).problems()[0][1]
