"""checkpoint: what a checkpoint's files hold, without loading it, against what somebody expects."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Union

import msgspec
from msgspec import Meta

from runbook.hosts.base import RemoteError, Reply
from runbook.lang.expressions import Unknown
from runbook.model.fields import ForwardLaunchRef
from runbook.model.units import format_size
from runbook.model.verdict import Diagnosis, Evidence
from runbook.steps.base import Step, StepContext, StepResult
from runbook.steps.draft_config import fusion, fusion_findings, map_finding
from runbook.steps.expectations import Expect, differences
from runbook.steps.tensor_names import Entries, Entry, unmatched

DAMAGED = frozenset("truncated damaged pointer missing twice index".split())
BLIND = frozenset(("unreadable", "unsupported"))
MOST_KEYS = 5000
"""Of more, the lists are in the run's evidence and not in its journal."""
MOST_NAMED = 5


class Against(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to compare with: another checkpoint, or the parameters of a class."""

    path: Annotated[str, Meta(description="another checkpoint on the same host")] = ""
    module: Annotated[str, Meta(description="module of a model class; it is imported by the launch's interpreter, without a GPU")] = ""
    class_: Annotated[str, Meta(description="the class, built on torch's meta device")] = msgspec.field(name="class", default="")
    config: Annotated[str, Meta(description="config.json for the class; left out: the one beside the weights")] = ""
    python: Annotated[str, Meta(description="interpreter that has the module, instead of a launch's")] = ""
    for_: Annotated[ForwardLaunchRef | None, Meta(description="the launch whose interpreter to ask; implied when there is only one")] = (
        msgspec.field(name="for", default=None)
    )


class Checkpoint(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read keys, shapes and types of a checkpoint without loading it, and hold them against what is expected.

    A cut or half-written file, a missing shard and an index that contradicts the shards fail the step and are named with the
    numbers. What could not be read leaves it undecided. Nothing of a pickle is executed.
    """

    TYPE: ClassVar[str] = "checkpoint"
    SHORTHAND: ClassVar[str | None] = "path"
    TIMEOUT: ClassVar[str] = "5m"
    RESULTS: ClassVar[dict[str, str]] = {
        "keys": "names of all tensors; unknown beyond 5,000, they are in `listing` then",
        "shapes": "shape by key",
        "dtypes": "type by key, in torch's words: bfloat16, int64",
        "count": "number of tensors",
        "bytes": "bytes of all tensors",
        "files": "bytes of each file that was read",
        "faults": "what is wrong with the files: kind, file, text",
        "stats": "min, max, mean, std of the finite numbers, nan, inf, zero, elements, read; by key of `tensors`",
        "skipped": "why a tensor of `tensors` has no statistics, by key or pattern",
        "unmatched": "against the other side: count, only_here, only_there, shapes, dtypes, renames (here, there, pairs)",
        "config": "config.json beside the weights",
        "fusion": "of a draft: architectures, layer_ids, taps, use_aux_hidden_state, fc (key, shape), fc_taps",
        "maps": "maps of draft to target tokens (`d2t`): key, reading (offsets, absolute, either, neither), evidence of both",
        "listing": "file in the run folder with key, type and shape of every tensor",
    }
    EXAMPLE: ClassVar[str] = (
        "id: draft\ncheckpoint:\n  path: /models/draft\n  expect:\n    keys: ['midlayer.*']\n    shapes: {'*fc.weight': [7168, 21504]}\n"
        "  tensors: ['*norm.weight']"
    )

    path: Annotated[str, Meta(description="a safetensors file, a folder of shards, or a .pt, .pth or .bin file of torch")]
    expect: Annotated[Expect | None, Meta(description="what must hold; left out: only that the files are whole")] = None
    tensors: Annotated[list[str], Meta(description="keys or patterns whose numbers are read for `stats`")] = []
    against: Annotated[Union[Against, None], Meta(description="what to compare with; differences are results and a finding")] = None

    def problems(self) -> list[tuple[str, str, str]]:
        """Exactly one other side."""
        other = self.against
        if other is None:
            return []
        if bool(other.path) == bool(other.module):
            return [("against", "`against` needs exactly one of `path`, `module`", "write `path: …`, or `module: …` with `class: …`")]
        if other.module and not other.class_:
            return [("against", "`against.module` needs the `class`", "add for example `class: LlamaForCausalLMEagle3`")]
        return []

    def plan(self) -> list[str]:
        """What is read."""
        lines = [f"read the headers of {self.path}" + (f", and the numbers of {', '.join(self.tensors)}" if self.tensors else "")]
        if self.against and self.against.path:
            lines.append(f"  compare with the headers of {self.against.path}")
        elif self.against:
            lines.append(f"  compare with what {self.against.module}.{self.against.class_} expects, built without weights or GPU")
        return lines

    def run(self, ctx: StepContext) -> StepResult:
        """Read, hold against, judge."""
        try:
            found = read(ctx, self.path, self.tensors)
        except RemoteError as problem:
            verdict = "failed" if problem.code == "not_found" else "undecided"
            return StepResult(verdict=verdict, reason=problem.summary + (f"; {problem.hint}" if problem.hint else ""))
        fields = _fields(ctx, found)
        blind = [f"{fault['file']}: {fault['text']}" for fault in found.faults if fault["kind"] in BLIND]
        wrong = [_fault(fault) for fault in found.faults if fault["kind"] in DAMAGED]
        differ = differences(self.expect, found.entries, partial=bool(blind)) if self.expect else []
        for fault in found.faults:
            if fault["kind"] not in DAMAGED | BLIND:
                ctx.find(f"checkpoint_{fault['kind']}", _fault(fault))
        for key, why in list(found.data["skipped"].items())[:MOST_NAMED]:
            ctx.find("no_statistics", f"`{key}`: {why}")
        other = self._against(ctx, found)
        fields["unmatched"] = other
        if isinstance(other, Unknown):
            blind.append(other.reason)
        elif other is not None and other["count"]:
            ctx.find("unmatched_keys", _unmatched(other))
        diagnosis = _judge(found, wrong, differ, blind, other)
        return StepResult(verdict=diagnosis.verdict, reason=diagnosis.reason, diagnosis=diagnosis, fields=fields)

    def _against(self, ctx: StepContext, found: Found) -> Any:
        """The comparison, unknown with its reason, or None when none is asked for."""
        if self.against is None:
            return None
        try:
            there = read(ctx, self.against.path).whole() if self.against.path else _expected(ctx, self.against, found)
        except RemoteError as problem:
            return Unknown(f"the other side could not be read: {problem.summary}")
        return there if isinstance(there, Unknown) else unmatched(found.entries, there)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What the host answered."""

    entries: dict[str, Entry]
    faults: list[dict[str, str]]
    data: dict[str, Any]

    def whole(self) -> Entries | Unknown:
        """The entries, or why they are not all."""
        fault = next((fault for fault in self.faults if fault["kind"] in DAMAGED | BLIND), None)
        return Unknown(f"the other side is not whole: {_fault(fault)}") if fault else self.entries


def read(ctx: StepContext, path: str, tensors: list[str] | None = None) -> Found:
    """Ask the host. Raises RemoteError."""
    limit_s = max(1.0, ctx.remaining_s() - 5.0)
    reply = ctx.host.call("checkpoint", path=path, tensors=tensors or [], limit_s=limit_s, timeout_s=limit_s + 5.0)
    return Found(entries=_entries(reply), faults=reply.data["faults"], data=reply.data)


def _entries(reply: Reply, typed: bool = True) -> dict[str, Entry]:
    return {name: Entry(dtype if typed else "", tuple(shape)) for name, dtype, shape in json.loads(zlib.decompress(reply.blob))}


def _expected(ctx: StepContext, other: Against, found: Found) -> Entries | Unknown:
    """The parameters that the class has. Their types are left out: an engine chooses them when it loads."""
    from runbook.steps.patch import interpreter_of  # brings the source transform, which no other checkpoint needs

    body: dict[str, Any] | None = {"python": other.python} if other.python else ctx.forward_launch(other.for_)
    if body is None:
        return Unknown(f"cannot tell which launch's interpreter has {other.module}: name it with `for:`, or give `python:`")
    config = found.data["config"]
    if other.config:
        config = _config(ctx, other.config)
    if not isinstance(config, dict):
        return config or Unknown(found.data["config_problem"] or "there is no config.json beside the weights: name one with `config:`")
    env = {key: str(value) for key, value in (body.get("env") or {}).items()}
    limit_s = max(1.0, ctx.remaining_s() - 10.0)
    asked: dict[str, Any] = {"module": other.module, "class": other.class_, "config": config, "limit_s": limit_s}
    asked |= {
        "interpreter": interpreter_of(ctx.host, body, env),
        "prelude": body.get("prelude", ""),
        "cwd": body.get("cwd", ""),
        "env": env,
    }
    try:
        return _entries(ctx.host.call("parameters", timeout_s=limit_s + 10.0, **asked), typed=False)
    except RemoteError as problem:
        return Unknown(problem.summary)


def _config(ctx: StepContext, path: str) -> dict[str, Any] | Unknown:
    try:
        given = json.loads(ctx.host.read(path, 0, 1 << 20).data)
    except (ValueError, RecursionError):
        return Unknown(f"{path} is not JSON")
    return given if isinstance(given, dict) else Unknown(f"{path} is not a JSON mapping")


def _fields(ctx: StepContext, found: Found) -> dict[str, Any]:
    """The results; the whole listing goes into the evidence. Findings of config and maps on the way."""
    rows = {key: {"dtype": entry.dtype, "shape": list(entry.shape)} for key, entry in found.entries.items()}
    text = json.dumps(rows, ensure_ascii=False).encode("utf-8", "surrogatepass")
    listing = ctx.evidence("tensors.json", text, "key, type, shape of each tensor")
    config = found.data["config"]
    fused = fusion(config, found.entries) if config is not None else None
    for code, text in [*(fusion_findings(fused) if fused else ()), *map(map_finding, found.data["maps"])]:
        ctx.find(code, text)
    no_config = Unknown(found.data["config_problem"] or "there is no config.json beside the weights")
    many = Unknown(f"{len(rows)} tensors, more than {MOST_KEYS}: they are in {listing}; name what you need in `expect` or `tensors`")
    small = len(rows) <= MOST_KEYS
    return {
        "keys": list(rows) if small else many,
        "shapes": {key: row["shape"] for key, row in rows.items()} if small else many,
        "dtypes": {key: row["dtype"] for key, row in rows.items()} if small else many,
        "count": len(rows),
        "bytes": found.data["bytes"],
        "files": found.data["files"],
        "faults": found.faults,
        "stats": found.data["stats"],
        "skipped": found.data["skipped"],
        "config": no_config if config is None else config,
        "fusion": no_config if fused is None else fused,
        "maps": found.data["maps"],
        "listing": listing,
    }


def _fault(fault: Mapping[str, str]) -> str:
    return f"{fault['file']}: {fault['text']}" if fault["file"] else fault["text"]


def _unmatched(other: Mapping[str, Any]) -> str:
    sides = (("only here", other["only_here"]), ("only there", other["only_there"]), ("of another shape", other["shapes"]))
    parts = [f"{len(items)} {words} ({_first(items)})" for words, items in (*sides, ("of another type", other["dtypes"])) if items]
    likely = "; ".join(f"`{one['here']}` ↔ `{one['there']}` would pair {one['pairs']}" for one in other["renames"][:MOST_NAMED])
    return "; ".join(parts) + (f"; likely rename: {likely}" if likely else "")


def _first(items: list[Any]) -> str:
    names = [item["key"] if isinstance(item, dict) else item for item in items]
    return f"`{names[0]}`" + (", …" if len(names) > 1 else "")


def _judge(found: Found, wrong: list[str], differ: list[str], blind: list[str], other: Any) -> Diagnosis:
    said = f"{len(found.entries)} tensors, {format_size(found.data['bytes'])}"
    evidence = (
        Evidence(signal="tensors", value=len(found.entries), unit="tensors"),
        Evidence(signal="faults", value=len(wrong), points_to="failed" if wrong else "nothing"),
        Evidence(signal="differences", value=len(differ), points_to="failed" if differ else "nothing"),
    )
    if wrong or differ:
        rule = "checkpoint_damaged" if wrong else "checkpoint_differs"
        count = len(wrong) + len(differ)
        more = f"; and {count - MOST_NAMED} more" if count > MOST_NAMED else ""
        reason = "; ".join((wrong + differ)[:MOST_NAMED]) + more
        return Diagnosis(verdict="failed", rule=rule, reason=reason, confidence="proven", evidence=evidence, blind=tuple(blind))
    if blind:
        reason = f"{said}, but {blind[0]}"
        return Diagnosis(verdict="undecided", rule="checkpoint_blind", reason=reason, evidence=evidence, blind=tuple(blind))
    if isinstance(other, dict):
        said += f"; {other['count']} without a counterpart" if other["count"] else "; the other side has the same keys and shapes"
    return Diagnosis(verdict="passed", rule="checkpoint_whole", reason=said, confidence="proven", evidence=evidence)
