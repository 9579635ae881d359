"""`runbook tensors` and `tensor_diff`: what differs between two captures, where, and by how much."""

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.cli import tensor_diff
from runbook.cli.tensor_diff import Difference, in_run_folder, place
from runbook.cli.tensors import command
from runbook.lang.expressions import Problem, evaluate, parse
from runbook.lang.values import Unknown
from tests.support.tensor_files import save, save_index, tensor

SAVED = Path(__file__).parents[1] / "data" / "checkpoints"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command in the test's folder: (exit code, text)."""
    monkeypatch.chdir(tmp_path)

    def run(*args):
        done = CliRunner().invoke(command, list(map(str, args)), standalone_mode=False)
        assert done.exception is None, done.exception
        return done.return_value, done.output

    return run


def pair(folder, a, b):
    save(folder / "a.safetensors", a)
    save(folder / "b.safetensors", b)
    return "a.safetensors", "b.safetensors"


def test_equal_files_are_equal_whatever_the_order_in_them(run, tmp_path):
    tensors = {"x": tensor([2, 3]), "y": tensor([4], dtype="bfloat16")}
    code, text = run(*pair(tmp_path, tensors, dict(reversed(tensors.items()))))
    assert code == 0 and text == "2 of 2 tensors are equal\n"


def test_the_first_difference_is_told_by_its_place(run, tmp_path):
    values = [float(n) for n in range(24)]
    other = [*values[:17], 17.5, *values[18:23], 20.0]
    code, text = run("--json", *pair(tmp_path, {"x": tensor([2, 3, 4], values)}, {"x": tensor([2, 3, 4], other)}))
    row = json.loads(text)["tensors"]["x"]
    assert code == 1 and row["first"] == {"index": [1, 1, 1], "a": 17.0, "b": 17.5}
    assert (row["max_abs"], row["beyond"], row["max_rel"]) == (3.0, 2, pytest.approx(3 / 23))
    dot, a, b = (sum(x * y for x, y in zip(p, q, strict=True)) for p, q in ((values, other), (values, values), (other, other)))
    assert row["cosine"] == pytest.approx(dot / math.sqrt(a * b))


def test_tolerances_decide_what_is_equal(run, tmp_path):
    files = pair(tmp_path, {"x": tensor([2], [1.0, 100.0])}, {"x": tensor([2], [1.0, 101.0])})
    for options, code in ((), 1), (("--atol", 1), 0), (("--atol", 0.9), 1), (("--rtol", 0.01), 0), (("--rtol", 0.009), 1):
        assert run(*options, *files)[0] == code, options


def test_nan_on_both_sides_is_equal_and_shown_and_on_one_side_it_is_not(run, tmp_path):
    nan, inf = math.nan, math.inf
    files = pair(tmp_path, {"x": tensor([4], [1, nan, inf, 2])}, {"x": tensor([4], [1, nan, inf, 2])})
    code, text = run("--all", *files)
    assert code == 0 and "1 | 1" in text
    files = pair(tmp_path, {"x": tensor([4], [1, nan, inf, 2])}, {"x": tensor([4], [1, 0, -inf, 2])})
    code, text = run("--json", "--atol", 10, *files)
    row = json.loads(text)["tensors"]["x"]
    assert code == 1 and row["nan"] == [1, 0] and row["beyond"] == 2 and row["first"] == {"index": [1], "a": "nan", "b": 0.0}
    assert row["max_abs"] == 0.0 and row["cosine"] == pytest.approx(1.0)


def test_another_shape_and_a_missing_tensor_are_different_and_another_type_alone_is_not(run, tmp_path):
    a = {"x": tensor([2, 2]), "y": tensor([1]), "t": tensor([3], dtype="float16")}
    b = {"x": tensor([4]), "z": tensor([1]), "t": tensor([3])}
    code, text = run(*pair(tmp_path, a, b))
    assert code == 1 and "[2, 2] | [4]" in text and "only in A" in text and "only in B" in text and "1 of 2 tensors are equal" in text
    assert run("--only", "t", *pair(tmp_path, a, b))[0] == 0


@pytest.mark.slow
def test_every_portion_of_a_long_tensor_is_compared(run, tmp_path):
    values = [1.0] * 200_000
    for at in (0, 65_536, 131_071, 199_999):
        changed = [*values[:at], 2.0, *values[at + 1 :]]
        code, text = run("--json", *pair(tmp_path, {"x": tensor([200_000], values)}, {"x": tensor([200_000], changed)}))
        assert code == 1 and json.loads(text)["tensors"]["x"]["first"]["index"] == [at]


def test_a_sharded_folder_is_compared_with_one_file_by_names(run, tmp_path):
    save(tmp_path / "m" / "model-00001-of-00002.safetensors", {"a": tensor([2])})
    save(tmp_path / "m" / "model-00002-of-00002.safetensors", {"b": tensor([3])})
    save_index(tmp_path / "m", {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"})
    save(tmp_path / "one.safetensors", {"b": tensor([3]), "a": tensor([2])})
    assert run("m", "one.safetensors")[0] == 0


def test_captures_in_folders_are_matched_by_file_and_name(run, tmp_path):
    for side, second in (("a", 1.0), ("b", 2.0)):
        save(tmp_path / side / "hit-1.safetensors", {"hidden": tensor([2])})
        save(tmp_path / side / "hit-2.safetensors", {"hidden": tensor([1], [second])})
    code, text = run("--json", "a", "b")
    assert code == 1 and json.loads(text)["different"] == ["hit-2.safetensors:hidden"]


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("none", "No such file"),
        (SAVED / "module.pt", "torch.nn.modules.linear.Linear"),
        ("torn.safetensors", "`x` is cut"),
        ("empty", "no weights"),
        ("turned.pt", "side by side"),
    ],
)
def test_what_cannot_be_read_is_2_and_says_why(run, tmp_path, path, word):
    (tmp_path / "empty").mkdir()
    whole = save(tmp_path / "whole.safetensors", {"x": tensor([4])})
    (tmp_path / "torn.safetensors").write_bytes(whole.read_bytes()[:-1])
    (tmp_path / "turned.pt").write_bytes((SAVED / "saved.pt").read_bytes())
    code, text = run(path, path)
    assert code == 2 and word in text
    code, text = run("--json", path, path)
    assert code == 2 and word in json.loads(text)["problem"]


def test_a_torch_archive_is_compared_with_safetensors(run, tmp_path):
    save(tmp_path / "w.safetensors", {"model.w": tensor([3, 4]), "model.half": tensor([2], [1.5, -2.0])})
    code, text = run("--only", "model.w", "--only", "model.half", SAVED / "saved.pt", "w.safetensors")
    assert code == 0 and "2 of 2" in text
    assert run("--only", "nothing", SAVED / "saved.pt", "w.safetensors")[0] == 2


def test_a_long_table_is_cut_and_says_so(run, tmp_path):
    a = {f"t{n}": tensor([1], [1.0]) for n in range(60)}
    _, text = run(*pair(tmp_path, a, {name: tensor([1], [2.0]) for name in a}))
    assert "and 20 more: --all shows them" in text


FLOAT = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf])


@settings(max_examples=60)
@given(st.lists(st.tuples(FLOAT, FLOAT), max_size=20), st.sampled_from([0.0, 0.5]), st.sampled_from([0.0, 0.1]))
def test_the_count_is_that_of_the_definition(pairs, atol, rtol):
    def same(x, y):
        if x == y or (x != x and y != y):
            return True
        return math.isfinite(x) and math.isfinite(y) and abs(x - y) <= atol + rtol * max(abs(x), abs(y))

    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    difference = Difference(atol, rtol)
    difference.add(0, a, b)
    row = difference.row([len(a)])
    assert row["beyond"] == sum(not same(x, y) for x, y in pairs)
    assert (row["first"] or {}).get("index") == next(([at] for at, (x, y) in enumerate(pairs) if not same(x, y)), None)
    json.dumps(row, allow_nan=False)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_a_place_is_where_the_element_lies(shape, data):
    index = [data.draw(st.integers(0, size - 1)) for size in shape]
    at = 0
    for size, one in zip(shape, index, strict=True):
        at = at * size + one
    assert place(at, shape) == index


# the function of the expression language -----------------------------------------------------------------------------


@pytest.fixture
def ask(tmp_path):
    """Evaluate an expression in a run's folder."""
    pair(tmp_path, {"x": tensor([2], [1.0, 2.0])}, {"x": tensor([2], [1.0, 2.5])})
    return lambda source: evaluate(parse(source), {"__tensor_diff__": lambda *args: in_run_folder(tmp_path, *args)})


def test_an_expression_compares_files_of_the_run(ask):
    assert ask("tensor_diff('a.safetensors', 'a.safetensors').equal").value is True
    assert ask("tensor_diff('a.safetensors', 'b.safetensors').max_abs").value == 0.5
    assert ask("tensor_diff('a.safetensors', 'b.safetensors', 0.5).equal").value is True
    assert ask("tensor_diff('a.safetensors', 'b.safetensors', 0, 0.2).tensors['x'].first").value is None


def test_what_an_expression_cannot_read_is_unknown(ask, monkeypatch):
    assert "No such file" in ask("tensor_diff('a.safetensors', 'none').equal").unknown.reason
    monkeypatch.setattr(tensor_diff, "MOST_IN_EXPRESSION", 1)
    assert "runbook tensors" in ask("tensor_diff('a.safetensors', 'b.safetensors')").unknown.reason


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("tensor_diff('../x', 'a.safetensors')", "below the run's folder"),
        ("tensor_diff('/etc/passwd', 'a.safetensors')", "below the run's folder"),
        ("tensor_diff(1, 'a')", "two files"),
        ("tensor_diff('a', 'a', -1)", "from 0 on"),
        ("tensor_diff('a', 'a', 'x')", "from 0 on"),
    ],
)
def test_a_wrong_call_is_a_problem_in_words(ask, source, word):
    assert word in ask(source).problem


def test_without_a_run_there_is_nothing_to_read():
    assert "no run" in evaluate(parse("tensor_diff('a', 'b')"), {}).problem


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    save(tmp_path / "x.safetensors", {"x": tensor([1])})
    (tmp_path / "run" / "link").symlink_to(tmp_path / "x.safetensors")
    with pytest.raises(Problem):
        in_run_folder(tmp_path / "run", "link", "link", 0.0, 0.0)
    assert isinstance(in_run_folder(tmp_path / "run", "gone", "gone", 0.0, 0.0), Unknown)
