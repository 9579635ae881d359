"""The user's own rules of what must be left alone on this host: processes that get no signal, files that are not written.

A rule about processes is a mapping of which all keys hold: user, title, cmdline (regular expressions, searched), port, pid_file. The
last two name a service: the process and all that it started count, else its workers could be ended one by one.
"""

import fnmatch
import os
import re
from typing import Any, Dict, List, Optional, Set

from . import procs
from .errors import OpError
from .listeners import find_owners, listening

Rule = Dict[str, Any]


class Rules:
    """The rules about processes, over one look at the process table."""

    def __init__(self, rules: List[Rule], table: Dict[int, procs.Stat]) -> None:
        self._rules = [rule for rule in rules or () if not rule.get("file")]
        self._services = [_service(rule, table) for rule in self._rules]

    def why(self, pid: int, user: str, title: str, argv: List[str]) -> Optional[str]:
        """The text of the first rule that protects this process."""
        for rule, service in zip(self._rules, self._services):  # noqa: B905 - Python 3.8 has no `strict`
            if service is not None and pid not in service:
                continue
            if rule.get("user") and rule["user"] != user:
                continue
            if rule.get("title") and not re.search(rule["title"], title):
                continue
            if rule.get("cmdline") and not re.search(rule["cmdline"], " ".join(argv)):
                continue
            return text_of(rule)
        return None


def text_of(rule: Rule) -> str:
    """A rule as it is told: `protect: user alice, title train (her training)`."""
    said = ", ".join("%s %s" % (key, rule[key]) for key in ("user", "title", "cmdline", "port", "pid_file", "file") if rule.get(key))
    return "protect: %s%s" % (said, " (%s)" % rule["why"] if rule.get("why") else "")


def _service(rule: Rule, table: Dict[int, procs.Stat]) -> Optional[Set[int]]:
    """pids of the service that a rule names; None when it names none. A pid file that cannot be read names nobody."""
    mains = None
    if rule.get("port"):
        owners = find_owners({found.inode for found in listening(int(rule["port"]))}, table)
        mains = {pid for found in owners.values() for pid in found}
    if rule.get("pid_file"):
        named = _pid_in(rule["pid_file"])
        mains = named if mains is None else mains & named
    if mains is None:
        return None
    return mains.union(*(procs.descendants(pid, table) for pid in mains))


def _pid_in(path: str) -> Set[int]:
    words = (procs.read_bytes(os.path.expanduser(path), 64) or b"").split()
    return {int(words[0])} if words and words[0].isdigit() else set()


def refuse_processes(targets: List[Any], rules: List[Rule]) -> None:
    """Raise OpError protected when one of these (with `pid` and `title`) is protected by a rule."""
    if not rules:
        return
    known = Rules(rules, procs.process_table())
    for target in targets:
        uid = (procs.uids(target.pid) or (0, 0))[1]
        why = known.why(target.pid, procs.user_name(uid), target.title, procs.split_cmdline(procs.cmdline(target.pid)))
        if why is not None and not target.is_gone():
            raise OpError("protected", "pid %d (%s) must be left alone: %s" % (target.pid, target.title, why), "nothing was signalled")


def refuse_file(path: str, rules: List[Rule]) -> None:
    """Raise OpError protected when this file, or where its links lead, is under a rule."""
    for rule in rules or ():
        glob = os.path.expanduser(rule.get("file") or "")
        if glob and any(_below(name, glob) for name in (os.path.abspath(os.path.expanduser(path)), os.path.realpath(path))):
            raise OpError(
                "protected", "%s must be left alone: %s" % (path, text_of(rule)), "nothing was written; change the rule, or patch a copy"
            )


def _below(path: str, glob: str) -> bool:
    """A folder protects what is in it; `*` takes slashes too."""
    return fnmatch.fnmatchcase(path, glob) or path.startswith(glob.rstrip("/") + "/")
