"""The search path of engine profiles: the user's own, those beside the playbook, the packaged ones."""

from __future__ import annotations

import functools
import os
from collections.abc import Collection
from pathlib import Path

import click

from runbook.model.diagnostic import Diagnostic
from runbook.model.profile import Profile
from runbook.playbook.profiles import Source, load_profile

PACKAGED = Path(__file__).resolve().parents[1] / "profiles"
SUFFIX = ".yaml"


class Profiles:
    """Profiles by name; the first folder that has one wins. Each is read once."""

    def __init__(self, folders: Collection[Path]) -> None:
        self.folders = tuple(folders)
        self.load = functools.cache(self._load)

    def names(self) -> frozenset[str]:
        """Names of all profiles."""
        return frozenset(path.stem for folder in self.folders if folder.is_dir() for path in folder.glob(f"*{SUFFIX}"))

    def find(self, name: str, without: Collection[str] = ()) -> Source | None:
        """The first file of that name that can be read, apart from those of `without`."""
        if os.sep in name:
            return None
        for folder in self.folders:
            file = folder / f"{name}{SUFFIX}"
            if str(file) not in without and file.is_file():
                try:
                    return Source(str(file), file.read_bytes())
                except OSError:
                    continue
        return None

    def check(self, file: str, data: bytes) -> tuple[Profile | None, list[Diagnostic]]:
        """A profile's text, checked with what it extends. Its own file is never what it extends."""
        same = [str(folder / Path(file).name) for folder in self.folders if _same(folder / Path(file).name, file)]
        return load_profile(data, file, self.find, self.names(), same)

    def _load(self, name: str) -> tuple[Profile | None, list[Diagnostic]]:
        source = self.find(name)
        return self.check(source.file, source.data) if source else (None, [])

    def known(self, name: str) -> Profile | None:
        """A profile, or none where it is missing or broken."""
        return self.load(name)[0]

    def all(self) -> tuple[Profile, ...]:
        """Every profile that is not broken, the narrower first: whoever takes the first that fits takes the best.

        One that extends another and tells its own processes apart stands before it; one that knows them only as its base does, behind.
        """
        found = [profile for name in sorted(self.names()) if (profile := self.known(name)) is not None]
        return tuple(sorted(found, key=self._width))

    def _width(self, profile: Profile) -> int:
        base = self.known(profile.extends) if profile.extends not in ("", profile.profile) else None
        return 1 if base is None else 0 if profile.processes.main != base.processes.main else 2

    def read(self, name: str) -> Profile:
        """A profile by name; a broken one is a usage error with its place."""
        source = self.find(name)
        profile, problems = self.load(name)
        if profile is not None:
            return profile
        if source is None:
            raise click.UsageError(f"no profile `{name}`; there are: {', '.join(sorted(self.names()))}")
        from runbook.render.diagnostics import as_text

        raise click.UsageError("the profile is not valid:\n" + as_text(problems, {source.file: source.data.decode("utf-8", "replace")}))


def profiles(playbook: str = "") -> Profiles:
    """The search path of a playbook; without one, `./profiles` stands for the folder beside it."""
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    folders = (config / "runbook" / "profiles", Path(playbook).parent / "profiles", PACKAGED)
    return _unchanged(folders, tuple(_stamp(path) for folder in folders[:2] for path in sorted(folder.glob(f"*{SUFFIX}"))))


@functools.lru_cache(maxsize=32)
def _unchanged(folders: tuple[Path, ...], stamps: tuple[tuple[str, int, int], ...]) -> Profiles:
    """One search path for all playbooks of a folder, as long as the files of the user's folders are the same."""
    return Profiles(folders)


def _stamp(path: Path) -> tuple[str, int, int]:
    try:
        stat = path.stat()
    except OSError:
        return str(path), 0, 0
    return str(path), stat.st_mtime_ns, stat.st_size


def _same(one: Path, file: str) -> bool:
    try:
        return one.samefile(file)
    except OSError:
        return False
