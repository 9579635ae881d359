"""Where runs lie on the controller: `$XDG_STATE_HOME/runbook/runs/<run-id>/`."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import click

from runbook.engine.journal import EVENTS, JournalError, load_events
from runbook.model.event import AnyEvent
from runbook.render.story import Story

BEGINS_S = 15.0
"""A run writes its first event well within it."""
RUN, HOSTS = "run", "hosts"
"""What the controller's lock says of a run beside who has it, for when the journal cannot tell."""
POSTS = "posts.json"
"""In a run's folder: what came of the tickets of its `post:`."""
ANSWER = "answer.json"
"""In a run's folder, the last thing that is written: the object that `run --json` prints."""


def state_home() -> Path:
    """The folder of all that runbook keeps on this machine."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "runbook"


def runs_folder() -> Path:
    """The folder of all runs."""
    return state_home() / "runs"


def fresh_id(now: float) -> str:
    """A run id: sortable by time, and unique."""
    return f"{datetime.fromtimestamp(now):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


class Place(NamedTuple):
    """A run that is about to begin: its id and its folder."""

    run: str
    folder: Path


def fresh_place(now: float, out: Path | None) -> Place:
    """Where the next run goes. A folder that holds one already is a usage error."""
    run = fresh_id(now)
    folder = (out or runs_folder() / run).absolute()
    if (folder / EVENTS).exists():
        raise click.UsageError(f"{folder} holds a run already: name another folder")
    return Place(run, folder)


def remember(place: Place) -> None:
    """Let a run that lies elsewhere be found by its id: a link among the others. Where none can be made, its folder still names it.

    Links to folders that were removed since go on this occasion.
    """
    link = runs_folder() / place.run
    if link != place.folder:
        with contextlib.suppress(OSError):
            link.parent.mkdir(parents=True, exist_ok=True)
            for old in link.parent.iterdir():
                if old.is_symlink() and _was_removed(old.readlink()):
                    old.unlink()
            link.symlink_to(place.folder, target_is_directory=True)


def _was_removed(folder: Path) -> bool:
    """Whether a folder is gone for good. Below an empty folder it may be on a disk that is not mounted now."""
    nearest = next((above for above in folder.parents if above.is_dir()), None)
    return not folder.exists() and nearest is not None and any(nearest.iterdir())


def run_folders() -> list[Path]:
    """All run folders, newest first."""
    root = runs_folder()
    return sorted((path for path in root.iterdir() if (path / EVENTS).is_file()), reverse=True) if root.is_dir() else []


def find_run(name: str) -> Path:
    """A run by id, by the beginning of an id, `last`, or a path. A usage error names what there is."""
    if not name:
        raise click.UsageError("the name of the run is empty: `runbook runs` lists them, and `last` is the newest")
    if "/" in name or Path(name, EVENTS).is_file():
        if Path(name, EVENTS).is_file():
            return Path(name)
        raise click.UsageError(f"{name} holds no {EVENTS}: name a run id (`runbook runs` lists them) or a run's folder")
    folders = run_folders()
    if name == "last" and folders:
        return _itself(folders[0])
    found = [path for path in folders if path.name.startswith(name)]
    if len(found) == 1:
        return _itself(found[0])
    if not found:
        raise click.UsageError(f"no run `{name}` in {runs_folder()}: `runbook runs` lists them")
    raise click.UsageError(f"`{name}` begins {len(found)} run ids: " + ", ".join(path.name for path in found[:5]))


def _itself(folder: Path) -> Path:
    """The folder of a run, not the link to it."""
    return folder.readlink() if folder.is_symlink() else folder


def stale(story: Story, now: float, folder: Path) -> str | None:
    """How a journal is behind: `expired` when the keeper has ended a suspension since, `lost` when the controller died; else null.

    One without a beginning, some time after its folder was made, has a controller when somebody has its lock.
    """
    if story.state == "suspended" and story.suspended is not None and story.suspended.expires <= now:
        return "expired"
    if story.state != "running":
        return None
    if story.header is not None:
        return None if is_alive(story.controller) else "lost"
    with contextlib.suppress(OSError):
        if now - folder.stat().st_mtime > BEGINS_S:
            return None if is_worked_on(folder) else "lost"
    return None


def name_of(folder: Path) -> str:
    """The id of a run whose journal does not give it: by its lock, its place or its link among the others; else its folder."""
    from runbook.engine import lock

    said = str(lock.last_holder(folder).get(RUN) or "")
    if said or folder.parent == runs_folder():
        return said or folder.name
    links = (link for link in runs_folder().glob("*") if link.is_symlink() and link.readlink() == folder)
    return next((link.name for link in links), str(folder))


def is_worked_on(folder: Path) -> bool:
    """Whether who had the run last still lives. For a journal that does not say who that is."""
    from runbook.engine import lock

    holder = lock.last_holder(folder)
    return bool(holder) and is_alive(holder)


def is_blank(folder: Path, file: str = EVENTS) -> bool:
    """Whether a journal has no line yet: its run is just beginning, never began, or somebody emptied the file."""
    with contextlib.suppress(OSError), (folder / file).open("rb") as journal:
        return not journal.read(1)
    return False


@contextlib.contextmanager
def hold(folder: Path, who: dict[str, Any], events: int | None = None) -> Iterator[None]:
    """Have a run to oneself. Raises engine.lock.Held, also when its journal has not the `events` any more that were read from it.

    A folder that cannot be written is a usage error.
    """
    from runbook.engine import lock

    try:
        with lock.hold(folder, who):
            if events is not None and len(read_run(folder)) != events:
                raise lock.Held({}, "somebody else went on with it just now: look at it again")
            yield
    except OSError as problem:
        if problem.filename is None or not str(problem.filename).endswith(lock.LOCK):
            raise
        raise click.UsageError(f"cannot write {problem.filename}: {problem.strerror}") from problem


def is_alive(controller: dict[str, Any]) -> bool:
    """Whether a run's controller still lives; one on another machine counts as alive. The newest counts: `controller` of state or story."""
    if controller.get("host") != socket.gethostname():
        return True
    if controller.get("boot_id", boot_id()) != boot_id():
        return False
    try:
        stat = Path(f"/proc/{controller.get('pid')}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return stat[0] not in "ZX" and int(stat[19]) == controller.get("start")


def boot_id() -> str | None:
    """What tells one boot of this machine from another."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else None


def transcripts(folder: Path) -> dict[str, str | None]:
    """Where a run's transcripts lie, null for those that were not written."""
    paths = {"markdown": folder / "transcript.md", "html": folder / "transcript.html"}
    return {form: str(path) if path.exists() else None for form, path in paths.items()}


def save_answer(folder: Path, text: str) -> None:
    """Write a run's answer for who waits for it, whole or not at all. On a full disk they derive it from the journal."""
    draft = folder / f"{ANSWER}.{os.getpid()}"
    try:
        draft.write_text(text + "\n", encoding="utf-8")
        draft.replace(folder / ANSWER)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()


def answered(folder: Path) -> str:
    """The verdict of a run that a `cancel` ended by its hosts, which cannot write its journal: only its answer tells. Empty: none did.

    Such an answer names no playbook.
    """
    try:
        answer = json.loads((folder / ANSWER).read_bytes())
    except (OSError, ValueError):
        return ""
    by_hosts = isinstance(answer, dict) and answer.get("state") == "ended" and answer.get("playbook") is None
    return str(answer.get("verdict") or "") if by_hosts else ""


def read_run(folder: Path) -> list[AnyEvent]:
    """A run's events; a journal that cannot be read is a usage error, not a traceback."""
    try:
        return load_events(folder)
    except JournalError as problem:
        run = name_of(folder)
        ways = f"`runbook show {run}` shows the rest, `runbook cancel {run}` cleans its hosts up by what they have on record"
        raise click.UsageError(f"{folder.name}: {problem}; {ways}") from problem
