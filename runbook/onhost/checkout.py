"""The git checkout that a file belongs to. git is asked with a bound, and never to write or to run hooks."""

import os
import subprocess
from typing import Any, Dict, List, Optional

from . import procs

LIMIT_S = 5.0


def checkout_of(path: str) -> Dict[str, Any]:
    """{root, revision, dirty} of a tracked file; {} outside of a checkout; {root, blind} when git could not say."""
    root = root_of(path)
    if root is None:
        return {}
    tracked = _git(root, ["ls-files", "--error-unmatch", "--", os.path.realpath(path)])
    if isinstance(tracked, str):
        return {"root": root, "blind": tracked}
    if tracked.returncode != 0:
        unknown = b"did not match any file" in tracked.stderr
        return {} if unknown else {"root": root, "blind": "git: " + tracked.stderr.decode("utf-8", "replace").strip()[-300:]}
    revision, status = _git(root, ["rev-parse", "HEAD"]), _git(root, ["status", "--porcelain", "--untracked-files=no"])
    if isinstance(revision, str) or revision.returncode != 0:
        return {"root": root, "blind": revision if isinstance(revision, str) else "no commit yet"}
    found = {"root": root, "revision": revision.stdout.decode("ascii", "replace").strip()}
    if isinstance(status, str) or status.returncode != 0:
        return {**found, "blind": status if isinstance(status, str) else "git status failed"}
    return {**found, "dirty": bool(status.stdout.strip())}


def root_of(path: str) -> Optional[str]:
    """The nearest folder above that has a .git (a file in work trees)."""
    folder = os.path.dirname(os.path.realpath(path))
    while True:
        if os.path.exists(os.path.join(folder, ".git")):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _git(root: str, words: List[str]) -> Any:
    """The finished process, or a sentence about why there is none."""
    env = {**procs.own_environ(), "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        env.pop(name, None)
    argv = ["git", "-C", root, "-c", "core.fsmonitor=false", *words]
    try:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_S, env=env)
    except FileNotFoundError:
        return "there is no git on this host"
    except subprocess.TimeoutExpired:
        return "git gave no answer in %.0f s" % LIMIT_S
    except OSError as error:
        return "git: %s" % error.strerror
