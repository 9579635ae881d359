"""Stacks that do not give the answer away: the programs' own names and files are replaced in their code before they run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

NEUTRAL = "run main step forward load_model init_engine execute process launch handle setup build prepare start loop worker create".split()
FILES = "engine/core.py engine/worker.py model_executor/loader.py runtime/launcher.py srv/scheduler.py app/main.py".split()
TELLING = "synchronize wait_until_ready poll_completion barrier wait_for_weights acquire_slot".split()
"""Names of places that wait. Threads that work stand in such a place too."""
Any_ = TypeVar("Any_", bound=Callable[..., Any])


def disguise(modules: Iterable[ModuleType], seed: int) -> None:
    """Give every function of these modules, and those inside them, another name and file, as the seed wants."""
    rng = random.Random(f"names {seed}")
    for module in modules:
        for function in vars(module).values():
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                function.__code__ = _renamed(function.__code__, rng, rng.choice(FILES))


def telling(function: Any_, rng: random.Random) -> Any_:
    """The same function under the name of a place that waits: on two seeds of three, whatever it does."""
    if rng.randrange(3) and isinstance(function, FunctionType):
        function.__code__ = _named(function.__code__, rng.choice(TELLING))
    return function


def _renamed(code: CodeType, rng: random.Random, file: str) -> CodeType:
    inner = tuple(_renamed(one, rng, file) if isinstance(one, CodeType) else one for one in code.co_consts)
    return _named(code.replace(co_consts=inner, co_filename=f"/opt/engine/{file}"), rng.choice(NEUTRAL))


def _named(code: CodeType, name: str) -> CodeType:
    changes: dict[str, Any] = {"co_name": name}
    if hasattr(code, "co_qualname"):
        changes["co_qualname"] = name  # what a profiler shows since Python 3.11
    return code.replace(**changes)
