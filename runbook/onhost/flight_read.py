"""Reading a dump of torch's flight recorder: the last collective of each process group, and where ranks differ. Pure.

The dump is a pickle of plain data; it is walked over and nothing in it is called. On gloo an entry's state stays "scheduled" also
when it is over: then `retired`, and the group's last completed number, say so.
"""

import json
from typing import Any, Dict, List, Optional, Tuple

from .tensors import TensorFileError
from .torch_pickle import read_pickle

MOST_RANKS_NAMED = 60  # characters of a group's list of ranks

Row = Dict[str, Any]


def load(data: bytes) -> Dict[str, Any]:
    """The dump as plain data. Raises ValueError for what is none, or cut."""
    try:
        found = json.loads(data.decode("utf-8")) if data[:1] == b"{" else read_pickle(data)
    except TensorFileError as error:
        raise ValueError("it is no flight recorder dump: %s" % error) from error
    if not isinstance(found, dict) or not isinstance(found.get("entries"), list):
        raise ValueError("it is no flight recorder dump: it has no entries")
    return found


def rows(dump: Dict[str, Any], rank: int) -> List[Row]:
    """One row a process group: {group, rank, sequence, operation, state}. Point-to-point operations are left out: they pair up."""
    latest: Dict[str, Tuple[int, Dict[str, Any]]] = {}
    for entry in dump["entries"]:
        number = entry.get("collective_seq_id")
        if isinstance(entry, dict) and isinstance(number, int) and not entry.get("is_p2p"):
            group = _group(entry, dump)
            if group not in latest or number >= latest[group][0]:
                latest[group] = (number, entry)
    return [
        {"group": group, "rank": rank, "sequence": number, "operation": _operation(entry), "state": _state(entry, number, dump)}
        for group, (number, entry) in latest.items()
    ]


def _name(entry: Dict[str, Any]) -> Tuple[str, str]:
    found = entry.get("process_group")
    pair = [str(part) for part in found] if isinstance(found, (list, tuple)) else [str(entry.get("pg_id", ""))]
    return pair[0], pair[1] if len(pair) > 1 else ""


def _group(entry: Dict[str, Any], dump: Dict[str, Any]) -> str:
    """Number, description and, where the dump has them, members: numbers alone can stand for different groups on different ranks."""
    name, text = _name(entry)
    config = dump.get("pg_config")
    own = config.get(name) if isinstance(config, dict) else None
    members = str(own.get("ranks", "")) if isinstance(own, dict) else ""
    return " ".join(part for part in (name, "" if text == "undefined" else text, members[:MOST_RANKS_NAMED]) if part)


def _operation(entry: Dict[str, Any]) -> str:
    sizes = entry.get("input_sizes")
    shape = " %s" % (sizes,) if sizes else ""
    return (str(entry.get("profiling_name", "")).rpartition(":")[2] + shape)[:120]


def _state(entry: Dict[str, Any], number: int, dump: Dict[str, Any]) -> str:
    status = dump.get("pg_status")
    own: Any = status.get(_name(entry)[0]) if isinstance(status, dict) else None
    done: Optional[Any] = own.get("last_completed_collective") if isinstance(own, dict) else None
    over = entry.get("state") == "completed" or entry.get("retired") is True or (isinstance(done, int) and done >= number)
    return "completed" if over else "started"


def divergence(found: List[Row]) -> List[str]:
    """One sentence a group whose ranks are not all at the same operation, lowest number first; empty when they agree."""
    told = []
    for group in dict.fromkeys(row["group"] for row in found):
        places: Dict[Tuple[int, str, str], List[int]] = {}
        for row in found:
            if row["group"] == group:
                places.setdefault((row["sequence"], row["operation"], row["state"]), []).append(row["rank"])
        if len(places) > 1:
            parts = ["rank %s: %s #%d %s" % (_ranks(ranks), at[1], at[0], at[2]) for at, ranks in sorted(places.items())]
            told.append("group %s: %s" % (group, "; ".join(parts)))
    return told


def _ranks(ranks: List[int]) -> str:
    return ", ".join(map(str, sorted(ranks)))
