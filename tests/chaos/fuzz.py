"""Playbooks, journals and messages that were damaged at random: a value or one of our own errors comes back, soon, in bounded memory.

    python -m tests.chaos.fuzz --n 10000 --seed 7

Each case starts from something real (a shipped playbook, a documented one, the journal of a run, a helper's answers) and is damaged
one to eight times: bytes flipped, cut, doubled, moved, tokens of the language put in, numbers blown up. What is not one of the named
errors is a failure and printed with the seed that makes it again.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

ROOT = Path(__file__).resolve().parents[2]
MOST_S = 20.0
"""No case may take longer; a slow machine needs some of it."""
MOST_MB = 300.0
TOKENS = (
    "${{ vars.x }} ${{ ${{ }} }} steps: - run: launch: null true 1e999 -1 99999999999999999999 0x1f !!python/object:os.system &a *a <<: >- |2"
    " [] {} [[[[ {{{{ : , \" ' \\ \t \x00 \x1b[2J \ud800 \u2028 \ufeff é 10m 1GiB TERM host: all loop: retry: include: secrets: protect: post:"
    ' "t":1e308 "n":-1 "event":"run_ended" "event":"sample" null{}[] \\ud800 \\u0000'
).split(" ")


def damaged(source: bytes, rng: random.Random) -> bytes:
    """The bytes after one to eight injuries."""
    data = bytearray(source)
    for _ in range(rng.choice((1, 1, 2, 3, 5, 8))):
        at, end = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
        end = min(end, at + rng.choice((1, 8, 80, 4000)))
        kind = rng.randrange(8)
        if kind == 0 and data:
            data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:end]
        elif kind == 2:
            data[at:at] = data[at:end] * rng.choice((1, 2, 30))
        elif kind == 3:
            data[at:at] = rng.choice(TOKENS).encode("utf-8", "surrogatepass")
        elif kind == 4:
            data[at:end] = rng.choice(TOKENS).encode("utf-8", "surrogatepass")
        elif kind == 5:
            lines = bytes(data).split(b"\n")
            here, there = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[here], lines[there] = lines[there], lines[here]
            data = bytearray(b"\n".join(lines))
        elif kind == 6:
            number = rng.choice((b"0", b"-7", b"9" * 30, b"1e400", b"NaN", b'"x"', b"[1]"))
            pieces = re.split(rb"(\d+)", bytes(data))
            data = bytearray(b"".join(number if index % 2 and rng.random() < 0.1 else piece for index, piece in enumerate(pieces)))
        else:
            data = data[:at]
    return bytes(data[: 1 << 20])


class Target(NamedTuple):
    """What is fed: its seeds, and what takes a case. `expected` are our own errors."""

    name: str
    seeds: list[bytes]
    take: Callable[[bytes], object]
    expected: tuple[type[BaseException], ...] = ()


# playbooks ---------------------------------------------------------------------------------------------------------


def playbooks() -> Target:
    """Checked as `validate` does, planned as `plan` does, and told to people."""
    from runbook.playbook.build import load_playbook
    from runbook.playbook.plan import Planner
    from runbook.render.diagnostics import as_object, as_text
    from runbook.steps import TABLE

    known = {path.stem for path in (ROOT / "runbook" / "profiles").glob("*.yaml")}
    files = [*sorted((ROOT / "playbooks").rglob("*.yaml")), *sorted((ROOT / "tests" / "data" / "bad_playbooks").glob("*.yaml"))]
    pages = "\n".join(path.read_text() for path in sorted((ROOT / "docs").rglob("*.md")))
    documented = [text.encode() for text in re.findall(r"```yaml\n(runbook: 1\n.*?)```", pages, re.DOTALL)]

    def take(source: bytes) -> None:
        playbook, found = load_playbook(source, "f.yaml", table=TABLE, profiles=known)
        assert (playbook is None) == any(one.severity.value == "error" for one in found)
        as_text(found, {"f.yaml": source.decode("utf-8", "replace")})
        json.dumps(as_object(found)).encode()
        if playbook is not None:
            "\n".join(Planner(playbook, TABLE, {}).lines()).encode()

    return Target("playbook", [path.read_bytes() for path in files] + documented, take)


# journals ----------------------------------------------------------------------------------------------------------


def journals() -> Target:
    """Read as tolerantly as `show` does and as strictly as `cancel` does; folded, judged again, rendered in every form."""
    from runbook.engine.journal import JournalError, read_events
    from runbook.engine.recording import read_recording
    from runbook.engine.replay import judge_again, waits
    from runbook.engine.state import fold
    from runbook.render.explain import explain
    from runbook.render.html import html
    from runbook.render.junit import junit
    from runbook.render.markdown import markdown
    from runbook.render.summary import summary
    from runbook.render.trace import trace

    def take(source: bytes) -> None:
        try:
            fold(read_events(source))
        except (JournalError, msgspec.ValidationError):
            pass
        events = read_recording(source)
        for form in (markdown, html, junit, trace, explain):
            form(events).encode()
        json.dumps(summary(events, "/f", {})).encode()
        for wait in waits(events):
            judge_again(wait)

    return Target("journal", [recorded()], take, (JournalError,))


def recorded() -> bytes:
    """The journal of a small real run: a launch, a wait, a failing command, its cleanup."""
    serve = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "0"]
    steps: list[dict[str, Any]] = [
        {"id": "server", "launch": {"command": serve, "profile": "generic"}},
        {"id": "said", "run": "printf 'a\\nb\\033[31m\\n'"},
        {"id": "look", "grep": {"log": "server", "pattern": "Serving"}, "ignore_errors": True},
        {"id": "sum", "assert": "1 + 1 == 3"},
    ]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        book = Path(folder) / "book.yaml"
        book.write_text(json.dumps({"runbook": 1, "hosts": {"box": "local"}, "steps": steps}))
        argv = [sys.executable, "-m", "runbook.cli.main", "run", str(book), "--out", f"{folder}/run"]
        env = {**os.environ, "XDG_STATE_HOME": folder}
        done = subprocess.run(argv, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr
        return (Path(folder) / "run" / "events.jsonl").read_bytes()


# messages ----------------------------------------------------------------------------------------------------------


class Wire:
    """A `Channel` whose helper says these bytes, a few at a time, whatever it is asked."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._nonce = b""
        self._at = 0

    def send(self, data: bytes) -> None:
        """The start names the text with which our output begins."""

    def recv(self, most: int) -> bytes:
        """The next piece."""
        piece = self._data[self._at : self._at + min(most, 777)]
        self._at += len(piece)
        return piece

    def close(self) -> None:
        """Nothing to close."""

    def ending(self) -> str:
        """As of a helper that has gone."""
        return "exited 1"


def answers() -> Target:
    """What a helper says, on the controller: every typed call gets an answer or raises one of ours."""
    from runbook.hosts import session
    from runbook.hosts.base import Host, HostError
    from runbook.onhost import frames

    nonce = "f" * 32
    hello = {
        **{"format": frames.FORMAT, "hostname": "h", "user": "u", "uid": 0, "pid": 2, "python": "p", "python_version": "3.8.0"},
        **{"boot_id": "b", "state_dir": "/s", "home": "/", "cpus": 1, "cwd": "/", "scoped": False, "abandoned": []},
        **{"received": 1.0, "sent": 1.0},
    }
    row = {
        "pid": 1,
        "start": 2,
        "ppid": 0,
        "pgid": 1,
        "sid": 1,
        "uid": 0,
        "user": "u",
        "state": "S",
        "comm": "c",
        "argv": ["c"],
        "title": "c",
    }
    said = frames.encode({"hello": hello})
    for id, data in enumerate(
        (
            [{**row, "rss": 1, "age_s": 1.0, "cwd": None, "run": None, "gpus": [], "protected": None}],
            {"/log": [1, 2]},
            {"gpus": [], "blind": "no", "missing": False, "seconds": 1.0},
            {"left": []},
            {"taken_over": []},
        ),
        1,
    ):
        said += frames.encode({"id": id, "ok": data}, b"blob")
    said += frames.encode({"id": 6, "error": {"code": "failed", "message": "m", "hint": "h", "data": {}}})

    def take(source: bytes) -> None:
        original: Any = session.secrets
        session.secrets = _Fixed(nonce)  # type: ignore[assignment]
        try:
            one = session.Session(Wire(b"noise\n" + nonce.encode() + source), timeout_s=2.0)
            host = Host("h", "h", one, one.facts, None)  # type: ignore[arg-type]
        finally:
            session.secrets = original
        calls: tuple[Callable[[], object], ...] = (
            host.processes,
            lambda: host.marks(["/log"]),
            host.gpus,
            lambda: host.retire("r"),
            lambda: host.take_lease("r", "me", 1.0),
            lambda: host.hash("/x"),
        )
        for call in calls:
            try:
                call()
            except HostError:
                continue

    return Target("answer", [said], take, (HostError,))


class _Fixed:
    """Gives the text that the bytes begin with."""

    def __init__(self, text: str) -> None:
        self._text = text

    def token_hex(self, count: int) -> str:
        """Always the same."""
        return self._text


def requests() -> Target:
    """What a controller says, on the host: only what looks is reachable here."""
    from runbook.onhost import dispatch, frames

    with tempfile.NamedTemporaryFile(delete=False) as file:
        path = file.name
    looks = {
        "marks": "ops_files",
        "glob": "ops_files",
        "hash": "ops_files",
        "read": "ops_files",
        "listeners": "ops_proc",
        "scan": "ops_log",
    }
    said = b"".join(
        frames.encode({"id": id, "op": op, "args": args}, b"blob")
        for id, (op, args) in enumerate(
            (
                ("marks", {"paths": [path]}),
                ("read", {"path": path, "offset": 0, "limit": 10}),
                ("scan", {"path": path, "pattern": "a+", "begin": [1, 2], "end": None, "most": 3}),
                ("feed", {"id": 1, "credit": 5}),
                ("cancel", {"id": 1}),
                ("listeners", {"port": 1, "tree": [1, 2]}),
                ("glob", {"pattern": path + "*"}),
                ("nothing", {}),
            )
        )
    )

    def take(source: bytes) -> None:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)  # answers that do not fit are lost: nobody reads them here
        known, dispatch.MODULE_OF = dispatch.MODULE_OF, looks
        try:
            helper = dispatch.Helper(io.BytesIO(source), writing)
            helper.serve()
            helper.end()
        finally:
            dispatch.MODULE_OF = known
            os.close(reading)
            os.close(writing)

    return Target("request", [said], take, (frames.BrokenFrame,))


# the drive ---------------------------------------------------------------------------------------------------------


class TookTooLong(BaseException):
    """No `except Exception` of ours may take it."""


def _alarm(*_: object) -> None:
    raise TookTooLong


class Failure(NamedTuple):
    """A case that went wrong: how to make it again, and the end of its traceback."""

    target: str
    seed: str
    trace: str


class Result(NamedTuple):
    """Cases by target, what failed, the slowest case in seconds, and how much the peak of memory is in MB."""

    cases: Counter[str]
    failures: list[Failure]
    slowest: float
    peak_mb: float


def cases(targets: list[Target], count: int, seed: int) -> Iterator[tuple[Target, str, bytes]]:
    """`count` cases, the same for the same seed."""
    for number in range(count):
        target = targets[number % len(targets)]
        name = f"{seed}/{number}"
        rng = random.Random(name)
        yield target, name, damaged(rng.choice(target.seeds), rng)


def fuzz(count: int, seed: int, only: str = "") -> Result:
    """Run them all in this process."""
    targets = [make() for make in (playbooks, journals, answers, requests) if only in ("", make.__name__)]
    done: Counter[str] = Counter()
    failures: list[Failure] = []
    slowest = 0.0
    signal.signal(signal.SIGALRM, _alarm)
    for target, name, data in cases(targets, count, seed):
        began = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, MOST_S)
        try:
            target.take(data)
        except target.expected:
            pass
        except (Exception, TookTooLong):
            failures.append(Failure(target.name, name, traceback.format_exc(limit=-6)))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        slowest = max(slowest, time.monotonic() - began)
        done[target.name] += 1
    return Result(done, failures, slowest, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> int:
    """Run, tell, exit 1 for a failure or too much memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=10_000, help="cases (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="playbooks, journals, answers or requests")
    options = parser.parse_args()
    began = time.monotonic()
    result = fuzz(options.n, options.seed, options.only)
    for failure in result.failures[:20]:
        sys.stdout.write(f"--- {failure.target} {failure.seed}\n{failure.trace}\n")
    told = ", ".join(f"{count} {name}s" for name, count in result.cases.items())
    spent = time.monotonic() - began
    sys.stdout.write(
        f"{told}: {len(result.failures)} failures, slowest {result.slowest:.2f} s, peak {result.peak_mb:.0f} MB, {spent:.0f} s\n"
    )
    return int(bool(result.failures) or result.peak_mb > MOST_MB)


if __name__ == "__main__":
    sys.exit(main())
