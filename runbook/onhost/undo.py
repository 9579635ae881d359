"""The operations patch, restore and undo_list: the file's work is in `patches`, the timer's in the run's keeper."""

from typing import Any, Dict, List, Tuple

from . import keeper_link, keeper_ops, patches, protect
from .runfolder import RunFolder


def patch(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Replace a file's bytes by `blob`. The keeper knows of the undo record before the file changes."""
    folder = RunFolder(ctx.state_dir, args["run"])
    protect.refuse_file(args["path"], ctx.protect)
    keeper_ops.ensure(folder)

    def announce() -> None:
        keeper_ops.ensure(folder)  # again: it may have died since

    where = (ctx.state_dir, args["run"], args["id"], args["path"])
    return patches.patch(*where, args["expect_sha256"], blob, float(args["undo_after_s"]), announce), b""


def restore(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[List[Dict[str, Any]], bytes]:
    """Undo patches of a run, newest first; `ids` null: all. `forget`: close the records of those that cannot be undone."""
    return patches.restore(ctx.state_dir, args["run"], args.get("ids"), bool(args.get("forget"))), b""


def undo_list(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[List[Dict[str, Any]], bytes]:
    """Open undo records of one run, or of all runs of this account, oldest first. Times are unix seconds."""
    found = []
    for record in patches.records(ctx.state_dir, args.get("run")):
        if record["state"] == "open":
            folder = RunFolder(ctx.state_dir, record["run"])
            keeper = {"keeper": keeper_link.living(folder) is not None, "renewed": folder.last_renewal()}
            found.append({**patches.view(record), **patches.look(record), **keeper, "patched": record["seq"] / 1e9})
    return found, b""


OPS = {"patch": patch, "restore": restore, "undo_list": undo_list}
