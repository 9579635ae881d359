"""Where the launch's interpreter would import a module from, asked of that interpreter with its prelude, folder and environment."""

import json
import os
import re
from typing import Any, Dict, List, Optional, Tuple

from . import boot
from .checkout import checkout_of
from .errors import OpError
from .ops_run import run
from .spawn import find_shell

WALK_S = 20.0
LOAD_S = 30.0
LADDER = ["TERM 1s", "KILL 2s"]
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_PYTHON = 'if command -v python >/dev/null 2>&1; then set -- python -; else set -- python3 -; fi\nexec "$@" <&3 3<&-'


def find_module(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """{path, package_root, interpreter, others, git}. Raises OpError not_found, unsupported (no source file) or failed."""
    module = args["module"]
    if not _MODULE.fullmatch(module):
        raise OpError("bad_request", "`%s` is not a module's name" % module, "write it dotted, as in `package.part`")
    answer = _ask(ctx, args, False)
    if answer.get("problem") == "not_found":
        first = answer
        answer = _ask(ctx, args, True)
        if answer.get("problem") == "not_found":
            answer["text"] = "%s (then, with its parents imported: %s)" % (first["text"], answer["text"])
    if "problem" in answer:
        hint = (
            "check the name, `cwd`, `prelude` and `env` of the launch"
            if answer["problem"] == "not_found"
            else "name a source file with `file:`"
        )
        said = "%s would not import `%s` from a source file: %s" % (answer["interpreter"], module, answer["text"])
        raise OpError(answer["problem"], said, hint, {"interpreter": answer["interpreter"]})
    answer["git"] = checkout_of(answer["path"])
    return answer, b""


OPS = {"find_module": find_module}


def command_of(interpreter: str, prelude: str, env: Dict[str, str]) -> List[str]:
    """What to run so that it reads the script from stdin, which the prelude must not eat."""
    if interpreter and not prelude:
        return [interpreter, "-"]
    shell = find_shell(env)
    start = 'exec "$@" <&3 3<&-' if interpreter else _PYTHON
    text = "exec 3<&0 </dev/null\n%s\n%s" % (prelude, start)
    return [shell, "-c", text, shell] + ([interpreter, "-"] if interpreter else [])


def _ask(ctx: Any, args: Dict[str, Any], load: bool) -> Dict[str, Any]:
    nonce = os.urandom(12).hex()
    question = {"module": args["module"], "nonce": nonce, "load": load}
    script = "ARGS = %r\n%s" % (question, boot.own_sources()["module_walk"])
    env = dict(args.get("env") or {}, PYTHONDONTWRITEBYTECODE="1")
    if load:
        env["CUDA_VISIBLE_DEVICES"] = ""  # an import must not touch a GPU that somebody else measures
    argv = command_of(args.get("interpreter") or "", args.get("prelude") or "", dict(os.environ, **env))
    request = {"argv": argv, "env": env, "cwd": args.get("cwd") or "", "limit_s": LOAD_S if load else WALK_S, "ladder": LADDER}
    done, output = run(ctx, request, script.encode("utf-8"))
    answer = read_answer(output[: done["stdout_len"]], nonce)
    if answer is None:
        how = "no answer in time" if done["timed_out"] else "it ended with %s" % (done["signal"] or "exit %s" % done["exit"])
        said = output[done["stdout_len"] :][-400:].decode("utf-8", "replace").strip()
        name = args.get("interpreter") or "python"
        raise OpError(
            "failed", "`%s` could not be asked for `%s`: %s: %s" % (name, args["module"], how, said), "is it a Python interpreter?"
        )
    return answer


def read_answer(output: bytes, nonce: str) -> Optional[Dict[str, Any]]:
    """The answer between the last two marks, whatever else the interpreter's start-up printed."""
    parts = output.rsplit(nonce.encode("ascii"), 2)
    return json.loads(parts[1].decode("utf-8")) if len(parts) == 3 else None
