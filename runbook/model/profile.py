"""An engine profile: what a server logs, answers and is called. Regexes are Python's, searched in one line after ANSI is stripped."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from runbook.model.fields import Regex
from runbook.model.units import Duration

Versions = Annotated[str, Meta(pattern=r"^(?:(?:[<>]=?|==)\d+(?:\.\w+)*)(?:,(?:[<>]=?|==)\d+(?:\.\w+)*)*$")]
"""A version range as pip writes it: `>=0.4.6,<=0.5.23`."""


class Processes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the server's processes are recognised. Patterns only find candidates; every signal goes to a (pid, start time)."""

    main: Annotated[Regex, Meta(description="argv of the main process")] = ""
    workers: Annotated[Regex, Meta(description="title of worker processes")] = ""
    rank_title: Annotated[Regex, Meta(description="title of a rank; the group `rank` is its number")] = ""
    ladder: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^(?:SIG)?[A-Z][A-Z0-9]*\s+\d+(?:\.\d+)?(?:ms|s|m)$")], ...],
        Meta(description="kill order: signals to the main process first, then to what is left, with the time that each may take"),
    ] = ("TERM 15s", "KILL 10s")
    outlive_main: Annotated[
        bool | None, Meta(description="whether workers live on, with their GPU memory, when the main process is killed; null: not known")
    ] = None
    replaced: Annotated[
        bool | None, Meta(description="whether a worker that ended may be started anew while the server runs; null: not known")
    ] = None


class Identity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the server says who it is."""

    path: Annotated[str, Meta(description="path of a GET without side effects")]
    keys: Annotated[tuple[str, ...], Meta(description="keys of its JSON that tell one server from another")] = ()


class Health(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contract of the health path: what it can answer at all, and what asking costs."""

    path: Annotated[str, Meta(description="the path that this is about")] = "/health"
    ready_status: Annotated[tuple[int, ...], Meta(description="statuses of a ready server")] = (200,)
    starting_status: Annotated[tuple[int, ...], Meta(description="statuses while it starts, once it listens")] = (503,)
    unhealthy_status: Annotated[tuple[int, ...], Meta(description="statuses of a server that knows that it is broken")] = ()
    body: Annotated[
        Literal["empty", "json", "text", "unknown"], Meta(description="what a ready answer carries; `empty`: never a single byte")
    ] = "unknown"
    json: Annotated[Any, Meta(description="the JSON of a ready answer, where it is always the same")] = None
    listens: Annotated[
        Literal["before_load", "after_load", "unknown"], Meta(description="when the port opens; `after_load`: refused all through a load")
    ] = "unknown"
    min_latency: Annotated[Duration | None, Meta(description="no answer comes earlier: a shorter check always fails")] = None
    client_timeout: Annotated[Duration, Meta(description="how long a client has to wait for the answer of a broken server")] = Duration(10)
    side_effect: Annotated[Literal["none", "one_token_generation"], Meta(description="what a check does to the server")] = "none"
    lies: Annotated[tuple[str, ...], Meta(description="when a good answer proves nothing: one sentence each")] = ()
    alternatives: Annotated[tuple[str, ...], Meta(description="paths that can be asked instead, cheapest first")] = ()
    identity: Annotated[tuple[Identity, ...], Meta(description="where the server says who it is, tried in order")] = ()


class Phase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One phase of a start. `mark` is a point; `begin` and `end` bound an interval; `progress` lines move inside it.

    `stall` is the stall budget: time without strong progress before suspicion.
    """

    id: Annotated[str, Meta(pattern="^[a-z][a-z0-9_]*$")]
    mark: Annotated[Regex, Meta(description="a line that opens the phase, where it has no end of its own")] = ""
    begin: Annotated[Regex, Meta(description="a line that opens the phase")] = ""
    end: Annotated[Regex, Meta(description="a line that closes it")] = ""
    progress: Annotated[Regex, Meta(description="lines that move inside it")] = ""
    per_rank: Annotated[bool, Meta(description="every rank goes through it and says so")] = False
    optional: Annotated[bool, Meta(description="not every start has it")] = False
    stall: Annotated[Duration, Meta(description="time without strong progress before suspicion")] = Duration(300)
    known: Annotated[dict[str, Versions], Meta(description="a narrower version range than the profile's, by distribution")] = {}


class NotReady(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line that looks like a ready mark and is none."""

    line: Annotated[str, Meta(description="the line as it is printed", min_length=1)]
    why: Annotated[str, Meta(description="what is not yet true when it is printed", min_length=1)]


class Graphs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """CUDA graph capture: Python in a captured forward runs while it is captured, and not again when the graph is replayed."""

    code: Annotated[Regex, Meta(description="module names and file paths whose forwards are captured")] = ""
    eager: Annotated[tuple[str, ...], Meta(description="flags of the launch command that switch capture off")] = ()


class Counters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the engine counts its work, as Prometheus text; several names are added up. Without labels, or over all labels."""

    path: Annotated[str, Meta(description="path of a GET without side effects")] = "/metrics"
    tokens: Annotated[tuple[str, ...], Meta(description="counters of prompt and generated tokens")] = ()
    steps: Annotated[tuple[str, ...], Meta(description="counters of forward passes or training steps")] = ()
    running: Annotated[tuple[str, ...], Meta(description="gauges of requests that are being worked on")] = ()
    waiting: Annotated[tuple[str, ...], Meta(description="gauges of requests that wait")] = ()


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that the engine knows about one kind of server. Source of the figures: docs/concepts/profiles.md."""

    profile: Annotated[str, Meta(description="its name, which is its file's", pattern="^[a-z][a-z0-9_-]*$")]
    extends: Annotated[str, Meta(description="a profile whose keys it takes over; mappings and phases are merged, all else replaced")] = ""
    describes: Annotated[str, Meta(description="what kind of server, in one line")] = ""
    known: Annotated[dict[str, Versions], Meta(description="version range, by distribution, in which the marks were read")] = {}
    read_in: Annotated[str, Meta(description="where the marks were read, where that has no version number")] = ""
    untried: Annotated[bool, Meta(description="true: read in sources only, never held against a running server")] = False
    line: Annotated[Regex, Meta(description="shape of a log line; groups ts, rank, msg")] = ""
    launch_env: Annotated[dict[str, str], Meta(description="variables that a launch adds")] = {}
    default_port: Annotated[int | None, Meta(description="the port when the command names none")] = None
    port_flags: Annotated[tuple[str, ...], Meta(description="flags of the command that name the port")] = ("--port",)
    processes: Annotated[Processes, Meta(description="how its processes are recognised and ended")] = Processes()
    health: Annotated[Health, Meta(description="the contract of its health path")] = Health()
    phases: Annotated[tuple[Phase, ...], Meta(description="phases of a start, in their usual order")] = ()
    ready: Annotated[Regex, Meta(description="the line after which it serves")] = ""
    not_ready: Annotated[tuple[NotReady, ...], Meta(description="lines that look like a ready mark and are none")] = ()
    graphs: Annotated[Graphs, Meta(description="what a replayed CUDA graph hides from a probe")] = Graphs()
    noise: Annotated[tuple[Regex, ...], Meta(description="heartbeats, access lines, idle complaints: never progress or cause")] = ()
    cause: Annotated[dict[str, Regex], Meta(description="fatal lines that are causes, by crash kind")] = {}
    effect: Annotated[dict[str, Regex], Meta(description="fatal lines that only follow from a cause")] = {}
    degraded: Annotated[dict[str, Regex], Meta(description="lines of a server that is up and does less than it should")] = {}
    engine: Annotated[Counters, Meta(description="its own counters of work, by which a hang is told from an idle server")] = Counters()
    metrics: Annotated[dict[str, Any], Meta(description="metric name to its sources: response path, `/metrics` name, log regex")] = {}

    @property
    def front_alone(self) -> bool:
        """Whether a health answer comes from a front that asks its workers nothing."""
        return self.health.side_effect == "none" and bool(self.processes.workers)
