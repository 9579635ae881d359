"""Any real source, any function: only the probes are added."""

from __future__ import annotations

import ast
import importlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.model.sample import Blind
from runbook.probes.anchors import functions, header, is_docstring, own_statements
from runbook.probes.outcome import judge
from runbook.probes.reading import Channel, read
from runbook.probes.spec import Probe
from runbook.probes.transform import Transformed, transform
from runbook.probes.view import View

MODULES = """argparse ast asyncio.base_events asyncio.tasks bdb calendar codecs collections configparser contextlib copy csv dataclasses
 datetime difflib doctest email.message enum fractions functools heapq html.parser http.client inspect json.decoder logging
 pathlib pickle random shutil socket statistics string subprocess tarfile tempfile textwrap threading tokenize typing unittest.mock
 urllib.parse uuid zipfile""".split()
FAST = {"asyncio.tasks", "contextlib", "dataclasses", "http.client", "json.decoder", "textwrap"}
BLOCK = re.compile(rb"# runbook probes run1/p/1: .*?# runbook probes end\n", re.S)
OWN_LINE = re.compile(rb"(?m)^[ \t\f]*_rb_[0-9a-f]{8}\(\d+\) and _rb_[0-9a-f]{8}\.hit\(.*\)\n")
INLINE = re.compile(rb"_rb_[0-9a-f]{8}\(\d+\) and _rb_[0-9a-f]{8}\.hit\(\d+, \{\}\)(; )?")


def put(data: bytes, probes: list[Probe]):
    return transform(data, probes, marker="run1/p/1", side_file="/tmp/none", path="/srv/m.py", run="run1")


def without_probes(data: bytes) -> bytes:
    return INLINE.sub(b"", OWN_LINE.sub(b"", BLOCK.sub(b"", data)))


def source_of(name: str) -> bytes:
    path = importlib.import_module(name).__file__
    assert path
    with open(path, "rb") as file:
        return file.read()


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in MODULES])
def test_every_function_of_a_real_module_takes_an_entry_probe(name):
    """All functions whose name is theirs alone, all at once; taking the probes out gives the file back."""
    data = source_of(name)
    names = [found for found, _ in functions(ast.parse(data))]
    probes = [Probe(at=found, where="entry") for found in names if names.count(found) == 1]
    result = put(data, probes)
    assert isinstance(result, Transformed), result
    compile(result.data, "m.py", "exec", dont_inherit=True)
    assert len(result.placed) == len(probes) > 0
    assert re.sub(rb"; ?(?=\n)", b"", without_probes(result.data)) == re.sub(rb"; ?(?=\n)", b"", data)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["argparse", "asyncio.base_events", "http.client", "subprocess", "zipfile"])
def test_every_statement_that_is_there_once_is_found_by_its_own_text(name):
    data = source_of(name)
    tree = ast.parse(data)
    names = [found for found, _ in functions(tree)]
    wanted = []
    for found, function in functions(tree):
        texts = [header(statement) for statement in own_statements(function)]
        alone = [(text, node) for text, node in zip(texts, own_statements(function), strict=True) if texts.count(text) == 1]
        plain = [
            text for text, node in alone if not is_docstring(node) and not data.splitlines()[node.lineno - 1].lstrip().startswith(b"elif")
        ]
        wanted += [Probe(at=found, before=text) for text in plain] if names.count(found) == 1 else []
    result = put(data, wanted)
    assert isinstance(result, Transformed), result
    assert len(result.placed) == len(wanted) > 50
    assert without_probes(result.data) == data


lines = st.sampled_from(
    [
        "a = 1",
        "a = 1; b = 2",
        "if a: b = 1",
        "return a",
        "pass",
        "# note",
        "",
        "for x in y: pass; z = 1",
        "s = '''é\n  t'''",
        "@d\n{0}def g(): pass",
    ]
)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(lines, max_size=8), st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["  ", "\t", "    "]), st.booleans(), st.booleans()
)
def test_generated_sources_come_back_without_their_probes(body, eol, indent, docstring, ends):
    rows = ["def f(a, y=()):", *([indent + '"doc"'] if docstring else []), indent + "a = 0", *(indent + row.format(indent) for row in body)]
    data = ("\n".join(rows) + ("\n" if ends else "")).replace("\n", eol).encode()
    result = put(data, [Probe(at="f", where="entry"), Probe(at="f", after="a = 0")])
    assert isinstance(result, Transformed), result
    compile(result.data, "m.py", "exec", dont_inherit=True)
    back = re.compile(BLOCK.pattern.replace(rb"end\n", rb"end" + eol.encode()), re.S).sub(b"", result.data)
    back = re.sub(rb"[ \t]*_rb_[0-9a-f]{8}\(\d\) and _rb_[0-9a-f]{8}\.hit\(\d, \{\}\)(?:" + eol.encode() + rb")?", b"", back)
    assert back.rstrip() == data.rstrip()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=50))
def test_no_bytes_make_a_traceback(data, anchor):
    put(data, [Probe(at="f", after=anchor.decode("latin-1") or "x")])
    found = read(b'{"runbook": "m",' + data, "m")
    blind = Blind("no")
    assert judge(View(channel=found, path="", sha256="", written=0, since=0, until=1, side=blind, log=blind)).outcome == "unseen"
    assert read(data, "m") == Channel()
