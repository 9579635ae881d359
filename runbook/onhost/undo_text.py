"""What people read about an undo record: how to restore by hand, and why a file was left alone."""

import os
import shlex
from typing import Any, Dict, List

HOW_TO = """\
{path}
was changed by runbook (run {run}, patch {id}). The bytes before the change lie beside this text, in `original`, those after it in
`patched`.

See which bytes are there now:

    sha256sum {quoted}
        {after}  the patched file: restore it as below
        {before}  the original: nothing to do
        anything else: somebody edited it since. What they want to keep, without the patch:
        diff3 -m {quoted} {patched} {original}

Restore it:

    cp {original} {temp}
    chmod {mode:o} {temp}
    chown {uid}:{gid} {temp}
    touch -d @{seconds} {temp}
    mv {temp} {quoted}
    rm -f {cache} {kept}

Then remove this folder.
"""


def how_to(record: Dict[str, Any], folder: str) -> str:
    """The text beside a record that lies in `folder`."""
    path, cache = record["path"], os.path.join(os.path.dirname(record["path"]), "__pycache__")
    stem = os.path.splitext(os.path.basename(path))[0]
    return HOW_TO.format(
        path=path,
        run=record["run"],
        id=record["id"],
        quoted=shlex.quote(path),
        after=record["sha256_after"],
        before=record["sha256_before"],
        original=shlex.quote(os.path.join(folder, "original")),
        patched=shlex.quote(os.path.join(folder, "patched")),
        kept=shlex.quote(record["kept"]) if record["kept"] else "",
        temp=shlex.quote(record["temp"]),
        mode=record["mode"],
        uid=record["uid"],
        gid=record["gid"],
        seconds="%d.%09d" % divmod(record["mtime_ns"], 10**9),
        cache=shlex.quote(os.path.join(cache, stem + ".")) + "*.pyc",
    )


def on_top(record: Dict[str, Any], all_records: List[Dict[str, Any]]) -> str:
    """The newest open patch of the same file that lies above this one; empty when there is none."""
    later = [
        other["id"]
        for other in all_records
        if other["path"] == record["path"] and other["state"] == "open" and other["seq"] > record["seq"]
    ]
    return later[-1] if later else ""


def conflict(record: Dict[str, Any], sha: str, all_records: List[Dict[str, Any]]) -> str:
    """Why a file that holds neither the patched nor the original bytes was left alone."""
    later = on_top(record, all_records)
    if later:
        return "patch `%s` lies on top of it: restore that first, or all" % later
    return "edited since: now %s, patched %s, original %s in %s" % (sha, record["sha256_after"], record["sha256_before"], record["folder"])


def unmounted(record: Dict[str, Any]) -> str:
    """Why a file that is not there is not taken for deleted."""
    return (
        "it is not there, nor is the disk that it was patched on: once that is mounted again, `runbook restore %s` gives it back; "
        "the original is kept in %s" % (record["run"], record["folder"])
    )


def without_folder(record: Dict[str, Any]) -> str:
    """Why a file whose folder is not there is not taken for removed."""
    return (
        "its folder %s is not there, and one that was moved carries the patch along: once it is back, `runbook restore %s` gives the file "
        "its bytes; if it was removed for good, `runbook restore %s --forget %s` closes the record; the original is kept in %s"
        % (os.path.dirname(record["path"]), record["run"], record["run"], shlex.quote(record["path"]), record["folder"])
    )
