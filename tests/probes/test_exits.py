"""An exit probe sees every way out of a function, and the function does not notice."""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import subprocess
import threading
import traceback
import types
import weakref

import pytest

from runbook.model.units import Rate
from runbook.probes.reading import read
from runbook.probes.spec import Probe
from runbook.probes.transform import Transformed, transform
from tests.support.interpreters import INTERPRETERS

EXIT = Probe(at="f", where="exit")

PLACES = {
    "a return, a bare one and the end": (
        "def f(x):\n    if x: return x\n    if not x:\n        return\n    g(x)\n",
        "def f(x):\n    try:\n     if x: return OUT( x))\n     if not x:\n         OUTNONE; return\n     g(x)\n    TAIL\n",
    ),
    "a body in the line of its def": ("def f(x): return(x)  # c\ny = 1\n", "def f(x): \n try:\n  return OUT((x)))  # c\n TAIL\ny = 1\n"),
    "a docstring stays the first statement": ('def f():\n  "d"\n  g()', 'def f():\n  "d"\n  try:\n   g()\n  TAIL'),
    "a docstring in the line of the def": ('def f(): "d"; g()\n', 'def f(): \n "d"; \n try:\n  g()\n TAIL\n'),
    "a body that shares the line of its docstring": (
        'def f():\n  "d"; g()\n  h()\n',
        'def f():\n  "d"; \n  try:\n   g()\n   h()\n  TAIL\n',
    ),
    "text over several lines keeps its blanks": (
        'def f():\n\ts = """a\n  b""" + f"""\n {s}\n"""\n\t# c\n\n\treturn s\n',
        'def f():\n\ttry:\n\t s = """a\n  b""" + f"""\n {s}\n"""\n\t# c\n\n\t return OUT( s))\n\tTAIL\n',
    ),
    "windows line ends": ("def f():\r\n  return 1, 2\r\n", "def f():\r\n  try:\r\n   return OUT( 1, 2))\r\n  TAIL\r\n"),
    "what nested functions return is theirs": (
        "def f():\n  def g(): return 1\n  return g\n",
        "def f():\n  try:\n   def g(): return 1\n   return OUT( g))\n  TAIL\n",
    ),
    "a backslash at the end of the body": (
        "def f():\n  return \\\n   1 \\\n\nx = 1\n",
        "def f():\n  try:\n   return OUT( \\\n    1)) \\\n\n  TAIL\nx = 1\n",
    ),
    "a form feed in the indentation": ("def f():\n  \x0c  g()\n", "def f():\n  \x0c  try:\n  \x0c   g()\n  \x0c  TAIL\n"),
}


def shortened(data: bytes) -> str:
    """The patched text without block and last line, our texts by short names."""
    text = data.decode().split("# runbook probes end", 1)[1].split("\n", 1)[1]
    name = text[text.index("_rb_") :][:12]
    text = text[: text.rindex(f"{name}.loaded(0)")]
    text = text.replace(f"{name}.out[0](None); return", "OUTNONE; return").replace(f"{name}.out[0]((", "OUT(")
    for eol in ("\r\n", "\n"):
        lines = f"except: {name}.failed(0); raise", f"else: {name}.out[0](None)", f"finally: {name}.left(0) and {name}.hit("
        for indent in ("    ", "  \x0c  ", "  ", "\t", " "):
            text = text.replace(f"{indent}{lines[0]}{eol}{indent}{lines[1]}{eol}{indent}{lines[2]}", f"{indent}TAIL<")
    head, *rest = text.split("TAIL<")
    return head + "".join("TAIL" + part.split("result})", 1)[1] for part in rest)


@pytest.mark.parametrize("case", PLACES)
def test_only_insertions_are_made(case):
    before, after = PLACES[case]
    made = transform(before.encode(), [EXIT], marker="run1/taps/1", side_file="/x", path="/srv/m.py", run="run1")
    assert isinstance(made, Transformed), made
    text = shortened(made.data)
    assert (text if before.endswith("\n") else text.rstrip("\n")) == after


WAYS = {
    "return": ("def f(x): return x + 1", (1,), "return", 2),
    "the end": ("def f(x): x + 1", (1,), "return", None),
    "a body that is only a docstring": ('def f(x):\n  """d"""', (1,), "return", None),
    "a bare return": ("def f(x):\n  if x: return\n  return 3", (1,), "return", None),
    "a tuple with a star": ("def f(x): return *x, 0", ((1, 2),), "return", [1, 2, 0]),
    "an exception": ("def f(x): return x.nothing", (1,), "AttributeError", None),
    "an exception that is handled inside": ("def f(x):\n  try: return x.nothing\n  except AttributeError: return 7", (1,), "return", 7),
    "finally overrides the value": ("def f(x):\n  try: return 1\n  finally: return 2", (1,), "return", 2),
    "finally takes the return back": ("def f(x):\n  while x:\n    try: return 1\n    finally: break\n  return 5", (1,), "return", 5),
    "finally raises after the return": ("def f(x):\n  try: return 1\n  finally: x.nothing", (1,), "AttributeError", None),
    "a context manager swallows": (
        "import contextlib\ndef f(x):\n  with contextlib.suppress(ValueError): raise ValueError(x)",
        (1,),
        "return",
        None,
    ),
    "exit": ("def f(x): raise SystemExit(x)", (1,), "SystemExit", None),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_out_is_recorded_once_with_what_really_left(probed, way):
    source, given, how, result = WAYS[way]
    made = probed(source, EXIT)
    if how == "return":
        made.module.f(*given)
    else:
        with pytest.raises(BaseException) as caught:
            made.module.f(*given)
        assert type(caught.value).__name__ == how
    (hit,) = made.records.hits
    assert (hit.exit, hit.shown["result"]) == (("return", result) if how == "return" else ("raise", {"error": "there is no result"}))
    assert hit.raised.split(":")[0] == ("" if how == "return" else how)
    assert made.probes.kept == [{}] and made.records.torn == 0


KINDS = """
import contextlib
def gen(n):
    for i in range(n): yield i
    return "end"
async def agen(n):
    yield n
    return
async def co(n): return n
@contextlib.contextmanager
def cm():
    try: yield 1
    finally: pass
class A:
    def who(self): return "A"
    @property
    def p(self): return 4
    @staticmethod
    def s(x): return x
    @classmethod
    def c(cls): return cls.__name__
class B(A):
    def who(self): return super().who() + __class__.__name__
def names(a, b=2): return sorted(locals())
def caller(): return __import__("sys")._getframe(1).f_code.co_name
"""
EVERY = tuple(Probe(at=at, where="exit") for at in ("gen", "agen", "co", "cm", "A.p", "A.s", "A.c", "B.who", "names", "caller"))


def test_a_function_stays_what_it_is(probed):
    module = probed(KINDS, *EVERY).module
    assert inspect.isgeneratorfunction(module.gen) and inspect.isasyncgenfunction(module.agen) and inspect.iscoroutinefunction(module.co)
    assert isinstance(module.co, types.FunctionType) and str(inspect.signature(module.names)) == "(a, b=2)"
    assert (module.B().who(), module.A().p, module.A.s(3), module.B.c()) == ("AB", 4, 3, "B")
    assert module.names(1) == ["a", "b"]
    assert module.caller() == "test_a_function_stays_what_it_is"


def test_generators_and_coroutines_leave_when_they_end(probed):
    made = probed(KINDS, *EVERY)
    module = made.module

    async def use():
        return [n async for n in module.agen(5)], await module.co(6)

    assert list(module.gen(2)) == [0, 1] and asyncio.run(use()) == ([5], 6)
    with module.cm() as one:
        assert one == 1
    assert [(hit.probe, hit.shown["result"]) for hit in made.records.hits] == [(0, "end"), (1, None), (2, 6), (3, None)]
    half = module.gen(3)
    next(half)
    half.close()
    assert made.records.hits[-1].raised.startswith("GeneratorExit")


def test_generators_that_run_side_by_side_do_not_mix(probed):
    made = probed("def f(n):\n    yield n\n    yield n\n    return n\n", Probe(at="f", where="exit", show=["result", "n"]))
    one, other = made.module.f(1), made.module.f(2)
    for _ in range(3):
        next(one, None), next(other, None)
    assert [(hit.shown["result"], hit.shown["n"]) for hit in made.records.hits] == [(1, 1), (2, 2)]


def test_recursion_and_threads_do_not_mix(probed):
    made = probed(
        "def f(n): return 0 if n == 0 else 1 + f(n - 1)\n", Probe(at="f", where="exit", show=["result", "n"], hits=Rate("1000 per 10s"))
    )
    threads = [threading.Thread(target=made.module.f, args=(n,)) for n in (20, 20, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hits = made.records.hits
    assert len(hits) == 63 and all(hit.shown["result"] == hit.shown["n"] for hit in hits)


def test_a_traceback_shows_the_same_lines(probed):
    source = "def f(x):\n    y = x\n    return g(y)\ndef g(y):\n    raise KeyError(y)\n"

    def lines(*probes):
        with pytest.raises(KeyError) as caught:
            probed(source, *probes).module.f(1)
        assert caught.value.__context__ is None
        return [(frame.name, frame.line) for frame in traceback.extract_tb(caught.value.__traceback__)][1:]

    plain, watched = lines(), lines(EXIT, Probe(at="g", where="exit"))
    assert [name for name, _ in watched] == [name for name, _ in plain] == ["f", "g"]
    assert watched[1] == plain[1] and "g(y)" in watched[0][1]


def test_a_result_is_let_go_when_the_function_has_been_left(probed):
    made = probed("class Big: pass\ndef f(): return Big()\n", Probe(at="f", where="exit", hits=Rate("1 per 1h")))
    for _ in range(3):  # written, found empty, not looked at
        kept = weakref.ref(made.module.f())
        assert kept() is None
    assert len(made.records.hits) == 1 and made.probes.kept == [{}]


def test_a_condition_sees_result_and_error(probed):
    source = "def f(x):\n    if x < 0: raise ValueError(x)\n    return x\n"
    made = probed(source, Probe(at="f", where="exit", when="error is not None or result > 5", show={"why": "error", "x": "x"}))
    for x in (1, 9, -1):
        try:
            made.module.f(x)
        except ValueError:
            continue
    assert [(hit.exit, hit.shown) for hit in made.records.hits] == [
        ("return", {"why": None, "x": 9}),
        ("raise", {"why": "ValueError(-1)", "x": -1}),
    ]


def test_hits_as_expressions_see_them(probed):
    made = probed("def f(x): return 1 / x\n", EXIT)
    made.module.f(2)
    with pytest.raises(ZeroDivisionError):
        made.module.f(0)
    good, bad = (hit.plain() for hit in made.records.hits)
    assert (good["exit"], good["raised"], good["result"]) == ("return", None, 0.5)
    assert (bad["exit"], bad["raised"]) == ("raise", "ZeroDivisionError: division by zero")


def test_several_probes_of_one_function_live_together(probed):
    source = "def f(x):\n    y = x * 2\n    return y\n"
    made = probed(source, EXIT, Probe(at="f", after="y = x * 2", show=["y"]), Probe(at="f", where="entry"), EXIT)
    assert made.module.f(3) == 6
    assert sorted((hit.probe, hit.shown.get("result", hit.shown.get("y"))) for hit in made.records.hits if hit.probe != 2) == [
        (0, 6),
        (1, 6),
        (3, 6),
    ]
    assert [place.line for place in made.placed] == [1, 2, 2, 1]
    assert all(f"({place.index}) and" in made.text.splitlines()[place.line_after - 1] for place in made.placed)


def test_nested_functions_can_both_be_watched(probed):
    made = probed("def f(x):\n    def g(): return x\n    return g()\n", EXIT, Probe(at="f.g", where="exit"))
    assert made.module.f(3) == 3
    assert [(hit.probe, hit.shown["result"]) for hit in made.records.hits] == [(1, 3), (0, 3)]


def test_pickled_with_a_function_of_main_it_returns_what_is_returned(probed):
    made = probed("def f(x): return x\n", EXIT)
    copy = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(made.probes))))
    value = [1]
    assert copy.out[0](value) is value and copy.failed(0) is False and copy.left(0) is False


def test_code_that_cannot_be_armed_leaves_the_function_as_it_was(probed, tmp_path):
    """As when the standard library is half gone: the block's fallback answers for everything that the file calls."""
    made = transform(b"class A:\n    def __init__(self): self.x = 1\ndef f(x): return x\n", [EXIT, Probe(at="A.__init__", where="entry", alive="A")],
                     marker="run1/taps/1", side_file="/x", path="/srv/m.py", run="run1")  # fmt: skip
    assert isinstance(made, Transformed)
    side = tmp_path / "side.jsonl"
    side.touch()
    space: dict = {"__name__": "broken"}
    exec(made.data.replace(b"    import hashlib\n", b"    import no_such_module\n", 1).replace(b"'/x'", repr(str(side)).encode()), space)
    assert space["f"](5) == 5 and space["A"]().x == 1
    (told,) = read(side.read_bytes(), "run1/taps/1").unarmed
    assert told.pid == os.getpid() and "no_such_module" in told.how


SERVER = b'''
class Model:
    def forward(self, ids):
        """Doc."""
        with open("/dev/null") as null:
            for i in ids:
                if i > 2: return i
        raise ValueError("none")
def work(n):
    try:
        return Model().forward(range(n))
    except ValueError:
        return None
print([work(n) for n in range(5)], Model.forward.__doc__)
'''


@pytest.mark.slow
@pytest.mark.parametrize("python", INTERPRETERS)
def test_a_server_answers_as_before_on_every_python(tmp_path, python):
    side, path = tmp_path / "side.jsonl", tmp_path / "server.py"
    side.touch()
    probes = [Probe(at="Model.forward", where="exit", show=["result", "i"]), Probe(at="work", where="exit")]
    made = transform(SERVER, probes, marker="run1/taps/1", side_file=str(side), path=str(path), run="run1")
    assert isinstance(made, Transformed)
    path.write_bytes(made.data)
    done = subprocess.run([python, str(path)], capture_output=True, timeout=30)
    assert done.stdout == b"[None, None, None, None, 3] Doc.\n", done.stderr
    found = read(side.read_bytes(), "run1/taps/1")
    assert [hit.raised or hit.shown["result"] for hit in found.hits if hit.probe == 0] == ["ValueError: none"] * 4 + [3]
    assert [hit.shown["result"] for hit in found.hits if hit.probe == 1] == [None, None, None, None, 3]


def test_a_probe_does_not_watch_what_its_own_looking_calls(probed):
    """Else a watched `__repr__` would call itself, and a watched `len` would never come to an end."""
    source = "class A:\n    def __repr__(self): return size('A')\ndef size(text): return f'{text}{old(text)}'\nold = len\n"
    made = probed(source, *(Probe(at=at, where=w, show=s) for at, s in (("A.__repr__", ["self"]), ("size", [])) for w in ("entry", "exit")))
    assert repr(made.module.A()) == "A1"
    assert [(hit.probe, hit.shown.get("self")) for hit in made.records.hits] == [(0, "A1"), (2, None), (3, None), (1, "A1")]
    assert made.probes.kept == [{}] * 4


def test_a_replaced_builtin_that_is_watched_does_not_run_away(probed, monkeypatch):
    made = probed("import builtins\nold = len\ndef f(x): return old(x)\n", EXIT, Probe(at="f", where="entry"))
    monkeypatch.setattr("builtins.len", made.module.f)
    assert len("abc") == 3
    monkeypatch.undo()
    assert 1 <= len(made.records.hits) < 200
