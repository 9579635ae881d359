"""What the shell offers after `runbook …<TAB>`: playbooks, hosts, runs, step ids. By the names of parameters: no command knows of it.

Answers come within a keystroke: nothing is checked, no host is asked, only what the word can be is read, and neither a command nor click
is imported. The shells' side is click's: `runbook completion` prints it, so questions and answers have its form.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Given = Mapping[str, str]
"""Values of parameters that the line has already, by their names."""
SUFFIXES = (".yaml", ".yml")
MOST = 200
_ID = re.compile(r"(?:^|[\s{,-])id: *['\"]?([a-z][a-z0-9_]*)")
_HOST = re.compile(r"^  ([\w.-]+):", re.MULTILINE)
_ROLE = re.compile(r"^  ([A-Za-z_][\w-]*):|[{,] *([A-Za-z_][\w-]*):", re.MULTILINE)


def playbooks(given: Given, word: str) -> Iterator[str]:
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


def hosts(given: Given, word: str) -> Iterator[str]:
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


def roles(given: Given, word: str) -> Iterator[str]:
    """`ROLE=` of the playbook that is named, then `ROLE=TARGET`."""
    role, equals, _ = word.partition("=")
    if equals:
        yield from (f"{role}={host}" for host in hosts(given, word))
        return
    found = re.search(r"^hosts:(.*(?:\n[ #].*|\n)*)", _playbook(given), re.MULTILINE)
    yield from (f"{one or other}=" for one, other in _ROLE.findall(found[1] if found else ""))


def steps(given: Given, word: str) -> Iterator[str]:
    """Ids of the playbook's steps, or of the steps that a run's journal names."""
    yield from _ID.findall(_playbook(given))


def runs(given: Given, word: str) -> Iterator[str]:
    """`last` and the ids of runs, newest first."""
    yield "last"
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    yield from sorted((path.name for path in _listed(state / "runbook" / "runs") if path.name.startswith(word)), reverse=True)


def _playbook(given: Given) -> str:
    """The text of the playbook, or of that of the run, that the command line names already."""
    named = given.get("playbook") or given.get("run") or ""
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


COMPLETERS: dict[str | tuple[str, str], Callable[[Given, str], Iterator[str]]] = {
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


def answer(instruction: str, environ: Mapping[str, str]) -> str:
    """What a shell gets that asks by `_RUNBOOK_COMPLETE=zsh_complete`; empty for what is no question."""
    shell, _, what = instruction.partition("_")
    if what != "complete" or shell not in ("bash", "zsh", "fish"):
        return ""
    words = _split(environ.get("COMP_WORDS", ""))[1:]
    asked = environ.get("COMP_CWORD", "")
    kept = ""
    if shell == "fish":  # gives the word itself
        before, word = (words[:-1] if asked and words[-1:] == [asked] else words), asked
    else:
        number = max(0, int(asked) - 1) if asked.isdigit() else len(words)
        before, word = words[:number], words[number] if number < len(words) else ""
    if shell == "bash":
        before, word, kept = _whole(before, word)
    lines = []
    for text, about in offers(before, word):
        text = text.removeprefix(kept)
        about = about or ("_" if shell == "zsh" else "")
        lines.append(f"plain\n{text}\n{about}" if shell == "zsh" else f"plain,{text}" + (f"\t{about}" if shell == "fish" and about else ""))
    return "\n".join(lines)


def _whole(before: list[str], word: str) -> tuple[list[str], str, str]:
    """The words as they were typed, and what bash keeps of the last one: it breaks words at `=` and `:`, which it gives as words."""
    joined: list[str] = []
    glue, kept = False, ""
    for number, text in enumerate([*before, word]):
        breaks = bool(text) and set(text) <= {"=", ":"}
        if (glue and text) or (breaks and number > 0):
            kept = joined[-1] + (text if breaks else "")
            joined[-1] += text
        else:
            kept = ""
            joined.append(text)
        glue = breaks
    return joined[:-1], joined[-1], kept


def offers(before: list[str], word: str) -> list[tuple[str, str]]:
    """What `word` may become behind the words before it, with a line about each."""
    command: dict[str, Any] = {"commands": json.loads(WORDS.read_text(encoding="utf-8")), "params": [_HELP]}
    top = ""
    given: dict[str, str] = {}
    waiting: dict[str, Any] | None = None
    arguments: list[dict[str, Any]] = []
    for text in before:
        if waiting is not None:
            given[waiting["name"]], waiting = text, None
        elif text.startswith("-") and len(text) > 1:
            waiting = _wanting(command, text)
            name, equals, value = text.partition("=")
            if equals and (one := _wanting(command, name)) is not None:
                given[one["name"]] = value
        elif text in command.get("commands", {}):
            command, top = command["commands"][text], top or text
            arguments = [one for one in command["params"] if one["argument"]]
        elif arguments:
            given.setdefault(arguments[0]["name"], text)
            arguments = arguments[1:] if arguments[0]["nargs"] == 1 else arguments
    if waiting is not None:
        return _values(waiting, top, given, word)
    option, equals, begun = word.partition("=")
    if word.startswith("--") and equals:
        one = _wanting(command, option)
        return [(f"{option}={text}", about) for text, about in _values(one, top, given, begun)] if one is not None else []
    if word.startswith("-"):
        return [(name, one["help"]) for one in command["params"] for name in one["opts"] if name.startswith(word)]
    names = [(name, one["help"]) for name, one in command.get("commands", {}).items() if name.startswith(word)]
    return names or (_values(arguments[0], top, given, word) if arguments else [])


_HELP = {"name": "help", "argument": False, "opts": ["-h", "--help", "--version"], "flag": True, "help": ""}


def _wanting(command: Mapping[str, Any], option: str) -> dict[str, Any] | None:
    """The option whose value comes next; None for a flag, for `--name=value` and for what is unknown."""
    return next((one for one in command["params"] if option in one["opts"] and not one["flag"]), None)


def _values(one: Mapping[str, Any], top: str, given: Given, word: str) -> list[tuple[str, str]]:
    find = COMPLETERS.get((top, one["name"])) or COMPLETERS.get(one["name"])
    found: Any = one["choices"] or (find(given, word) if find else ())
    return [(text, "") for text in list(dict.fromkeys(text for text in found if text.startswith(word)))[:MOST]]


def _split(line: str) -> list[str]:
    """The words of a line as a shell has them; a quote that is still open ends with the line."""
    for end in ("", "'", '"'):
        try:
            return shlex.split(line + end)
        except ValueError:
            continue
    return line.split()
