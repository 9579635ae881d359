"""Any real source, any function: only the probes are added."""

from __future__ import annotations

import ast
import importlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runbook.model.sample import Blind
from runbook.probes.anchors import functions, header, is_docstring, own_statements
from runbook.probes.outcome import judge
from runbook.probes.reading import Channel, read
from runbook.probes.spec import Probe
from runbook.probes.transform import Transformed, transform
from runbook.probes.view import View
from tests.support.insertions import fault

MODULES = """argparse ast asyncio.base_events asyncio.tasks bdb calendar codecs collections configparser contextlib copy csv dataclasses
 datetime difflib doctest email.message enum fractions functools heapq html.parser http.client inspect json.decoder logging
 pathlib pickle random shutil socket statistics string subprocess tarfile tempfile textwrap threading tokenize typing unittest.mock
 urllib.parse uuid zipfile""".split()
FAST = {"contextlib", "json.decoder"}
MARKER = "run1/p/1"


def put(data: bytes, probes: list[Probe]):
    return transform(data, probes, marker=MARKER, side_file="/tmp/none", path="/srv/m.py", run="run1")


def source_of(name: str) -> bytes:
    path = importlib.import_module(name).__file__
    assert path
    with open(path, "rb") as file:
        return file.read()


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in MODULES])
def test_every_function_of_a_real_module_takes_an_entry_and_an_exit_probe(name):
    """All functions whose name is theirs alone, all at once; only insertions are made."""
    data = source_of(name)
    names = [found for found, _ in functions(ast.parse(data))]
    probes = [Probe(at=found, where=where) for found in names if names.count(found) == 1 for where in ("entry", "exit")]
    result = put(data, probes)
    assert isinstance(result, Transformed), result
    assert len(result.placed) == len(probes) > 0
    assert fault(data, result.data, MARKER) == ""


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
    assert fault(data, result.data, MARKER) == ""


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


@settings(max_examples=8, deadline=None)
@given(
    st.lists(lines, max_size=8), st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["  ", "\t", "    "]), st.booleans(), st.booleans()
)
def test_generated_sources_come_back_without_their_probes(body, eol, indent, docstring, ends):
    rows = ["def f(a, y=()):", *([indent + '"doc"'] if docstring else []), indent + "a = 0", *(indent + row.format(indent) for row in body)]
    data = ("\n".join(rows) + ("\n" if ends else "")).replace("\n", eol).encode()
    result = put(data, [Probe(at="f", where="entry"), Probe(at="f", after="a = 0"), Probe(at="f", where="exit")])
    assert isinstance(result, Transformed), result
    assert fault(data, result.data, MARKER) == ""


plain = st.sampled_from(
    ["seen.append(n)", "n += 1", "return n", "return", "raise KeyError(n)", "n = 1 // (n - 2)", 's = """a\n b"""', "return n, [n]"]
)
headers = st.sampled_from(
    [
        "if n % 2:",
        "for n in range(2):",
        "while n < 3:\n{}n += 1",
        "with suppress(KeyError):",
        "try:|except KeyError:",
        "try:|finally:",
        "try:|else",
        "def g():",
    ]
)


@st.composite
def bodies(draw, depth: int = 0) -> list[str]:
    """Lines of a suite: statements and blocks, the latter with one more blank."""
    rows: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        if depth < 3 and draw(st.booleans()):
            rows += _block(draw, draw(headers), depth)
        else:
            rows += [draw(plain)]
    return rows


def _block(draw, header: str, depth: int) -> list[str]:
    inner = [" " + row for row in draw(bodies(depth + 1))]
    if header == "def g():":
        return ["def g(n=n):", *inner, "n = g() or 0", "n = n if isinstance(n, int) else 0"]
    if header == "while n < 3:\n{}n += 1":
        return ["while isinstance(n, int) and n < 3 and turns:", " turns.pop(); n += 1", *inner]  # what is inside may set n back
    first, *rest = header.split("|")
    tail = [" " + row for row in draw(bodies(depth + 1))] if rest else []
    if rest == ["else"]:
        return ["try:", *inner, "except (KeyError, ZeroDivisionError): n = 5", "else:", *tail]
    return [first, *inner, *([rest[0], *tail] if rest else [])]


def outcome(data: bytes, space: dict, given: int) -> tuple:
    """What a call does: the value or the exception, and what it has appended."""
    exec(compile(data, "m.py", "exec", dont_inherit=True), space)
    try:
        return space["f"](given), None, space["seen"]
    except (ArithmeticError, LookupError, NameError) as error:
        return None, type(error).__name__, space["seen"]


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(bodies(), st.integers(0, 3))
def test_a_watched_function_does_what_it_did_and_the_probe_saw_it(tmp_path, body, given):
    data = "\n".join(["from contextlib import suppress", "seen, turns = [], [0] * 8", "def f(n):", *(" " + row for row in body)]).encode()
    side = tmp_path / "side.jsonl"
    side.write_bytes(b"")
    made = transform(data, [Probe(at="f", where="exit")], marker=MARKER, side_file=str(side), path="m.py", run="run1")
    assert isinstance(made, Transformed), made
    assert fault(data, made.data, MARKER) == ""
    value, error, _ = plain_outcome = outcome(data, {"__name__": "m"}, given)
    assert outcome(made.data, {"__name__": "m"}, given) == plain_outcome
    (hit,) = read(side.read_bytes(), MARKER).hits
    assert (hit.raised.split(":")[0] or None) == error
    assert hit.shown["result"] == ({"error": "there is no result"} if error else list(value) if isinstance(value, tuple) else value)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=50))
def test_no_bytes_make_a_traceback(data, anchor):
    put(data, [Probe(at="f", after=anchor.decode("latin-1") or "x")])
    found = read(b'{"runbook": "m",' + data, "m")
    blind = Blind("no")
    assert judge(View(channel=found, path="", sha256="", written=0, since=0, until=1, side=blind, log=blind)).outcome == "unseen"
    assert read(data, "m") == Channel()
