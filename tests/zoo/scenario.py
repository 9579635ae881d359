"""What a scenario is: a program whose truth is known. One function each, registered by its decorator; standard library only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from runbook.lab.faults import Stage

Play = Callable[[Stage], Any]


@dataclass(frozen=True)
class Scenario:
    """`play` is the program of the watched process, `outside` that of a second one which is not part of its tree.

    `truth`: hung, live (works, slowly), serving, crashed or wrong_check. `kinds`: acceptable kinds of a right verdict, all when empty.
    `pace` sets the time that a hang may take to be named: decisive, frozen or spin.
    """

    name: str
    truth: str
    play: Play
    about: str
    kinds: tuple[str, ...] = ()
    pace: str = "frozen"
    ranks: int | None = None
    outside: Play | None = None
    stdin: str = "null"
    serves: bool = False
    silent: bool = False
    """It lives without a sign of it, as an idle worker does: nothing better than `undecided` can be said."""
    also: tuple[str, ...] = ()
    """Verdicts that are as true, as `wrong_check` of a server without the path that is asked."""
    twin: str = ""
    """Of a hang: a live scenario that nobody can tell from it from outside, so that `undecided` is right for both."""
    body: str | None = None
    """Regex that the health check wants in the body."""

    @property
    def right(self) -> str:
        """The verdict that is true."""
        return {"live": "slow", "serving": "passed"}.get(self.truth, self.truth)

    @property
    def is_untold(self) -> bool:
        """Whether nothing better than `undecided` can be said."""
        return self.silent or bool(self.twin)

    @property
    def is_alive(self) -> bool:
        """Whether `hung` would be the worst of all wrong verdicts."""
        return self.truth in ("live", "serving")


SCENARIOS: dict[str, Scenario] = {}


def _scenario(truth: str, kinds: tuple[str, ...], more: dict[str, Any]) -> Callable[[Play], Play]:
    def register(play: Play) -> Play:
        name = play.__name__
        assert name not in SCENARIOS and play.__doc__, name
        SCENARIOS[name] = replace(Scenario(name, truth, play, play.__doc__.partition("\n")[0], kinds), **more)
        return play

    return register


def hung(*kinds: str, **more: Any) -> Callable[[Play], Play]:
    """A process that makes no progress any more, and which kinds of hang a verdict may call it."""
    return _scenario("hung", kinds, more)


def live(**more: Any) -> Callable[[Play], Play]:
    """A live twin: it works, however quiet it looks."""
    return _scenario("live", (), more)


def serving(**more: Any) -> Callable[[Play], Play]:
    """A server that answers."""
    return _scenario("serving", (), {"serves": True, **more})


def crashed(*kinds: str, **more: Any) -> Callable[[Play], Play]:
    """A process that dies."""
    return _scenario("crashed", kinds, {"pace": "crash", **more})


def wrong_check(**more: Any) -> Callable[[Play], Play]:
    """A server that answers, but never as the check wants it."""
    return _scenario("wrong_check", (), {"serves": True, "pace": "check", **more})
