"""Reading what NCCL's RAS service says, in its two forms: JSON (NCCL 2.28.7 and later) and text. Pure.

Counts are of operations that a rank has launched so far; they say nothing of whether one has ended. The text names ranks only
where they differ, so a communicator without a difference gives no rows there. Source: NCCL user guide, troubleshooting, RAS.
"""

import json
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

IN_PROGRESS = 7  # ncclInProgress: the rank's initialisation has not ended
MOST_ROWS = 4096
_SECTION = re.compile(r"#\d+-\d+ \(([0-9a-f]+)\) ([A-Z]+)")
_SUBJECT = re.compile(r"\s*Communicator ranks have different (?:collective operation counts|(\w+) operation counts|(status))")
_GROUP = re.compile(r"\s*(\d+) ranks have (?:launched up to operation (\d+)|(not launched any)|status (\w+))")
_RANK = re.compile(r"\s*Rank (\d+)(?: has (?:launched up to operation (\d+)|(not launched any operations)|status (\w+)))? -- ")
_MISSING = re.compile(r"\s*The missing ranks?: ([\d, ]+)")
_STATES = {"INIT": "initialising"}

Row = Dict[str, Any]


class Answer(NamedTuple):
    """Rows {group, rank, sequence, operation, state}; the pids that RAS names; how many communicators; a problem it tells of."""

    rows: List[Row]
    pids: List[int]
    communicators: int
    text: str


def body_of(raw: str) -> str:
    """What follows the replies to the commands before `verbose status`."""
    lines = raw.splitlines(True)
    while lines and (lines[0].strip() == "OK" or lines[0].startswith(("ERROR: ", "SERVER PROTOCOL"))):
        lines.pop(0)
    return "".join(lines)


def read(raw: str) -> Answer:
    """Either form. Raises ValueError when it is neither, or cut."""
    body = body_of(raw)
    if body.lstrip().startswith("{"):
        return read_json(json.loads(body))
    if "Communicators..." not in body:
        raise ValueError("it is no status of RAS: %r" % body[:60])
    return read_text(body)


def read_json(found: Dict[str, Any]) -> Answer:
    """All ranks of all communicators."""
    rows: List[Row] = []
    pids = []
    for comm in found["communicators"]:
        group = str(comm["hash"])
        for item in comm["ranks"]:
            counts = {name: int(count) for name, count in item["collective_counts"].items() if count}
            state = "initialising" if item["status"]["init_state"] == IN_PROGRESS else ""
            operation = ", ".join("%s %d" % pair for pair in sorted(counts.items()))
            rows.append(_row(group, item["rank"], sum(counts.values()), operation, state))
            pids.append(int(item["pid"]))
        for item in comm["missing_ranks"]:
            status = item["status"]
            state = "dead" if status["considered_dead"] else "unresponsive" if status["unresponsive"] else "empty"
            rows.append(_row(group, item["rank"], None, "", state))
            pids.append(int(item["pid"]))
    return Answer(rows[:MOST_ROWS], pids, len(found["communicators"]), "")


def _row(group: str, rank: int, sequence: Optional[int], operation: str, state: str) -> Row:
    return {"group": group, "rank": int(rank), "sequence": sequence, "operation": operation, "state": state}


def read_text(body: str) -> Answer:
    """Communicators whose ranks differ or are missing; the largest group, which RAS does not list, is filled in where it can be."""
    rows: Dict[Tuple[str, int], Row] = {}
    section: Optional[_Section] = None
    for line in body.splitlines():
        begins = _SECTION.match(line.strip())
        if begins:
            _close(section, rows)
            section = _Section(begins.group(1), begins.group(2))
        elif section is not None:
            section.take(line)
            if not line.strip():
                section.end_subject(rows)
    _close(section, rows)
    dead = "considered dead" in body
    if dead:
        for row in rows.values():
            if row["state"] == "unresponsive":
                row["state"] = "dead"
    pids = [int(pid) for pid in re.findall(r"managed by process (\d+)", body) + re.findall(r"Process (\d+) on node", body)]
    return Answer(list(rows.values())[:MOST_ROWS], pids, _table_count(body), _told(body))


def _close(section: "Optional[_Section]", rows: Dict[Tuple[str, int], Row]) -> None:
    if section is not None:
        section.end_subject(rows)


class _Section:
    """One `#x-y (hash) WORD` block: groups of ranks by count or status, and the ranks that are named of them."""

    def __init__(self, group: str, word: str) -> None:
        self.group, self.word = group, word
        self.operation, self.about_status = "", False
        self.groups: List[Tuple[int, Any, List[int]]] = []  # (size, value, named ranks)
        self.missing: List[int] = []

    def take(self, line: str) -> None:
        subject, group, rank, missing = (found.match(line) for found in (_SUBJECT, _GROUP, _RANK, _MISSING))
        if subject:
            self.operation, self.about_status = subject.group(1) or "", subject.group(2) is not None
        elif group:
            self.groups.append((int(group.group(1)), self._value(group.group(2), group.group(3), group.group(4)), []))
        elif missing:
            self.missing += [int(number) for number in re.findall(r"\d+", missing.group(1))]
        elif rank and self.word == "INCOMPLETE":
            self.missing.append(int(rank.group(1)))
        elif rank and (rank.group(2) or rank.group(3) or rank.group(4)):
            self.groups.append((1, self._value(rank.group(2), rank.group(3), rank.group(4)), [int(rank.group(1))]))
        elif rank and self.groups:
            self.groups[-1][2].append(int(rank.group(1)))

    def _value(self, count: Optional[str], none: Optional[str], status: Optional[str]) -> Any:
        return status if status else 0 if none else int(count or 0)

    def end_subject(self, rows: Dict[Tuple[str, int], Row]) -> None:
        """Turn what was read of one subject (a kind of operation, or the status) into rows."""
        for rank in self.missing:
            rows[self.group, rank] = _row(self.group, rank, None, "", "unresponsive")
        total = sum(size for size, _, _ in self.groups)
        named = {rank for _, _, ranks in self.groups for rank in ranks}
        unnamed = [index for index, (size, _, ranks) in enumerate(self.groups) if len(ranks) < size]
        rest = sorted(set(range(total + len(self.missing))) - named - set(self.missing))
        for index, (size, value, ranks) in enumerate(self.groups):
            filled = rest if unnamed == [index] and len(rest) == size else ranks
            for rank in filled:
                self._add(rows, rank, value)
        self.groups, self.missing = [], []

    def _add(self, rows: Dict[Tuple[str, int], Row], rank: int, value: Any) -> None:
        row = rows.setdefault((self.group, rank), _row(self.group, rank, None, "", ""))
        if self.about_status:
            row["state"] = _STATES.get(str(value), row["state"])
        else:
            row["sequence"] = (row["sequence"] or 0) + int(value)
            row["operation"] = ", ".join(filter(None, [row["operation"], "%s %d" % (self.operation or "all", value)]))


def _table_count(body: str) -> int:
    """Sum of the second column of the communicators' table."""
    table = body[body.index("Communicators...") :].split("\nErrors\n", 1)[0]
    return sum(int(line.split()[1]) for line in table.splitlines() if re.match(r"\s*\d+\s+\d+\s+\d+\s+[\d-]+\s+\d+\s+\d+\s+\S", line))


def _told(body: str) -> str:
    """Its errors and warnings in short, for people."""
    words = [
        word for word in ("INCOMPLETE", "DEAD", "ERROR", "MISMATCH", "TIMEOUT") if re.search(r"(?m)^\s*(?:#\S+ \(\w+\) )?%s\b" % word, body)
    ]
    return ", ".join(words)
