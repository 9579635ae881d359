"""Stacks that do not give the answer away: the programs' own names and files are replaced in their code before they run.

The files are there, with the source that is run, as those of any program: only its functions have other names than on the stacks.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

NEUTRAL = "run main step forward load_model init_engine execute process launch handle setup build prepare start loop worker create".split()
FILES = "engine/core.py engine/worker.py model_executor/loader.py runtime/launcher.py srv/scheduler.py app/main.py".split()
TELLING = "synchronize wait_until_ready poll_completion barrier wait_for_weights acquire_slot".split()
"""Names of places that wait. Threads that work stand in such a place too."""
Any_ = TypeVar("Any_", bound=Callable[..., Any])


def sources(names: Sequence[str], seed: int, folder: Path) -> dict[str, Path]:
    """The file that each module seems to lie in, as the seed wants."""
    rng = random.Random(f"files {seed}")
    return {name: folder / f"app{number}" / rng.choice(FILES) for number, name in enumerate(names)}


def lay_out(names: Sequence[str], seed: int, folder: Path) -> None:
    """Write the sources of these modules into the files that `disguise` names."""
    for name, path in sources(names, seed, folder).items():
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(Path(spec.origin).read_bytes())


def disguise(modules: Sequence[ModuleType], seed: int, folder: Path) -> None:
    """Give every function of these modules, and those inside them, another name and file, as the seed wants."""
    rng = random.Random(f"names {seed}")
    paths = sources([module.__name__ for module in modules], seed, folder)
    for module in modules:
        for function in vars(module).values():
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                function.__code__ = _renamed(function.__code__, rng, str(paths[module.__name__]))
            elif isinstance(function, type) and function.__module__ == module.__name__:
                _rename_methods(function, rng, str(paths[module.__name__]))


def _rename_methods(kind: type, rng: random.Random, file: str) -> None:
    for method in vars(kind).values():
        if isinstance(method, FunctionType):
            method.__code__ = _renamed(method.__code__, rng, file)


def telling(function: Any_, rng: random.Random) -> Any_:
    """The same function under the name of a place that waits: on two seeds of three, whatever it does."""
    if rng.randrange(3) and isinstance(function, FunctionType):
        function.__code__ = _named(function.__code__, rng.choice(TELLING))
    return function


def _renamed(code: CodeType, rng: random.Random, file: str) -> CodeType:
    inner = tuple(_renamed(one, rng, file) if isinstance(one, CodeType) else one for one in code.co_consts)
    return _named(code.replace(co_consts=inner, co_filename=file), rng.choice(NEUTRAL))


def _named(code: CodeType, name: str) -> CodeType:
    changes: dict[str, Any] = {"co_name": name}
    if hasattr(code, "co_qualname"):
        changes["co_qualname"] = name  # what a profiler shows since Python 3.11
    return code.replace(**changes)
