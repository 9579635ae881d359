"""What a run shares between its steps: journal, state, connections, names, and whether it was interrupted."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from runbook.engine.journal import Journal
from runbook.engine.past import Past
from runbook.engine.reuse import Earlier
from runbook.engine.selection import unselected
from runbook.engine.state import RunState
from runbook.engine.stepping import Ask, Stepping
from runbook.engine.tree import Tree
from runbook.hosts.base import Cancelled, CancelToken, Host, HostError, HostFacts, LinkLost, Mark, ProcessId, Unreachable
from runbook.lang.values import Unknown
from runbook.model.clock import Clock
from runbook.model.event import ActionEnded, ActionStarted, Event, Found, HostConnected
from runbook.model.playbook import BlockNode, Node, Playbook, StepNode, Target
from runbook.model.profile import Profile
from runbook.model.usual import Kin, MeasuredStart
from runbook.model.verdict import Finding
from runbook.steps.base import RunInfo, Step

Connect = Callable[[Target, CancelToken, Callable[[str], None]], Host]
"""Connects to a target; the last argument takes what a user should know, such as a new host key."""
TensorDiff = Callable[[str, str, float, float], Any]
"""Behind the expression `tensor_diff(A, B, ATOL, RTOL)`: compares two files of the run folder."""


def _no_tensor_diff(a: str, b: str, atol: float, rtol: float) -> Any:
    return Unknown("tensor_diff: nothing here can read tensors")


def _nothing_earlier(kin: Kin) -> Sequence[MeasuredStart]:
    return ()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a run was asked for: plain data, so that a run can be started in a process of its own."""

    run: str
    dir: str
    overrides: dict[str, Any] = {}
    check: bool = False
    no_suspend: bool = False
    keep: bool = False
    """Launches and patches stay at the end, until the keeper's time is over."""
    wait_lease_s: float = 0.0
    """How long to wait for hosts that another run has leased."""
    argv: list[str] = []
    tags: list[str] = []
    skip_tags: list[str] = []
    start_at: str = ""
    diff: bool = False
    unmasked: list[str] = []
    """Secrets of this run whose values are not known any more: texts that may hold them are not brought here."""


class Runtime:
    """One run in progress. Thread safe where steps of several hosts meet: journal, connections."""

    def __init__(
        self,
        *,
        playbook: Playbook,
        options: Options,
        journal: Journal,
        table: Mapping[str, type[Step]],
        profile: Callable[[str], Profile],
        connect: Connect,
        secrets: Mapping[str, str],
        environ: Mapping[str, str],
        clock: Clock,
        tensor_diff: TensorDiff = _no_tensor_diff,
        profiles: Callable[[], Sequence[Profile]] = tuple,
        earlier: Callable[[Kin], Sequence[MeasuredStart]] = _nothing_earlier,
    ) -> None:
        self.playbook = playbook
        self.options = options
        self.journal = journal
        self.table = table
        self.profile = profile
        self.profiles = profiles
        self.secrets = secrets
        self.environ = environ
        self.clock = clock
        self.tensor_diff = tensor_diff
        self.earlier = earlier
        self.state = RunState()
        self.past = Past()
        self.reused: Earlier | None = None
        """The run whose servers and patches may be taken over."""
        self.keeping = False
        """In the last `always` of a run that keeps what it made."""
        self.cancel = CancelToken()
        self.info = RunInfo(id=options.run, dir=options.dir, suspend_for_s=float(playbook.suspend_for))
        self.ask: Ask | None = None
        """How to ask at the terminal; None where there is none."""
        self.stepping: Stepping | None = None
        """With `--step`."""
        self.tree = Tree(playbook)
        self.unselected = unselected(playbook, options.tags, options.skip_tags, options.start_at)
        """Steps and blocks that this run leaves out, and why."""
        self.nodes = {node.id: node for node in walk((*playbook.steps, *playbook.always))}
        self._connect = connect
        self._hosts: dict[str, Host] = {}
        self._reached: dict[str, HostFacts] = {}
        self._fates: dict[tuple[str, int, int], str] = {}
        self.leased: dict[str, Host] = {}
        """The connection over which this run took each host's lease."""
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._logs: dict[str, set[str]] = {}
        self._actions = 0
        self._seen: set[object] = set()
        journal.follow(self.state.apply)

    def emit(self, event: Event) -> None:
        """Write an event; the state follows."""
        self.journal.append(event)

    def find(self, code: str, text: str, step: str | None = None) -> None:
        """Record a finding."""
        self.emit(Found(finding=Finding(code=code, text=text, step=step)))

    def first_time(self, key: object) -> bool:
        """Whether this was not asked before in this run."""
        with self._lock:
            known = key in self._seen
            self._seen.add(key)
        return not known

    # hosts -------------------------------------------------------------------------------------------------------

    def targets(self, role: str) -> tuple[Target, ...]:
        """The targets of a role."""
        return self.playbook.hosts[role]

    def target(self, name: str) -> Target:
        """A target by the name that events use."""
        return next(target for targets in self.playbook.hosts.values() for target in targets if target.target == name)

    def host(self, name: str, within_s: float | None = None) -> Host:
        """The connection to a target, opened at its first use, and again after it was lost, then `within_s`. Raises Unreachable."""
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            known = self._hosts.get(name)
            if known is None or known.transport.lost is not None:
                self._hosts.pop(name, None)
                if known is not None:
                    known.close()
                self._hosts[name] = self._connected(name, within_s)
            return self._hosts[name]

    def remember(self, name: str, facts: HostFacts) -> None:
        """A connection that an earlier controller of this run had."""
        self._reached[name] = facts

    def was_reached(self, name: str) -> bool:
        """Whether this run had a connection to the target before."""
        return name in self._reached

    def fate(self, helper: HostFacts) -> str:
        """What became of the helper of an earlier connection: told, gone, stuck (see `Host.supersede`), rebooted, or empty: not known."""
        return self._fates.get((helper.boot_id, helper.pid, helper.start), "")

    def _connected(self, name: str, within_s: float | None) -> Host:
        began = self.clock.monotonic()
        before = self._reached.get(name)
        with self._token(within_s if before is not None else None) as token:
            try:
                host = self._connect(self.target(name), token, lambda text: self.find("host_note", f"{name}: {text}"))
            except Cancelled:
                if self.cancel.is_set():
                    raise
                raise LinkLost(f"{name} was not reached again in time", "check the network and the host") from None
        host.cancel = self.cancel
        took = self.clock.monotonic() - began
        if before is not None:
            self._take_over(host, before)
        self._reached[name] = host.facts
        self.emit(HostConnected(host=name, address=host.address, facts=msgspec.to_builtins(host.facts), seconds=took))
        for left in host.facts.abandoned:
            if left["run"] != self.options.run:
                self.find("abandoned_patch", _abandoned(name, left))
        return host

    @contextlib.contextmanager
    def _token(self, within_s: float | None) -> Iterator[CancelToken]:
        """The run's token; with a limit, one that is set at its end too."""
        if within_s is None:
            yield self.cancel
            return
        token = CancelToken()
        take_back = self.cancel.on_set(token.set)
        timer = threading.Timer(max(0.5, within_s), token.set)
        timer.daemon = True
        timer.start()
        try:
            yield token
        finally:
            timer.cancel()
            take_back()

    def _take_over(self, host: Host, before: HostFacts) -> None:
        """The helper of the lost link may still be there, and bytes for it still on their way: it is told to serve no more."""
        if before.boot_id != host.facts.boot_id:
            fate = "rebooted"
            self.find("rebooted", f"{host.name} was started again since it was last reached: what ran there is gone")
        else:
            try:
                fate = host.supersede(self.options.run, ProcessId(before.pid, before.start)) if before.start else "gone"
            except Unreachable:
                host.close()
                raise
            except HostError as problem:
                fate = "stuck"
                self.find(
                    "old_helper", f"{host.name}: the helper of the lost link (pid {before.pid}) may still be there: {problem.summary}"
                )
        self._fates[before.boot_id, before.pid, before.start] = fate

    def adopt(self, host: Host) -> None:
        """Use a connection that stands already, under its own name, and close it at the end."""
        host.cancel = self.cancel
        self._hosts[host.name] = host
        self._reached[host.name] = host.facts

    def connected(self) -> dict[str, Host]:
        """The hosts that were used so far."""
        return dict(self._hosts)

    def drop(self, name: str) -> None:
        """Forget a connection that was lost: whoever needs the host next connects again."""
        host = self._hosts.pop(name, None)
        if host is not None:
            host.close()

    def fresh_cancel(self) -> None:
        """A new token, so that cleanup can talk to the hosts after an interrupt."""
        self.cancel = CancelToken()
        for host in self._hosts.values():
            host.cancel = self.cancel

    def close(self) -> None:
        """Close all connections."""
        for host in self._hosts.values():
            host.close()

    # logs --------------------------------------------------------------------------------------------------------

    def watch_log(self, name: str, path: str) -> None:
        """Note this log at the start of each step on that host from now on."""
        self._logs.setdefault(name, set()).add(path)

    def marks(self, name: str) -> dict[str, Mark]:
        """Where the known logs of a host stand now; empty when there are none or the host does not answer."""
        paths = self._logs.get(name)
        if not paths or name not in self._hosts:
            return {}
        try:
            return self._hosts[name].marks(sorted(paths))
        except HostError:
            return {}  # the step itself is about to meet the same host and reports it

    # actions -----------------------------------------------------------------------------------------------------

    def count_actions(self, number: int) -> None:
        """So many have been before, in the journal that is gone on with."""
        self._actions = number

    def action(self, step: str, host: str, name: str, detail: dict[str, Any]) -> Action:
        """One act on a host, as a context manager."""
        with self._lock:
            self._actions += 1
            number = self._actions
        return Action(self, f"a{number}", step, host, name, detail)


class Action:
    """Emits started, then exactly one end: ok with what `done(…)` added, or failed with the error's sentence."""

    def __init__(self, runtime: Runtime, id: str, step: str, host: str, name: str, detail: dict[str, Any]) -> None:
        self._runtime = runtime
        self._common: dict[str, Any] = {"id": id, "step": step, "host": host, "action": name}
        self._detail = detail
        self._done: dict[str, Any] = {}

    def __enter__(self) -> Callable[..., None]:
        self._runtime.emit(ActionStarted(**self._common, detail=self._detail))
        return lambda **detail: self._done.update(detail)

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: object) -> None:
        ok = problem is None
        self._runtime.emit(
            ActionEnded(**self._common, ok=ok, detail=self._done, error="" if ok else str(problem) or type(problem).__name__)
        )


def _abandoned(host: str, left: dict[str, str]) -> str:
    if "problem" in left:
        return f"{host}: undo records of earlier runs could not be read: {left['problem']}"
    carries = f"{left['path']} still carries the patch `{left['id']}` of run {left['run']}, and that run's keeper is gone"
    return f"{host}: {carries}: `runbook restore --host {host}` gives it back"


def walk(nodes: tuple[Node, ...]) -> list[StepNode]:
    """All steps of these nodes in file order, those of blocks included."""
    found: list[StepNode] = []
    for node in nodes:
        if isinstance(node, BlockNode):
            found += walk((*node.steps, *node.rescue, *node.always))
        else:
            found.append(node)
    return found
