"""An engine profile: what a server logs, answers and is called. Regexes are Python's, searched in one line after ANSI is stripped."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from runbook.model.fields import Regex
from runbook.model.units import Duration


class Processes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the server's processes are recognised. Patterns only find candidates; every signal goes to a (pid, start time)."""

    main: Annotated[Regex, Meta(description="argv of the main process")] = ""
    workers: Annotated[Regex, Meta(description="title of worker processes")] = ""
    rank_title: Annotated[Regex, Meta(description="title of a rank; the group `rank` is its number")] = ""


class Identity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the server says who it is."""

    path: str
    keys: tuple[str, ...] = ()


class Health(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contract of the health path: what it can answer at all, and what asking costs."""

    path: str = "/health"
    ready_status: tuple[int, ...] = (200,)
    starting_status: tuple[int, ...] = (503,)
    body: Annotated[str, Meta(description="`empty` when 200 never has a body, `json`, `text` or `unknown`")] = "unknown"
    min_latency: Duration | None = None
    client_timeout: Duration = Duration(10)
    side_effect: Annotated[str, Meta(description="what a check does to the server: `none` or `one_token_generation`")] = "none"
    alternatives: tuple[str, ...] = ()
    identity: tuple[Identity, ...] = ()


class Phase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One phase of a start. `mark` is a point; `begin` and `end` bound an interval; `progress` lines move inside it.

    `stall` is the stall budget: time without strong progress before suspicion.
    """

    id: str
    mark: Regex = ""
    begin: Regex = ""
    end: Regex = ""
    progress: Regex = ""
    per_rank: bool = False
    stall: Duration = Duration(300)


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that the engine knows about one kind of server. Source of the figures: docs/concepts/profiles.md."""

    profile: str
    describes: str = ""
    versions: Annotated[str, Meta(description="version range that the marks were seen in")] = ""
    untried: bool = False
    line: Annotated[Regex, Meta(description="shape of a log line; groups ts, rank, msg")] = ""
    launch_env: dict[str, str] = {}
    default_port: int | None = None
    port_flags: tuple[str, ...] = ("--port",)
    processes: Processes = Processes()
    health: Health = Health()
    phases: tuple[Phase, ...] = ()
    ready: Regex = ""
    noise: Annotated[tuple[Regex, ...], Meta(description="heartbeats and access lines: never progress")] = ()
    cause: Annotated[dict[str, Regex], Meta(description="fatal lines that are causes, by crash kind")] = {}
    effect: Annotated[dict[str, Regex], Meta(description="fatal lines that only follow from a cause")] = {}
    degraded: dict[str, Regex] = {}
    metrics: Annotated[dict[str, Any], Meta(description="metric name to its sources: response path, `/metrics` name, log regex")] = {}
