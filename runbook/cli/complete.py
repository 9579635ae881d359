"""What the shell offers after `runbook …<TAB>`: playbooks, hosts, runs, step ids. By the names of parameters: no command knows of it.

Answers come within a keystroke: nothing is checked, no host is asked, and only what the word can be is read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

SUFFIXES = (".yaml", ".yml")
MOST = 200
_ID = re.compile(r"(?:^|[\s{,-])id: *['\"]?([a-z][a-z0-9_]*)")
_HOST = re.compile(r"^  ([\w.-]+):", re.MULTILINE)
_ROLE = re.compile(r"^  ([A-Za-z_][\w-]*):|[{,] *([A-Za-z_][\w-]*):", re.MULTILINE)


def playbooks(context: click.Context, word: str) -> Iterator[str]:
    """Names of ./playbooks and the packaged ones, then files and folders."""
    package = Path(__file__).resolve().parents[1]
    packaged = package / "_playbooks"
    if "/" not in word:
        for folder in (Path("playbooks"), packaged if packaged.is_dir() else package.parent / "playbooks"):
            yield from sorted(path.stem for path in _listed(folder) if path.suffix in SUFFIXES)
    yield from _files(word)


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _files(word: str) -> Iterator[str]:
    """YAML files and folders below what is typed."""
    head, _, tail = word.rpartition("/")
    folder = Path(head + "/" if head or word.startswith("/") else ".")
    for path in sorted(_listed(folder)):
        name = f"{head}/{path.name}" if "/" in word else path.name
        if path.name.startswith(tail) and not (path.name.startswith(".") and not tail):
            if path.is_dir():
                yield f"{name}/"
            elif path.suffix in SUFFIXES:
                yield name


def hosts(context: click.Context, word: str) -> Iterator[str]:
    """`local`, `lab`, the names of hosts.yaml, the aliases of ssh_config without a pattern."""
    yield from ("local", "lab")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    for file in (Path("hosts.yaml"), config / "runbook" / "hosts.yaml"):
        yield from _HOST.findall(_text(file))
    yield from _aliases(Path(os.environ.get("RUNBOOK_SSH_CONFIG") or Path.home() / ".ssh" / "config"), 3)


def _aliases(file: Path, depth: int) -> Iterator[str]:
    for line in _text(file).splitlines():
        keyword, *values = line.replace("=", " ").split() or [""]
        if keyword.lower() == "host":
            yield from (value for value in values if not set(value) & set("*?!"))
        elif keyword.lower() == "include" and depth:
            for pattern in values:
                below = Path(pattern).expanduser()
                for one in sorted(Path.home().joinpath(".ssh", below).parent.glob(below.name)):
                    yield from _aliases(one, depth - 1)


def roles(context: click.Context, word: str) -> Iterator[str]:
    """`ROLE=` of the playbook that is named, then `ROLE=TARGET`."""
    role, equals, _ = word.partition("=")
    if equals:
        yield from (f"{role}={host}" for host in hosts(context, word))
        return
    found = re.search(r"^hosts:(.*(?:\n[ #].*|\n)*)", _playbook(context), re.MULTILINE)
    yield from (f"{one or other}=" for one, other in _ROLE.findall(found[1] if found else ""))


def steps(context: click.Context, word: str) -> Iterator[str]:
    """Ids of the playbook's steps, or of the steps that a run's journal names."""
    yield from _ID.findall(_playbook(context))


def runs(context: click.Context, word: str) -> Iterator[str]:
    """`last` and the ids of runs, newest first."""
    yield "last"
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    yield from sorted((path.name for path in _listed(state / "runbook" / "runs") if path.name.startswith(word)), reverse=True)


def _playbook(context: click.Context) -> str:
    """The text of the playbook, or of that of the run, that the command line names already."""
    named = context.params.get("playbook") or context.params.get("run") or ""
    named = str(named[0] if isinstance(named, (tuple, list)) and named else named)
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    package = Path(__file__).resolve().parents[1]
    folders = [Path(), Path("playbooks"), package / "_playbooks", package.parent / "playbooks"]
    files = [folder / f"{named}{suffix}" for folder in folders for suffix in ("", *SUFFIXES)] if named else []
    files += [state / "runbook" / "runs" / named / "playbook.yaml"] if named else []
    return next((_text(file) for file in files if file.is_file()), "")


def _text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(1 << 20)
    except OSError:
        return ""


COMPLETERS: dict[str | tuple[str, str], Callable[[click.Context, str], Iterator[str]]] = {
    "playbook": playbooks,
    "files": playbooks,
    "roles": roles,
    "target": hosts,
    "host": hosts,
    ("hosts", "name"): hosts,
    "run": runs,
    "a": runs,
    "b": runs,
    "reuse": runs,
    "start_at": steps,
    "step": steps,
    "redo": steps,
    "skip": steps,
}
"""By the name of a parameter, or by command and parameter; a flag of that name takes no value and asks for none."""
WORDS = Path(__file__).with_name("words.json")
"""Every command's words; made by `make generate`."""


def light(name: str) -> click.Command | None:
    """A command as far as its words go, from the file that `described` makes: importing the real one would take longer than a keystroke."""
    return _built(name, json.loads(WORDS.read_text(encoding="utf-8")).get(name), name)


def _built(name: str, words: dict[str, Any] | None, top: str) -> click.Command | None:
    if words is None:
        return None
    params = [_parameter(one, top) for one in words["params"]]
    if "commands" not in words:
        return click.Command(name, params=params, help=words["help"])
    inner = {key: built for key, value in words["commands"].items() if (built := _built(key, value, top))}
    return click.Group(name, params=params, help=words["help"], commands=inner)


def _parameter(one: dict[str, Any], top: str) -> click.Parameter:
    find = COMPLETERS.get((top, one["name"])) or COMPLETERS.get(one["name"])
    complete = _answer(find) if find and not one["flag"] else None
    type_ = click.Choice(one["choices"]) if one["choices"] else None
    if one["argument"]:
        return click.Argument([one["name"]], nargs=one["nargs"], required=False, type=type_, shell_complete=complete)
    names = [*one["opts"], one["name"]]
    return click.Option(names, is_flag=one["flag"], multiple=one["multiple"], type=type_, help=one["help"], shell_complete=complete)


def described(command: click.Command) -> dict[str, Any]:
    """The words of a command: its parameters, and the commands of a group."""
    found: dict[str, Any] = {"help": command.get_short_help_str(80), "params": [_words(one) for one in command.params if not _hidden(one)]}
    if isinstance(command, click.Group):
        found["commands"] = {name: described(inner) for name, inner in command.commands.items()}
    return found


def _hidden(one: click.Parameter) -> bool:
    return bool(getattr(one, "hidden", False))


def _words(one: click.Parameter) -> dict[str, Any]:
    return {
        "name": one.name,
        "argument": isinstance(one, click.Argument),
        "opts": [*one.opts, *one.secondary_opts] if isinstance(one, click.Option) else [],
        "flag": bool(getattr(one, "is_flag", False)),
        "multiple": one.multiple if isinstance(one, click.Option) else False,
        "nargs": one.nargs,
        "choices": [str(choice) for choice in one.type.choices] if isinstance(one.type, click.Choice) else [],
        "help": getattr(one, "help", None) or "",
    }


def _answer(find: Callable[[click.Context, str], Iterator[str]]) -> Callable[[click.Context, click.Parameter, str], Any]:
    def answer(context: click.Context, parameter: click.Parameter, word: str) -> list[CompletionItem]:
        found = dict.fromkeys(text for text in find(context, word) if text.startswith(word))
        return [CompletionItem(text) for text in list(found)[:MOST]]

    return answer
