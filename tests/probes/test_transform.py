"""Probes go where they were asked to, and nothing else in the file changes."""

from __future__ import annotations

import re

import pytest

from runbook.model.diagnostic import Diagnostic
from runbook.probes.block import patched_by
from runbook.probes.edits import edit
from runbook.probes.spec import Edit, Probe
from runbook.probes.transform import Transformed, transform

PATH = "/srv/engine/model.py"
CALL = re.compile(rb"_rb_[0-9a-f]{8}\(\d+\) and _rb_[0-9a-f]{8}\.hit\([^\r\n;]*\)")

LAST = re.compile(rb"_rb_[0-9a-f]{8}\.loaded\(0\)(\r\n|\n|\r)$")


def put(source: bytes | str, *probes: Probe, edits: tuple[Edit, ...] = ()) -> Transformed | list[Diagnostic]:
    data = source.encode() if isinstance(source, str) else source
    return transform(data, probes, edits, marker="run1/taps/1", side_file="/tmp/none", path=PATH, run="run1")


def done(source: bytes | str, *probes: Probe, edits: tuple[Edit, ...] = ()) -> bytes:
    """The patched bytes with the block taken out and each call shortened to PROBE."""
    result = put(source, *probes, edits=edits)
    assert isinstance(result, Transformed), result
    data = LAST.sub(b"", result.data)
    given = source.encode() if isinstance(source, str) else source
    data = data if given.endswith((b"\n", b"\r")) else re.sub(rb"(\r\n|\n|\r)$", b"", data)
    block = re.compile(rb"(\r\n|\n|\r)?# runbook probes run1.*?# runbook probes end(\r\n|\n|\r)", re.S)
    head, tail = block.split(data)[0], block.split(data)[-1]
    gap = b"" if not head or head.endswith((b"\n", b"\r")) else block.search(data)[1] or b""
    return CALL.sub(b"PROBE", head + (b"" if not gap or head.rstrip(b" ").endswith(b";") else gap) + tail)


def problem(source: bytes | str, *probes: Probe, edits: tuple[Edit, ...] = ()) -> Diagnostic:
    result = put(source, *probes, edits=edits)
    assert isinstance(result, list) and len(result) == 1, result
    return result[0]


PLACES = {
    "entry without docstring": (Probe(at="f", where="entry"), "def f():\n    return 1\n", "def f():\n    PROBE\n    return 1\n"),
    "entry behind a docstring": (
        Probe(at="f", where="entry"),
        'def f():\n    "d"\n    return 1\n',
        'def f():\n    "d"\n    PROBE\n    return 1\n',
    ),
    "a body that is only a docstring": (
        Probe(at="f", where="entry"),
        'def f():\n    """d\n    e"""\nx = 1\n',
        'def f():\n    """d\n    e"""\n    PROBE\nx = 1\n',
    ),
    "a one-line body": (Probe(at="f", where="entry"), "def f(): return 1\n", "def f(): PROBE; return 1\n"),
    "a one-line docstring": (Probe(at="f", where="entry"), 'def f(): "d"\n', 'def f(): "d"; PROBE\n'),
    "before in a one-line if": (Probe(at="f", before="return y"), "def f(x):\n  if x: return y\n", "def f(x):\n  if x: PROBE; return y\n"),
    "after between semicolons": (Probe(at="f", after="a = 1"), "def f():\n\ta = 1; b = 2\n", "def f():\n\ta = 1; PROBE; b = 2\n"),
    "after the last of a line": (Probe(at="f", after="b = 2"), "def f():\n a = 1; b = 2  # c\n", "def f():\n a = 1; b = 2; PROBE  # c\n"),
    "after with a trailing semicolon": (Probe(at="f", after="a = 1"), "def f():\n a = 1;\n", "def f():\n a = 1;\n PROBE\n"),
    "after a statement of several lines": (
        Probe(at="f", after="x = g( 1,2 )"),
        "def f():\n    x = g(1,  # one\n          2)  # two\n    return x\n",
        "def f():\n    x = g(1,  # one\n          2)  # two\n    PROBE\n    return x\n",
    ),
    "after a compound is after its block": (
        Probe(at="f", after="if x:"),
        "def f(x):\n    if x:\n        a()\n    else:\n        b()\n    # c\n    c()\n",
        "def f(x):\n    if x:\n        a()\n    else:\n        b()\n    PROBE\n    # c\n    c()\n",
    ),
    "before a decorated inner function": (
        Probe(at="f", before="def g(y):"),
        "def f():\n    @mark\n    def g(y): pass\n",
        "def f():\n    PROBE\n    @mark\n    def g(y): pass\n",
    ),
    "a nested function by its plain name": (
        Probe(at="f.g", after="z = 2"),
        "def f():\n    def g():\n        z = 2\n    z = 2\n",
        "def f():\n    def g():\n        z = 2\n        PROBE\n    z = 2\n",
    ),
    "a method among namesakes": (
        Probe(at="B.m", where="entry"),
        "class A:\n    def m(self): pass\nclass B:\n    @staticmethod\n    async def m(self): pass\n",
        "class A:\n    def m(self): pass\nclass B:\n    @staticmethod\n    async def m(self): PROBE; pass\n",
    ),
    "a definition behind a condition": (
        Probe(at="f", where="entry"),
        "if a:\n  def f():\n    yield 1\n",
        "if a:\n  def f():\n    PROBE\n    yield 1\n",
    ),
    "after a match": (
        Probe(at="f", after="match x:"),
        "def f(x):\n    match x:\n        case 1: a()\n        case _:\n            b()\n",
        "def f(x):\n    match x:\n        case 1: a()\n        case _:\n            b()\n    PROBE\n",
    ),
    "inside a match": (
        Probe(at="f", before="a()"),
        "def f(x):\n  match x:\n    case 1: a()\n",
        "def f(x):\n  match x:\n    case 1: PROBE; a()\n",
    ),
    "an async with": (
        Probe(at="f", before="async with x as y:"),
        "async def f(x):\n    async with x as y: pass\n",
        "async def f(x):\n    PROBE\n    async with x as y: pass\n",
    ),
    "a backslash behind the statement": (
        Probe(at="f", after="a = 1"),
        "def f():\n  a = 1; \\\n  b = 2\n",
        "def f():\n  a = 1; PROBE; \\\n  b = 2\n",
    ),
    "a backslash before the statement": (
        Probe(at="f", before="b = 2"),
        "def f():\n  a = 1; \\\n  b = 2\n",
        "def f():\n  a = 1; \\\n  PROBE; b = 2\n",
    ),
    "wide characters before the place": (
        Probe(at="f", after="a = 'é→𝄞'"),
        "def f():\n a = 'é→𝄞'; b = 2\n",
        "def f():\n a = 'é→𝄞'; PROBE; b = 2\n",
    ),
    "a form feed in the indentation": (
        Probe(at="f", where="entry"),
        "\x0cdef f():\n  \x0c  return 1\n",
        "\x0cdef f():\n  \x0c  PROBE\n  \x0c  return 1\n",
    ),
    "no line end at the end": (Probe(at="f", after="a = 1"), "def f():\n    a = 1", "def f():\n    a = 1\n    PROBE"),
    "windows line ends": (
        Probe(at="f", after="a = 1"),
        "def f():\r\n\ta = 1\r\n\treturn a\r\n",
        "def f():\r\n\ta = 1\r\n\tPROBE\r\n\treturn a\r\n",
    ),
    "old line ends": (Probe(at="f", after="a = 1"), "def f():\r  a = 1\r  return a\r", "def f():\r  a = 1\r  PROBE\r  return a\r"),
    "a separator that ends no line": (
        Probe(at="f", after="a = '\x1c\u2028'"),
        "def f():\n  a = '\x1c\u2028'\n  b = 1\n",
        "def f():\n  a = '\x1c\u2028'\n  PROBE\n  b = 1\n",
    ),
    "a shebang and a coding line stay first": (
        Probe(at="f", where="entry"),
        "#!/bin/env python\n# -*- coding: utf-8 -*-\ndef f(): pass\n",
        "#!/bin/env python\n# -*- coding: utf-8 -*-\ndef f(): PROBE; pass\n",
    ),
    "docstring and future imports stay first": (
        Probe(at="f", where="entry"),
        '"""d"""\nfrom __future__ import annotations\nimport os\ndef f(): pass\n',
        '"""d"""\nfrom __future__ import annotations\nimport os\ndef f(): PROBE; pass\n',
    ),
}


@pytest.mark.parametrize("case", PLACES)
def test_a_probe_goes_in_and_every_other_byte_stays(case):
    probe, before, after = PLACES[case]
    assert done(before, probe).decode() == after


def test_a_future_import_that_shares_its_line_stays_first():
    result = put("from __future__ import annotations; import os\ndef f(): pass\n", Probe(at="f", where="entry"))
    assert isinstance(result, Transformed)
    assert result.data.startswith(b"from __future__ import annotations; \n# runbook probes")
    assert b"# runbook probes end\nimport os\n" in result.data


def test_a_byte_order_mark_and_another_encoding_are_kept():
    assert (
        done(b"\xef\xbb\xbfdef f():\n    return '\xc3\xa9'\n", Probe(at="f", where="entry"))
        == b"\xef\xbb\xbfdef f():\n    PROBE\n    return '\xc3\xa9'\n"
    )
    latin = b"# coding: latin-1\ndef f():\n    a = '\xe9'; b = 2\n"
    assert done(latin, Probe(at="f", after="b = 2")) == latin.replace(b"b = 2", b"b = 2; PROBE")


def test_several_probes_keep_their_order_at_one_place():
    probes = Probe(at="f", after="a = 1", show=["a"]), Probe(at="f", before="b = 2", show=["a"]), Probe(at="f", after="a = 1", show=["a"])
    result = put("def f():\n    a = 1\n    b = 2\n", *probes)
    assert isinstance(result, Transformed)
    assert [int(n) for n in re.findall(rb"_rb_\w+\((\d)\) and", result.data)] == [0, 1, 2]
    lines = result.data.decode().splitlines()
    assert all(f"({place.index}) and" in lines[place.line_after - 1] for place in result.placed)
    assert [place.line for place in result.placed] == [2, 3, 2]


def test_the_difference_shows_the_probe_and_folds_the_block():
    result = put("def f():\n    a = 1\n", Probe(at="f", after="a = 1", show={"x": "a"}))
    assert isinstance(result, Transformed)
    assert len(result.diff.splitlines()) < 15
    assert re.search(r"^\+    _rb_\w+\(0\) and _rb_\w+\.hit\(0, \{'x': lambda: a\}\)$", result.diff, re.M)


def test_a_patched_file_says_whose_patch_it_carries():
    result = put("def f(): pass\n", Probe(at="f", where="entry"))
    assert isinstance(result, Transformed)
    assert patched_by(result.data) == "run1/taps/1"
    assert patched_by(b"# runbook probes are great\n") is None


def test_a_missing_anchor_names_the_nearest_lines():
    found = problem(
        "class M:\n  def f(self, b):\n    x = 1\n    hidden = b.spec.hidden_states\n    y = 2\n",
        Probe(at="M.f", after="hiden = b.spec.hidden_states"),
    )
    assert found.code == "anchor-missing"
    assert "line 4: `hidden = b.spec.hidden_states`" in found.summary
    assert found.span is not None and found.span.line == 4
    assert "same statement, changed" in (found.hint or "")


def test_an_anchor_that_is_there_twice_lists_its_places():
    found = problem("def f():\n  x = 1\n  if x:\n    x = 1\n", Probe(at="f", after="x=1"))
    assert found.code == "not-unique" and "lines 2, 4" in found.summary


def test_an_anchor_with_a_body_must_be_the_whole_statement():
    source = "def f(x):\n  if x:\n    a()\n"
    assert b"    a()\n  PROBE\n" in done(source, Probe(at="f", after="if x: a()"))
    assert problem(source, Probe(at="f", after="if x: b()")).code == "anchor-missing"


def test_an_anchor_in_a_nested_function_is_pointed_to():
    found = problem("def f():\n  def g():\n    x = 1\n", Probe(at="f", after="x = 1"))
    assert found.hint == "it is in `f.g`: write `at: f.g`"


def test_an_unknown_function_lists_those_that_are_near():
    found = problem("class LlamaModel:\n  def forward(self): pass\n", Probe(at="LLamaModel.forward", where="entry"))
    assert found.code == "function-missing" and "`LlamaModel.forward`" in (found.hint or "")


REFUSED = {
    "not-unique": ("if a:\n  def f(): pass\nelse:\n  def f(): pass\n", Probe(at="f", where="entry")),
    "unreachable": ("def f():\n  return 1\n", Probe(at="f", after="return 1")),
    "no-place": ("def f(a):\n  if a: pass\n  elif b: pass\n", Probe(at="f", before="elif b:")),
    "anchor-not-a-statement": ("def f(a):\n  try: pass\n  except E: pass\n", Probe(at="f", before="except E:")),
    "compiled-function": ("@triton.jit\ndef f(a):\n  b = a\n", Probe(at="f", where="entry")),
    "function-missing": ("class f:\n  pass\n", Probe(at="f", where="entry")),
    "syntax": ("def f(:\n", Probe(at="f", where="entry")),
    "encoding": ("# coding: klingon\ndef f(): pass\n", Probe(at="f", where="entry")),
}


@pytest.mark.parametrize("code", REFUSED)
def test_what_cannot_be_done_is_refused_with_its_reason(code):
    source, probe = REFUSED[code]
    found = problem(source, probe)
    assert found.code == code and found.hint


def test_overloads_are_not_the_function():
    source = "@overload\ndef f(a: int): ...\n@overload\ndef f(a: str): ...\ndef f(a):\n    return a\n"
    assert done(source, Probe(at="f", where="entry")).decode() == source.replace("    return a", "    PROBE\n    return a")


def test_binary_data_is_a_problem_not_a_traceback():
    for data in (b"\x00\x01\x02", b"\xff\xfe\x00d", bytes(range(256)), b"def f(): pass\n\x00"):
        assert isinstance(put(data, Probe(at="f", where="entry")), list)


def test_an_edit_counts_before_it_replaces():
    assert edit("a = 1\r\nb = 1\r\n", [Edit(find="a = 1\nb", with_="a = 2\nb")], PATH) == "a = 2\r\nb = 1\r\n"
    wrong = edit("a = 1\nb = 1\n", [Edit(find="= 1", with_="= 2")], PATH)
    assert isinstance(wrong, list) and wrong[0].code == "not-unique" and "lines 1, 2" in wrong[0].summary
    missing = edit("timeout = 30\n", [Edit(find="timeout = 3 0", with_="")], PATH)
    assert isinstance(missing, list) and "line 1: `timeout = 30`" in missing[0].summary


def test_an_edit_and_a_probe_go_together():
    source = "def f(a):\n    b = a\n    return b\n"
    result = done(source, Probe(at="f", after="b = a + 1"), edits=(Edit(find="b = a", with_="b = a + 1"),))
    assert result == b"def f(a):\n    b = a + 1\n    PROBE\n    return b\n"


@pytest.mark.parametrize(
    "probe",
    [
        Probe(at="f", where="entry", show=["x +"]),
        Probe(at="f", where="entry", show=["(y := 1)"]),
        Probe(at="f", where="entry", show={"pid": "x"}),
        Probe(at="f", where="entry", when="await x"),
        Probe(at="f", where="entry", after="x = 1"),
        Probe(at="f"),
        Probe(at="f()", where="entry"),
    ],
)
def test_a_probe_that_cannot_work_is_told_without_the_file(probe):
    assert len(probe.problems()) == 1


def test_between_two_lines_the_deeper_probe_comes_first_whatever_their_order():
    source = "def f(x):\n  for a in x:\n    if a:\n      b = a\n  c = 1\n"
    places = [Probe(at="f", after="for a in x:"), Probe(at="f", before="c = 1"), Probe(at="f", after="if a:"), Probe(at="f", after="b = a")]
    after = "def f(x):\n  for a in x:\n    if a:\n      b = a\n      PROBE\n    PROBE\n  PROBE\n  PROBE\n  c = 1\n"
    for order in (places, places[::-1]):
        assert done(source, *order).decode() == after
    assert done("def f(x):\n  if x:\n    a = 1; b = 2", *(Probe(at="f", after=text) for text in ("if x:", "b = 2"))).decode() == (
        "def f(x):\n  if x:\n    a = 1; b = 2; PROBE\n  PROBE"
    )
