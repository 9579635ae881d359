"""A class that was built, the function that runs when its method is called, and the end of an import: each tells of itself."""

from __future__ import annotations

import pytest

from runbook.probes.spec import Probe
from runbook.probes.transform import transform

MODEL = """
class Model:
    def __init__(self, size):
        self.size = size
        if size < 0: raise ValueError(size)
        if not size:
            return
        self.big = True
    def forward(self): return self.size
class Wide(Model):
    def forward(self): return 2 * self.size
"""
ALIVE = Probe(at="Model.forward", where="entry", alive="Model")


def test_the_first_object_of_each_class_is_told(probed):
    made = probed(MODEL, ALIVE)
    for kind in (made.module.Model, made.module.Model, made.module.Wide):
        kind(1), kind(0)
    assert [one.made.split(".")[-1] for one in made.records.built] == ["Model", "Wide"]
    assert all(one.alive == "Model" for one in made.records.built)


def test_a_constructor_that_raises_has_built_nothing(probed):
    made = probed(MODEL, ALIVE)
    with pytest.raises(ValueError):
        made.module.Model(-1)
    assert made.records.built == ()


def test_a_subclass_that_overrides_the_function_is_told(probed):
    made = probed(MODEL, ALIVE)
    made.module.Model(1), made.module.Wide(1)
    plain, wide = made.records.built
    assert plain.replaced == {} and "Wide.forward" in wide.replaced["0"]


def test_an_object_with_a_function_of_its_own_is_told(probed):
    made = probed(MODEL.replace("self.big = True", "self.forward = print"), ALIVE)
    made.module.Model(1)
    assert "builtin_function_or_method" in made.records.built[0].replaced["0"]


CONSTRUCTORS = {
    "in the line of its def": "class A:\n    def __init__(self): self.x = 1\n",
    "with a docstring only": 'class A:\n    def __init__(self): "d"\n',
    "of a dataclass": "import dataclasses\n@dataclasses.dataclass\nclass A:\n    x: int = 1\n    def __post_init__(self):\n        self.y = 2",
    "with any arguments": "class A:\n    def __init__(*args):\n        if args: pass\n",
    "that ends in a block": "class A:\n    def __init__(this):\n        for n in ():\n            if n: return\n",
    "inside a function": "def make():\n    class A:\n        def __init__(self): return\n    return A\nA = make()\n",
}


@pytest.mark.parametrize("how", CONSTRUCTORS)
def test_a_constructor_tells(probed, how):
    name = "make.A" if "make" in CONSTRUCTORS[how] else "A"
    source = CONSTRUCTORS[how] + "\ndef f(): pass\n"
    made = probed(source, Probe(at="f", where="entry", alive=name), Probe(at="f", where="exit", alive=name))
    made.module.A()
    assert [one.alive for one in made.records.built] == [name]


def test_a_watched_constructor_still_tells(probed):
    made = probed(MODEL, Probe(at="Model.__init__", where="exit", alive="Model"), Probe(at="Model.__init__", after="self.size = size"))
    made.module.Model(1), made.module.Model(0)
    assert len(made.records.built) == 1
    assert [(hit.probe, hit.exit) for hit in made.records.hits] == [(1, ""), (0, "return"), (1, ""), (0, "return")]


@pytest.mark.parametrize("name, text", [("Modell", "no class `Modell`"), ("Wide", "no `__init__` of its own")])
def test_a_class_that_cannot_tell_is_refused_with_its_reason(name, text):
    probe = Probe(at="Model.forward", where="entry", alive=name)
    (found,) = transform(MODEL.encode(), [probe], marker="m", side_file="/x", path="/srv/m.py", run="m")
    assert found.code == "class-missing" and text in found.summary and found.hint


def test_the_end_of_an_import_is_told_and_a_failed_one_is_not(probed):
    assert len(probed(MODEL, ALIVE).records.loaded) == 1
    with pytest.raises(ImportError):
        probed("def f(): pass\nimport no_such_module\n", Probe(at="f", where="entry"))


STANDING = {
    "as it is": ("def f(): return 1\n", ""),
    "behind a decorator that says what it wraps": (
        "import functools\ndef d(g):\n    @functools.wraps(g)\n    def w(*a): return g(*a)\n    return w\n@d\ndef f(): return 1\n",
        "",
    ),
    "behind a decorator that does not": ("def d(g):\n    return lambda: g()\n@d\ndef f(): return 1\n", ""),
    "in an object": (
        "class D:\n    def __init__(self, g): self.g = g\n    def __call__(self): return self.g()\n@D\ndef f(): return 1\n",
        "",
    ),
    "partly applied": ("import functools\ndef f(x=1): return x\nf = functools.partial(f, 2)\n", ""),
    "behind a cache": ("import functools\n@functools.lru_cache\ndef f(): return 1\n", "a cache answers for it"),
    "another one": ("def f(): return 1\nfrom os import getcwd as f\n", "builtin_function_or_method getcwd"),
    "another function of the file": ("def f(): return 1\ndef g(): return 2\nf = g\n", "function g"),
    "taken away": ("def f(): return 1\ndel f\n", "there is no f"),
    "never defined": ("if 0:\n    def f(): return 1\n", "there is no f"),
}


@pytest.mark.parametrize("how", STANDING)
def test_what_a_name_leads_to_after_the_import(probed, how):
    source, said = STANDING[how]
    replaced = probed(source, Probe(at="f", where="entry")).records.loaded[0].replaced
    assert said in replaced["0"] if said else replaced == {}


def test_methods_are_found_in_their_classes(probed):
    source = (
        "class A:\n    @property\n    def p(self): return 1\n    @staticmethod\n    def s(): return 1\n    @classmethod\n    def c(cls): return 1\n"
        "    class B:\n        def m(self): return 1\n    def lost(self): return 1\nA.lost = A.s\ndef f():\n    def g(): pass\n"
    )
    names = ["A.p", "A.s", "A.c", "A.B.m", "A.lost", "f.g"]
    told = probed(source, *(Probe(at=name, where="entry") for name in names)).records.loaded[0]
    assert list(told.replaced) == ["4"] and told.unseen == (5,)
