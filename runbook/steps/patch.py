"""patch: put probes or edits into the file that a launch will import, with the undo record on the host first."""

from __future__ import annotations

import hashlib
import re
import shlex
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from runbook.hosts.base import Host, ModuleFile, OpenPatch, RemoteError, UndoRecord
from runbook.model.diagnostic import Diagnostic
from runbook.model.fields import ForwardLaunchRef
from runbook.model.units import Duration
from runbook.probes.block import diff, patched_by
from runbook.probes.edits import edit_plain
from runbook.probes.spec import Edit, Probe
from runbook.probes.transform import Transformed, transform
from runbook.steps.base import Patched, Step, StepContext, StepResult

MOST_BYTES = 16 << 20
"""Larger files are no source files."""
BY_HAND = "`runbook restore RUN` takes it back, as long as this way in works"
_PYTHON = re.compile(r"(.*/)?python[0-9.]*")


class Refusal(Exception):
    """The step ends here with this result, before anything is written."""

    def __init__(self, verdict: str, reason: str, **fields: Any) -> None:
        super().__init__(reason)
        self.result = StepResult(verdict=verdict, reason=reason, fields=fields)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The file to patch: real path, bytes, the module it was found as, further copies on the interpreter's path."""

    path: str
    data: bytes
    module: str = ""
    others: tuple[str, ...] = ()
    git: dict[str, Any] = {}

    @property
    def sha256(self) -> str:
        """Of the bytes before the patch."""
        return hashlib.sha256(self.data).hexdigest()


class Patch(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Put probes (values written down at a place in the source) or edits into the file that a launch will import.

    The undo record is on the host before the file changes; the run's keeper undoes the patch when `undo_after` has passed
    without a sign of the controller. A place that is missing or not unique fails before anything is written.
    """

    TYPE: ClassVar[str] = "patch"
    CHANGES: ClassVar[bool] = True
    RESUME: ClassVar[str] = "recheck"
    RESULTS: ClassVar[dict[str, str]] = {
        "path": "the file that was patched",
        "module": "the module it was found as; empty when it was given as `file`",
        "sha_before": "sha256 of the original",
        "sha_after": "sha256 of the patched file",
        "diff": "the change, with the part that is the same in every patch folded",
        "probes": "one mapping a probe: at, line, line_after, show, save, alive",
        "others": "further copies of the module on the interpreter's path",
        "git": "revision and state of the checkout that the file lies in, if any",
    }
    EXAMPLE: ClassVar[str] = (
        "id: taps\npatch:\n  module: sglang.srt.models.llama_eagle3\n  probes:\n    - at: LlamaModel.forward\n"
        "      after: hidden_states = forward_batch.spec_info.hidden_states\n      show: {hidden: hidden_states, embeds: embeds}"
    )

    for_: Annotated[ForwardLaunchRef | None, Meta(description="the launch that will import it; implied when there is one on this host")] = (
        msgspec.field(name="for", default=None)
    )
    module: Annotated[str, Meta(description="dotted name, looked up as that launch's interpreter would, without importing parents")] = ""
    file: Annotated[str, Meta(description="absolute path on the host, instead of `module`")] = ""
    probes: Annotated[list[Probe], Meta(description="places at which values are written down")] = []
    replace: Annotated[list[Edit], Meta(description="exact texts to replace, each counted before")] = []
    undo_after: Annotated[Duration, Meta(description="the keeper restores the file when the controller has been silent for so long")] = (
        Duration(7200)
    )

    @classmethod
    def disturbs(cls, body: dict[str, Any]) -> str:
        """What others on the host would notice."""
        return "changes a file that others may import"

    def problems(self) -> list[tuple[str, str, str]]:
        """One file, something to do in it, and what each probe can tell without the file."""
        found = []
        if bool(self.module) == bool(self.file):
            found.append(
                ("", "`patch` needs exactly one of `module`, `file`", "write for example `module: sglang.srt.models.llama_eagle3`")
            )
        if self.file and not self.file.startswith(("/", "~", "${{")):
            found.append(("file", f"`{self.file}` is not an absolute path", "write the path from `/` on"))
        if not self.probes and not self.replace:
            found.append(("", "there is nothing to patch", "give `probes` or `replace`"))
        if self.undo_after < 1:
            found.append(("undo_after", "the undo timer needs at least 1s", "write for example `undo_after: 2h`"))
        for number, probe in enumerate(self.probes):
            found += [(f"probes.{number}.{key}", summary, hint) for key, summary, hint in probe.problems()]
        return found

    def plan(self) -> list[str]:
        """The file and each place."""
        what = self.file or f"the file of module {self.module}"
        lines = [f"patch {what}, undone after {self.undo_after} without renewal"]
        for probe in self.probes:
            place = f"after `{probe.after}`" if probe.after else f"before `{probe.before}`" if probe.before else probe.where or "entry"
            lines.append(f"  probe {probe.at}, {place}: {', '.join(probe.shown()) or 'that it is reached'}; {probe.hits}")
            lines += [f"    save {', '.join(probe.saved())}"] if probe.save else []
        return lines + [f"  replace `{edit.find}` by `{edit.with_}`" for edit in self.replace]

    def _kept(self, ctx: StepContext) -> StepResult | None:
        """The same patch, which an earlier run left in place. Another one of that step is undone first. Raises HostError, Refusal."""
        reuse = ctx.reuse
        kept = reuse.patch if reuse is not None else None
        if reuse is None or kept is None:
            return None
        found = {patch.id: patch for patch in ctx.host.open_patches(kept.record.run)}.get(kept.record.id)
        if found is None or found.state != "patched":
            why = f"its file is {found.state if found else 'restored'}"
        else:
            target = self._original(ctx, found)
            asked = self.file or find_module(ctx, self.module, self.for_).path
            made = self._transformed(ctx, target, kept.marker, kept.side_file, kept.record.run)
            if found.sha256_after == hashlib.sha256(made.data).hexdigest() and asked in (kept.path, found.path):
                reuse.take(kept)
                fields = self._fields(target, made)
                return StepResult(verdict="passed", reason=f"{kept.path}: taken over from run {reuse.run}", fields=fields)
            why = "this run patches in another way"
        ctx.find("not_reused", f"patch `{ctx.step}` of run {reuse.run} is not taken over, so it is undone first: {why}")
        reuse.restore(kept)
        return None

    def run(self, ctx: StepContext) -> StepResult:
        """Find, read, transform; then undo record and replacement."""
        try:
            begun = self._begun(ctx)
            if begun is None and (kept := self._kept(ctx)) is not None:
                return kept
            target = self._target(ctx) if begun is None else self._original(ctx, begun)
            marker = f"{ctx.run.id}/{ctx.step}/{target.sha256[:8]}"
            side_file = f"{ctx.host.facts.state_dir}/runs/{ctx.run.id}/probes/{ctx.step}.jsonl"
            made = self._transformed(ctx, target, marker, side_file, ctx.run.id)
            fields = self._fields(target, made)
            if ctx.check_mode:
                return StepResult(verdict="passed", reason=f"would patch {target.path}", fields=fields)
            record, written = self._write(ctx, target, made, side_file) if begun is None else _as_written(begun, made)
        except Refusal as refusal:
            return refusal.result
        launch = self.for_ or _only_launch(ctx)
        probes = tuple(fields["probes"])
        ctx.keep(
            Patched(
                step=ctx.step,
                host=ctx.host.name,
                record=record,
                path=target.path,
                module=target.module,
                marker=marker,
                side_file=side_file if made.block else "",
                launch=launch,
                probes=probes,
                written=written,
            )
        )
        return StepResult(verdict="passed", reason=_done(target, made), fields=fields)

    def _begun(self, ctx: StepContext) -> OpenPatch | None:
        """What this attempt had written before its controller died, by the host's undo record."""
        if ctx.reentry is None:
            return None
        try:
            found = {patch.id: patch for patch in ctx.host.open_patches(ctx.run.id)}.get(ctx.step)
        except RemoteError:
            return None  # the host has nothing of this run
        if found is not None and found.state == "original":  # announced, and then not written
            ctx.host.restore(ctx.run.id, [found.id])
            return None
        return found

    def _original(self, ctx: StepContext, begun: OpenPatch) -> Target:
        """The file before the patch that is in it. Raises Refusal."""
        if begun.state != "patched":
            raise Refusal("failed", f"{begun.path} is {begun.state}: it is not as this step left it", path=begun.path)
        found = None if self.file else find_module(ctx, self.module, self.for_)
        asked = ctx.reentry.acted.get("patch", {}).get("path", begun.path) if ctx.reentry is not None else begun.path
        try:
            data = read_whole(ctx.host, f"{begun.folder}/original")
        except RemoteError as problem:
            raise Refusal("failed", _sentence(problem), path=begun.path) from None
        return Target(
            path=asked,
            data=data,
            module="" if self.file else self.module,
            others=() if found is None else found.others,
            git=found.git if found else {},
        )

    def _target(self, ctx: StepContext) -> Target:
        found = None if self.file else find_module(ctx, self.module, self.for_)
        path = self.file if found is None else found.path
        try:
            data, real = read_whole(ctx.host, path), path
        except RemoteError as problem:
            raise Refusal("failed", _sentence(problem), path=path) from None
        carried = patched_by(data)
        if carried is not None and carried.split("/")[0] != ctx.run.id:
            other = carried.split("/")[0]
            raise Refusal("refused", f"{path} carries the patch of run {other}; restore that first: `runbook restore {other}`", path=path)
        others = () if found is None else found.others
        if others:
            ctx.find("several_copies", f"{self.module} is on the path more than once: {path} is the first; also {', '.join(others)}")
        return Target(path=real, data=data, module="" if self.file else self.module, others=others, git=found.git if found else {})

    def _transformed(self, ctx: StepContext, target: Target, marker: str, side_file: str, run: str) -> Made:
        if not self.probes and not target.path.endswith((".py", ".pyi")):
            plain = edit_plain(target.data, self.replace, target.path)
            if isinstance(plain, list):
                raise Refusal("failed", problem_text(plain), path=target.path)
            return Made(data=plain[0], diff=diff(plain[1], plain[2], target.path), block=False)
        result = transform(target.data, self.probes, self.replace, marker=marker, side_file=side_file, path=target.path, run=run)
        if not isinstance(result, Transformed):
            raise Refusal("failed", problem_text(result), path=target.path, sha_before=target.sha256)
        return Made(data=result.data, diff=result.diff, placed=tuple(msgspec.to_builtins(place) for place in result.placed))

    def _write(self, ctx: StepContext, target: Target, made: Made, side_file: str) -> tuple[UndoRecord, float]:
        """Everything that changes the host, in the order that leaves nothing behind."""
        host, debt = ctx.host, f"patch:{ctx.step}:{ctx.host.name}"
        if host.ends_with_link:
            ctx.find(
                "ends_with_link", f"{host.name}: nobody undoes this patch when the controller is lost: {host.ends_with_link}; {BY_HAND}"
            )
        ctx.owe(f"keeper:{host.name}", "keeper")
        host.ensure_keeper(ctx.run.id, ctx.run.suspend_for_s)
        if made.block:
            host.write(side_file, b"", 0o600)
        written = ctx.clock.now() + host.facts.clock_offset_s
        ctx.owe(debt, "patch", path=target.path)
        try:
            with ctx.action("patch", path=target.path, sha_before=target.sha256) as done:
                undo_after_s = float(self.undo_after)
                record = host.patch(
                    run=ctx.run.id, id=ctx.step, path=target.path, expect_sha256=target.sha256, data=made.data, undo_after_s=undo_after_s
                )
                done(sha_after=record.sha256_after, undo=record.folder)
        except RemoteError as problem:
            ctx.settle(debt, "never written")
            verdict = "refused" if problem.code in ("busy", "exists", "protected") else "failed"
            raise Refusal(verdict, _sentence(problem), path=target.path, sha_before=target.sha256) from None
        return record, written

    def _fields(self, target: Target, made: Made) -> dict[str, Any]:
        return {
            "path": target.path,
            "module": target.module,
            "sha_before": target.sha256,
            "sha_after": hashlib.sha256(made.data).hexdigest(),
            "diff": made.diff,
            "probes": list(made.placed),
            "others": list(target.others),
            "git": target.git,
        }


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """The patched bytes. `block` says whether the file will report itself when it is loaded."""

    data: bytes
    diff: str
    placed: tuple[dict[str, Any], ...] = ()
    block: bool = True


def _as_written(begun: OpenPatch, made: Made) -> tuple[UndoRecord, float]:
    """The record of a patch that is in place. Raises Refusal when it is another one than this step would make."""
    if begun.sha256_after != hashlib.sha256(made.data).hexdigest():
        raise Refusal(
            "failed", f"{begun.path} carries another patch than this step makes now; `runbook cancel` takes it back", path=begun.path
        )
    shared = {name: getattr(begun, name) for name in UndoRecord.__struct_fields__}
    return UndoRecord(**shared), begun.patched


def find_module(ctx: StepContext, module: str, launch: str | None) -> ModuleFile:
    """The file that the launch's interpreter would import. Raises Refusal."""
    body = ctx.forward_launch(launch)
    if body is None:
        raise Refusal("failed", f"cannot tell which launch will import {module}: name it with `for:`, or give `file:`")
    env = {key: str(value) for key, value in (body.get("env") or {}).items()}
    where = {"prelude": body.get("prelude", ""), "cwd": body.get("cwd", ""), "env": env}
    try:
        return ctx.host.find_module(module, interpreter=interpreter_of(ctx.host, body, env), **where)
    except RemoteError as problem:
        raise Refusal("failed", _sentence(problem)) from None


def interpreter_of(host: Host, body: dict[str, Any], env: dict[str, str]) -> str:
    """The Python that a launch's command runs in; empty for `python` on the path. For a console script, the one in its first line."""
    if body.get("python"):
        return str(body["python"])
    command = body.get("command") or ""
    words = [str(word) for word in command] if isinstance(command, list) else _words(command)
    named = next((word for word in words if _PYTHON.fullmatch(word)), "")
    if named or not words:
        return "" if named == "python" else named
    shell = f'{body.get("prelude", "")}\nhead -n 1 -- "$(command -v {shlex.quote(words[0])})"'
    first = host.run(shell=shell, env=env, cwd=body.get("cwd", ""), timeout_s=20).stdout.decode("utf-8", "replace").splitlines()
    line = first[-1] if first else ""
    script = line[2:].strip() if line.startswith("#!") else ""
    return script if _PYTHON.fullmatch(script) else ""


def read_whole(host: Host, path: str) -> bytes:
    """All bytes of a source file. Raises RemoteError, also for one that is too large."""
    parts: list[bytes] = []
    while True:
        have = sum(map(len, parts))
        piece = host.read(path, have, 4 << 20)
        if piece.size > MOST_BYTES:
            raise RemoteError("unsupported", f"{path} has {piece.size >> 20} MiB: it is no source file", "name the source file itself")
        parts.append(piece.data)
        if not piece.data or have + len(piece.data) >= piece.size:
            return b"".join(parts)


def problem_text(problems: list[Diagnostic]) -> str:
    """All problems of a file in one sentence each; nothing was written."""
    lines = [f"{problem.span or ''}: {problem.summary}" + (f" ({problem.hint})" if problem.hint else "") for problem in problems]
    return "nothing was written: " + "; ".join(lines)


def _sentence(problem: RemoteError) -> str:
    return problem.summary + (f"; {problem.hint}" if problem.hint else "")


def _done(target: Target, made: Made) -> str:
    count = len(made.placed)
    what = f"{count} probe{'s' if count != 1 else ''}" if count else "edited, no probe"
    return f"{target.path}: {what}, sha256 {target.sha256[:12]} → {hashlib.sha256(made.data).hexdigest()[:12]}"


def _only_launch(ctx: StepContext) -> str | None:
    body = ctx.forward_launch(None)
    return None if body is None else body.get("id")


def _words(command: object) -> list[str]:
    try:
        return shlex.split(str(command))
    except ValueError:
        return str(command).split()  # an open quote: the shell will say so better than we can
