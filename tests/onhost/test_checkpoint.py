"""Checkpoints are listed from their headers alone; what is wrong with a file is said with its numbers, never raised."""

import io
import json
import math
import pickle
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.onhost import ops_checkpoint
from runbook.onhost.checkpoint_files import read_checkpoint
from runbook.onhost.dispatch import Context
from runbook.onhost.errors import OpError
from runbook.onhost.safetensors_file import read_safetensors
from runbook.onhost.tensor_stats import statistics, token_map
from runbook.onhost.tensors import Tensor, TensorFileError
from runbook.onhost.torch_file import read_torch
from tests.support.tensor_files import packed, raw, save, save_index, save_torch, serialize, tensor

WEIGHTS = Path(__file__).parents[2] / "runbook" / "lab" / "weights"


def faults(path):
    return [(fault.kind, fault.file, fault.text) for fault in read_checkpoint(str(path)).faults]


def only_fault(path):
    (fault,) = faults(path)
    return fault


def listing_of(data):
    return read_safetensors(lambda offset, length: data[offset : offset + length], len(data), "f")


# safetensors ---------------------------------------------------------------------------------------------------------


def test_a_file_is_listed_as_its_writer_meant_it(tmp_path):
    path = save(
        tmp_path / "a.safetensors", {"w": tensor([2, 3], dtype="bfloat16"), "none": tensor([0, 4]), "one": tensor([], [7], "int64")}
    )
    found = read_checkpoint(str(path))
    assert {one.name: (one.dtype, one.shape) for one in found.tensors} == {
        "w": ("bfloat16", (2, 3)),
        "none": ("float32", (0, 4)),
        "one": ("int64", ()),
    }
    assert not found.faults and found.sizes == {"a.safetensors": path.stat().st_size}


def test_the_labs_own_weights_are_whole():
    for folder in ("tiny", "tiny-eagle3"):
        found = read_checkpoint(str(WEIGHTS / folder))
        assert found.tensors and not found.faults, folder


def test_a_file_cut_at_any_length_is_called_truncated(tmp_path):
    whole = save(tmp_path / "w", {"a": tensor([3]), "b": tensor([2], dtype="float16")}).read_bytes()
    for length in range(len(whole)):
        try:
            found = listing_of(whole[:length]).faults
        except TensorFileError as error:
            found = [error]
        assert [one.kind for one in found] == ["truncated"], length
        assert str(length) in found[0].text or length < 8


def test_a_cut_tensor_is_named_with_the_bytes(tmp_path):
    path = save(tmp_path / "m.safetensors", {"a": tensor([10]), "b": tensor([100])})
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    kind, file, text = only_fault(path)
    assert (kind, file) == ("truncated", "m.safetensors") and f"{size - 1:,} of the {size:,} bytes" in text and "`b` is cut" in text
    assert "last written" in text, "a file that changed a moment ago may still be being written"


@pytest.mark.parametrize(
    ("data", "kind", "word"),
    [
        (b"\0" * 4096, "damaged", "not written yet"),
        (raw(b"\0" * 64), "damaged", "all zeros"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "pointer", "git lfs pull"),
        (b"GGUF\x03\0\0\0" + b"\0" * 90, "damaged", "no safetensors file"),
        (b"\xff" * 90, "damaged", "no safetensors file"),
        (raw([1]), "damaged", "not a mapping"),
        (raw(b'{"a": 1, "a": 2}'), "damaged", "`a` is there twice"),
        (raw({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}), "damaged", "malformed"),
        (raw({"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, b"1234"), "damaged", "malformed"),
        (raw(b'{"a": ' + b"9" * 5000 + b"}"), "damaged", "digits"),
        (raw(b"[" * 100_000), "damaged", "cannot be read"),
        (raw({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, bytes(8)), "damaged", "takes 12 bytes, not 8"),
        (raw({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}, bytes(9)), "damaged", "5 bytes follow"),
        (
            raw({n: {"dtype": "U8", "shape": [4], "data_offsets": o} for n, o in {"a": [0, 4], "b": [2, 6]}.items()}, bytes(6)),
            "damaged",
            "`a` and `b` overlap by 2 bytes",
        ),
        (
            raw({n: {"dtype": "U8", "shape": [4], "data_offsets": o} for n, o in {"a": [0, 4], "b": [7, 11]}.items()}, bytes(11)),
            "damaged",
            "3 bytes belong to no tensor before `b`",
        ),
    ],
)
def test_each_way_to_be_broken_has_its_words(tmp_path, data, kind, word):
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    told = only_fault(path)
    assert told[0] == kind and word in told[2], told


@settings(max_examples=50)
@given(st.binary(max_size=200) | st.builds(raw, st.binary(max_size=120), st.binary(max_size=40)))
def test_random_bytes_are_a_listing_or_our_error(data):
    asked = []

    def read(offset, length):
        asked.append(length)
        return data[offset : offset + length]

    try:
        read_safetensors(read, len(data), "f")
    except TensorFileError:
        pass
    assert sum(asked) <= len(data) + 8, "never asks for more than the file has"


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda x: st.lists(x, max_size=3), max_leaves=6)
ENTRY = st.fixed_dictionaries({"dtype": JSON | st.sampled_from(["F32", "BF16", "F4"]), "shape": JSON, "data_offsets": JSON})


@settings(max_examples=50)
@given(st.dictionaries(st.text(max_size=6), ENTRY | JSON, max_size=4), st.binary(max_size=30))
def test_any_json_header_is_a_listing_or_our_error(header, data):
    try:
        listing_of(raw(header, data))
    except TensorFileError:
        pass


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
        st.lists(st.integers(0, 4), max_size=3),
        max_size=5,
    )
)
def test_what_the_library_writes_is_read_back(shapes):
    found = listing_of(serialize({name: tensor(shape) for name, shape in shapes.items()}))
    assert {one.name: list(one.shape) for one in found.tensors} == shapes and not found.faults


# folders -------------------------------------------------------------------------------------------------------------


def shards(folder, count=3):
    names = [f"model-{n + 1:05d}-of-{count:05d}.safetensors" for n in range(count)]
    for n, name in enumerate(names):
        save(folder / name, {f"layers.{n}.w": tensor([4])})
    return names


def test_a_whole_sharded_folder_has_no_fault(tmp_path):
    names = shards(tmp_path)
    save_index(tmp_path, {f"layers.{n}.w": name for n, name in enumerate(names)}, total=48)
    found = read_checkpoint(str(tmp_path))
    assert [one.name for one in found.tensors] == ["layers.0.w", "layers.1.w", "layers.2.w"] and not found.faults


def test_a_shard_that_the_names_promise_is_missed_without_an_index(tmp_path):
    names = shards(tmp_path)
    (tmp_path / names[1]).unlink()
    kind, _, text = only_fault(tmp_path)
    assert kind == "missing" and names[1] in text and "1 of 00003" in text


def test_the_half_written_shard_is_named_and_not_blamed_on_the_index(tmp_path):
    names = shards(tmp_path)
    save_index(tmp_path, {f"layers.{n}.w": name for n, name in enumerate(names)}, total=48)
    (tmp_path / names[2]).write_bytes((tmp_path / names[2]).read_bytes()[:50])
    kind, file, text = only_fault(tmp_path)
    assert (kind, file) == ("truncated", names[2]) and "ends inside its header" in text


def test_an_index_that_lies_is_told_in_each_way(tmp_path):
    names = shards(tmp_path)
    save_index(tmp_path, {"layers.0.w": names[1], "layers.2.w": names[2], "ghost": names[0], "gone": "model-9.safetensors"})
    told = {text for kind, _, text in faults(tmp_path) if kind in ("index", "missing")}
    assert told == {
        "it names 1 files that are not there: model-9.safetensors",
        "1 keys that it names are not in their shard: `ghost`",
        f"1 keys lie in another shard than it says, as `layers.0.w` in {names[0]}, not {names[1]}",
        "1 keys of its shards are not in it: `layers.1.w`",
    }


def test_a_key_in_two_shards_is_named(tmp_path):
    save(tmp_path / "a.safetensors", {"w": tensor([1])})
    save(tmp_path / "b.safetensors", {"w": tensor([1]), "v": tensor([1])})
    kind, _, text = only_fault(tmp_path)
    assert kind == "twice" and "`w` in a.safetensors and b.safetensors" in text


def test_an_index_cannot_lead_out_of_its_folder(tmp_path):
    shards(tmp_path, 1)
    save_index(tmp_path, {"w": "../secret.safetensors"})
    assert only_fault(tmp_path)[:2] == ("damaged", "model.safetensors.index.json")


def test_what_lies_beside_the_weights_is_noticed(tmp_path):
    shards(tmp_path, 1)
    (tmp_path / "model-00002.safetensors.incomplete").write_bytes(b"x")
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    assert {kind for kind, _, _ in faults(tmp_path)} == {"unfinished", "ignored"}


@pytest.mark.parametrize(("name", "code"), [("none", "not_found"), ("empty", "not_found"), ("pipe", "unsupported")])
def test_no_weights_is_an_answer(tmp_path, name, code):
    import os

    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OpError) as caught:
        read_checkpoint(str(tmp_path / name))
    assert caught.value.code == code


# torch ---------------------------------------------------------------------------------------------------------------


SAVED = Path(__file__).parents[1] / "data" / "checkpoints"
"""Written by torch 2.13 (tests/support/tensor_files.py), so that the fast tests need not wait for torch to be imported."""


@pytest.fixture(scope="module")
def saved():
    return SAVED / "saved.pt"


@pytest.mark.slow
def test_what_this_torch_writes_is_listed_as_the_file_that_is_kept(tmp_path, saved):
    def rows(path):
        return {one.name: (one.dtype, one.shape, bool(one.note)) for one in read_checkpoint(str(path)).tensors}

    assert rows(save_torch(tmp_path / "a.pt")) == rows(saved)


def test_tensors_of_an_archive_are_named_by_their_place(saved):
    found = read_checkpoint(str(saved))
    assert not found.faults
    assert {one.name: (one.dtype, one.shape) for one in found.tensors} == {
        "model.w": ("float32", (3, 4)),
        "model.tail": ("float32", (4,)),
        "model.turned": ("float32", (4, 3)),
        "model.half": ("bfloat16", (2,)),
        "model.small": ("float8_e4m3fn", (2,)),
        "model.p": ("float32", (2,)),
        "optimizer.0.step": ("int64", ()),
    }


def test_numbers_of_an_archive_are_read_where_they_lie(saved):
    rows = {one.name: one for one in read_checkpoint(str(saved)).tensors}
    assert statistics(rows["model.tail"], lambda: True)["min"] == 8.0
    assert statistics(rows["model.half"], lambda: True)["mean"] == -0.25
    assert statistics(rows["model.small"], lambda: True)["max"] == 448.0
    with pytest.raises(TensorFileError, match="side by side"):
        statistics(rows["model.turned"], lambda: True)


def test_an_archive_cut_at_any_length_is_never_listed(saved):
    whole = saved.read_bytes()
    for length in [*range(0, 200), *range(200, len(whole), 37)]:
        with pytest.raises(TensorFileError) as caught:
            read_torch(io.BytesIO(whole[:length]), length, "f")
        assert caught.value.kind in ("truncated", "damaged", "unsupported"), length
    with pytest.raises(TensorFileError, match="it was cut"):
        read_torch(io.BytesIO(whole[:-1]), len(whole) - 1, "f")


class Trap:
    def __reduce__(self):
        return (exec, ("raise SystemExit('executed')",))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_code_is_refused_by_name(tmp_path, protocol):
    path = tmp_path / "evil.bin"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", pickle.dumps({"w": Trap()}, protocol=protocol))
    kind, _, text = only_fault(path)
    assert kind == "unsupported" and ("exec" in text or protocol == 0)


def test_a_pickled_module_and_the_old_format_are_refused_in_words():
    assert "torch.nn.modules.linear.Linear" in only_fault(SAVED / "module.pt")[2]
    kind, _, text = only_fault(SAVED / "before_1_6.pt")
    assert kind == "unsupported" and "before 1.6" in text


DOUBLED = b"\x80\x02)" + b"".join(b"q%c0h%ch%c\x86" % (at, at, at) for at in range(60))
"""A tuple of two that are the same tuple of two, sixty levels down: a few hundred bytes, more leaves than atoms."""


@pytest.mark.parametrize("data", [DOUBLED + b".", b"\x80\x02}" + DOUBLED[2:] + b"K\x01s."], ids=["a value", "a key"])
def test_a_small_pickle_of_a_huge_tree_ends_soon(tmp_path, data, monkeypatch):
    path = tmp_path / "b.pt"
    monkeypatch.setattr("runbook.onhost.torch_file.MOST_LEAVES", 1000)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", data)
    assert only_fault(path)[0] == "unsupported"


@settings(max_examples=100)
@given(st.data())
def test_a_changed_byte_anywhere_is_a_listing_or_our_error(saved, data):
    whole = bytearray(saved.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        read_torch(io.BytesIO(bytes(whole)), len(whole), "f")
    except TensorFileError:
        pass


# numbers -------------------------------------------------------------------------------------------------------------


def stats_of(path, values, dtype, most=0):
    path.write_bytes(packed(dtype, values))
    size = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8}[dtype]
    return statistics(Tensor("t", dtype, (len(values),), str(path), 0, size * len(values)), lambda: True, most)


@settings(max_examples=50)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=50), st.sampled_from(["float32", "float64"]))
def test_statistics_are_those_of_the_definition(tmp_path_factory, values, dtype):
    import statistics as reference

    row = stats_of(tmp_path_factory.getbasetemp() / "numbers", values, dtype)
    assert (row["min"], row["max"], row["zero"]) == (min(values), max(values), values.count(0))
    assert math.isclose(row["mean"], reference.fmean(values), rel_tol=1e-9, abs_tol=1e-6)
    assert math.isclose(row["std"], reference.pstdev(values), rel_tol=1e-6, abs_tol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_nan_and_infinity_are_counted_and_kept_out_of_the_mean(tmp_path, dtype):
    row = stats_of(tmp_path / "n", [1.0, math.nan, 3.0, math.inf, 0.0, -math.inf, -0.0], dtype)
    assert (row["nan"], row["inf"], row["zero"], row["min"], row["max"], row["mean"]) == (1, 2, 2, 0.0, 3.0, 1.0)


def test_numbers_that_overflow_give_null_and_not_an_error(tmp_path):
    row = stats_of(tmp_path / "n", [1e308, 1e308, -1e308], "float64")
    assert row["max"] == 1e308 and row["std"] is None
    assert stats_of(tmp_path / "n", [math.nan] * 3, "float32")["mean"] is None


def test_portions_of_different_means_give_one_spread(tmp_path):
    row = stats_of(tmp_path / "n", [0.0] * 65_536 + [2.0] * 65_536, "float32")
    assert (row["mean"], row["std"], row["zero"]) == (1.0, 1.0, 65_536)


def test_a_sample_says_so_and_reaches_both_ends(tmp_path):
    values = [5.0] + [1.0] * 300_000 + [9.0]
    row = stats_of(tmp_path / "n", values, "float32", most=1 << 17)
    assert row["read"] == 1 << 17 and row["elements"] == 300_002 and (row["max"], row["min"]) == (9.0, 1.0)


# maps of tokens ------------------------------------------------------------------------------------------------------


def read_map(path, values, vocabulary=None, taken=None):
    path.write_bytes(packed("int64", values))
    return token_map(Tensor("d2t", "int64", (len(values),), str(path), 0, 8 * len(values)), vocabulary, taken)


KEPT = [0, 1, 2, 7, 9, 40, 41, 99]
OFFSETS = [id - at for at, id in enumerate(KEPT)]


@pytest.mark.parametrize(
    ("values", "vocabulary", "taken", "reading"),
    [
        (OFFSETS, 100, None, "offsets"),
        (KEPT, 100, None, "absolute"),
        (KEPT[::-1], 100, None, "absolute"),
        (list(range(10)), 10, None, "absolute"),
        (list(range(10)), 100, None, "either"),
        (list(range(10)), 100, list(range(0, 20, 2)), "offsets"),
        ([0] * 10, 100, None, "offsets"),
        ([3, 3, 1, 200], 100, None, "neither"),
        (OFFSETS, 100, [0, 1], "neither"),
    ],
)
def test_a_map_is_read_both_ways_and_only_what_holds_is_believed(tmp_path, values, vocabulary, taken, reading):
    assert read_map(tmp_path / "m", values, vocabulary, taken)["reading"] == reading


@settings(max_examples=50)
@given(st.sets(st.integers(0, 999), min_size=20, max_size=60))
def test_offsets_of_a_kept_vocabulary_are_never_taken_for_ids(tmp_path_factory, kept):
    ids = sorted(kept)
    path = tmp_path_factory.getbasetemp() / "map"
    assert read_map(path, [id - at for at, id in enumerate(ids)], 1000)["reading"] in ("offsets", "either")
    assert read_map(path, ids, 1000, ids)["reading"] == "absolute"


# the operation -------------------------------------------------------------------------------------------------------


@pytest.fixture
def ask(tmp_path):
    def ask(path, **args):
        context = Context(lambda *_: None, 1, str(tmp_path / "state"), None)
        data, blob = ops_checkpoint.checkpoint(context, {"path": str(path), **args}, b"")
        return data, {name: (dtype, shape) for name, dtype, shape in json.loads(zlib.decompress(blob))}

    return ask


def test_the_mask_decides_and_the_configuration_gives_the_vocabulary(ask, tmp_path):
    mask = [at in KEPT for at in range(100)]
    tensors = {"d2t": tensor([8], OFFSETS, "int64"), "t2d": tensor([100], mask, "bool")}
    save(tmp_path / "d" / "model.safetensors", tensors)
    (found,) = ask(tmp_path / "d")[0]["maps"]
    assert found["reading"] == "offsets" and found["offsets"]["matches_mask"] is True and found["absolute"]["unique"] is False
    save(tmp_path / "e" / "model.safetensors", {"x.d2t": tensor([10], list(range(10)), "int64")})
    (tmp_path / "e" / "config.json").write_text('{"vocab_size": 12}')
    (found,) = ask(tmp_path / "e")[0]["maps"]
    assert (found["key"], found["reading"], found["offsets"]["in_range"]) == ("x.d2t", "absolute", False)


def test_only_named_tensors_are_read_and_the_others_are_said(ask, tmp_path):
    path = save(tmp_path / "m.safetensors", {"a.norm": tensor([3]), "b.norm": tensor([3]), "w": tensor([3])})
    data, listing = ask(path, tensors=["*.norm", "nothing*"])
    assert sorted(data["stats"]) == ["a.norm", "b.norm"] and data["skipped"] == {"nothing*": "no key matches"} and len(listing) == 3
    assert ask(path, tensors=["w"], limit_s=0)[0]["skipped"] == {"w": "the time for statistics was over"}
