"""Starting a command so that neither its script nor its input stands on any command line."""

import errno
import os
import shutil
import subprocess
from typing import Any, Dict, List, Optional

from . import procs
from .errors import OpError


def start(args: Dict[str, Any], stdin: bytes) -> "subprocess.Popen[bytes]":
    """A process in a session of its own, with both outputs on pipes. args: argv or shell, env, cwd, marker. Raises OpError."""
    env = procs.own_environ()
    env.update(args.get("env") or {})
    if args.get("marker"):
        env["RUNBOOK_RUN"] = args["marker"]
    cwd = checked_cwd(args.get("cwd") or "")
    argv = list(args.get("argv") or ())
    held: List[int] = []
    try:
        if args.get("shell"):
            shell = find_shell(env)
            held.append(memory_file(script_text(args["shell"], shell)))
            argv = [shell, "/dev/fd/%d" % held[0]]
        if not argv:
            raise OpError("bad_request", "there is neither argv nor a script to run")
        scripts = tuple(held)
        held.append(memory_file(stdin) if stdin else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        return subprocess.Popen(
            argv,
            stdin=held[-1],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=cwd,
            env=env,
            start_new_session=True,
            pass_fds=scripts,
        )
    except OSError as error:
        raise _start_error(error, argv, env.get("PATH") or os.defpath) from error
    except ValueError as error:  # a NUL byte in an argument or a name of the environment
        raise OpError("bad_request", "cannot start %r: %s" % (argv[:1], error)) from error
    finally:
        for fd in held:
            os.close(fd)


def checked_cwd(cwd: str) -> Optional[str]:
    """The folder to run in; None for our own. Raises OpError that names it."""
    if not cwd:
        return None
    path = os.path.expanduser(cwd)
    if not os.path.exists(path):
        raise OpError("not_found", "the working directory `%s` is not there" % cwd, "create it, or correct `cwd:`")
    if not os.path.isdir(path):
        raise OpError("bad_request", "the working directory `%s` is not a folder" % cwd, "correct `cwd:`")
    if not os.access(path, os.X_OK):
        raise OpError("permission", "the working directory `%s` may not be entered by this user" % cwd)
    return path


def find_shell(env: Dict[str, str]) -> str:
    """bash when there is one, else sh."""
    path = env.get("PATH") or os.defpath
    return shutil.which("bash", path=path) or shutil.which("sh", path=path) or "/bin/sh"


def script_text(text: str, shell: str) -> bytes:
    """The script with its strictness on the first line, so that line numbers in messages stay the author's."""
    strict = "set -eu; set -o pipefail; " if os.path.basename(shell) == "bash" else "set -eu; "
    return (strict + text + "\n").encode("utf-8", "surrogateescape")


def memory_file(data: bytes) -> int:
    """A descriptor to read these bytes from: no pipe to fill, no file that stays."""
    try:
        fd = os.memfd_create("input", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # a kernel before 3.17 or a libc before 2.27
        import tempfile

        with tempfile.TemporaryFile() as stream:
            fd = os.dup(stream.fileno())
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _start_error(error: OSError, argv: List[str], path: str) -> OpError:
    name = argv[0] if argv else ""
    if error.errno == errno.ENOENT:
        found = shutil.which(name, path=path)
        if found:
            return OpError("not_found", "`%s` is there, but the interpreter that its first line names is not" % found)
        return OpError("not_found", "there is no command `%s` on this host" % name, "it was looked for in PATH=%s" % path)
    if error.errno == errno.EACCES:
        return OpError("permission", "`%s` may not be executed by this user" % name, "look at its mode and at the mount's options")
    return OpError("failed", "cannot start `%s`: %s" % (name, error.strerror))
