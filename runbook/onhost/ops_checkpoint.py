"""Checkpoints: what the files hold, and what a model class expects. Nothing is loaded, no GPU is touched, nothing is written."""

import json
import os
import re
import time
import zlib
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import boot, files
from .checkpoint_files import Checkpoint, read_checkpoint, read_json
from .errors import OpError
from .modules import LADDER, command_of, read_answer
from .ops_run import run
from .tensor_stats import MOST_MAP, statistics, token_map
from .tensor_values import Values
from .tensors import Tensor, TensorFileError, elements, numbered

MOST_STATS = 200
MOST_CONFIG = 1 << 20
_MAP = re.compile(r"(.*[._])?(d2t|draft_to_target|draft_id_to_target_id|hot_token_ids?)")
_MASK = re.compile(r"(.*[._])?t2d")
_INTEGERS = ("int64", "int32", "int16")
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "", "ONEAPI_DEVICE_SELECTOR": "cpu:*"}
MOST_ANSWER = 16 << 20


def checkpoint(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Keys, shapes and types of a file or folder; statistics of the tensors that `tensors` (patterns) names, within `limit_s`.

    Answers {form, files, faults, count, bytes, config, config_problem, stats, skipped, maps}; blob: zlib of JSON [[name, dtype, shape], …].
    Raises OpError not_found, permission, unsupported.
    """
    path = os.path.expanduser(args["path"])
    deadline = time.monotonic() + float(args.get("limit_s", 60.0))

    def go_on() -> bool:
        return time.monotonic() < deadline and not ctx.cancelled.is_set()

    found = read_checkpoint(path)
    config, problem = _config(found)
    stats, skipped = _stats(found.tensors, list(args.get("tensors") or ()), go_on)
    data = {
        "form": found.form,
        "files": found.sizes,
        "faults": [fault._asdict() for fault in found.faults],
        "count": len(found.tensors),
        "bytes": sum(one.size for one in found.tensors),
        "config": config,
        "config_problem": problem,
        "stats": stats,
        "skipped": skipped,
        "maps": _maps(found.tensors, config, go_on),
    }
    listing = [[one.name, one.dtype, list(one.shape)] for one in found.tensors]
    return data, zlib.compress(json.dumps(listing).encode("utf-8", "surrogatepass"), 3)


def _config(found: Checkpoint) -> Tuple[Optional[Dict[str, Any]], str]:
    """(config.json beside the weights, why it could not be read); neither when there is none."""
    path = os.path.join(found.folder, "config.json")
    if not os.path.exists(path):
        return None, ""
    try:
        return read_json(files.read_regular(path, MOST_CONFIG)), ""
    except OpError as error:
        return None, error.message
    except TensorFileError as error:
        return None, "`%s`: %s" % (path, error.text)


def matcher(patterns: List[str]) -> Callable[[str], bool]:
    """Whether a name is meant by one of these; `*` stands for any text, `?` for one character."""
    parts = ["".join(".*" if char == "*" else "." if char == "?" else re.escape(char) for char in pattern) for pattern in patterns]
    whole = re.compile("|".join("(?:%s)" % part for part in parts) or "(?!)", re.DOTALL)
    return lambda name: whole.fullmatch(name) is not None


def _stats(tensors: List[Tensor], patterns: List[str], go_on: Callable[[], bool]) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """(statistics by key, why there are none by key or pattern)."""
    skipped = {one: "no key matches" for one in patterns if not any(map(matcher([one]), (tensor.name for tensor in tensors)))}
    meant = matcher(patterns)
    stats: Dict[str, Any] = {}
    for tensor in (one for one in tensors if meant(one.name)):
        if len(stats) >= MOST_STATS:
            skipped[tensor.name] = "more than %d tensors are asked for" % MOST_STATS
        elif not go_on():
            skipped[tensor.name] = "the time for statistics was over"
        else:
            try:
                stats[tensor.name] = statistics(tensor, go_on)
            except (TensorFileError, OSError) as error:
                skipped[tensor.name] = str(error)
    return stats, skipped


def _maps(tensors: List[Tensor], config: Optional[Dict[str, Any]], go_on: Callable[[], bool]) -> List[Dict[str, Any]]:
    """Every tensor that is named like a map from draft to target tokens, read both ways."""
    masks = [one for one in tensors if _MASK.fullmatch(one.name) and one.dtype == "bool" and len(one.shape) == 1]
    found = []
    for tensor in tensors:
        if not _MAP.fullmatch(tensor.name) or tensor.dtype not in _INTEGERS or len(tensor.shape) != 1 or not go_on():
            continue
        try:
            if elements(tensor.shape) > MOST_MAP:
                raise TensorFileError("unsupported", "it has more than %s elements" % numbered(MOST_MAP))
            mask = next((one for one in masks if elements(one.shape) <= 16 * MOST_MAP), None)
            found.append(token_map(tensor, _vocabulary(config, mask), _taken(mask)))
        except (TensorFileError, OSError) as error:
            found.append({"key": tensor.name, "reading": "unknown", "problem": str(error)})
    return found


def _vocabulary(config: Optional[Dict[str, Any]], mask: Optional[Tensor]) -> Optional[int]:
    """Size of the target's vocabulary: the mask's length, else what config.json says."""
    if mask is not None:
        return mask.shape[0]
    for place in (config or {}, (config or {}).get("text_config")):
        if isinstance(place, dict) and isinstance(place.get("vocab_size"), int):
            return int(place["vocab_size"])
    return None


def _taken(mask: Optional[Tensor]) -> Optional[List[int]]:
    """The ids that the mask marks."""
    if mask is None:
        return None
    with Values(mask) as values:
        return [begin + at for begin, portion in values.portions() for at, value in enumerate(portion) if value]


def parameters(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """The parameters that a class expects: built without memory (device `meta`) in the given interpreter, which imports its module.

    args: module, class, config (mapping), interpreter, prelude, cwd, env, limit_s. Answers {interpreter, count}; blob as of `checkpoint`.
    Raises OpError failed with what the interpreter said.
    """
    nonce = os.urandom(12).hex()
    question = {"module": args["module"], "class": args["class"], "config": args["config"], "nonce": nonce}
    script = "ARGS = %r\n%s" % (question, boot.own_sources()["meta_build"])
    env = dict(args.get("env") or {}, PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1", **_NO_GPU)
    argv = command_of(args.get("interpreter") or "", args.get("prelude") or "", dict(os.environ, **env))
    limits = {"limit_s": float(args.get("limit_s", 60.0)), "ladder": LADDER, "keep": MOST_ANSWER}
    done, output = run(ctx, dict(limits, argv=argv, env=env, cwd=args.get("cwd") or ""), script.encode("utf-8"))
    answer = read_answer(output[: done["stdout_len"]], nonce)
    name = "%s.%s" % (args["module"], args["class"])
    if answer is None:
        how = "no answer in time" if done["timed_out"] else "the interpreter ended with %s" % (done["signal"] or "exit %s" % done["exit"])
        said = output[done["stdout_len"] :][-400:].decode("utf-8", "replace").strip()
        raise OpError("failed", "`%s` could not be built: %s%s" % (name, how, ": " + said if said else ""))
    if "problem" in answer:
        raise OpError("failed", "`%s` could not be built on the meta device: %s" % (name, answer["problem"]))
    listing = json.dumps(answer["parameters"]).encode("utf-8")
    return {"interpreter": answer["interpreter"], "count": len(answer["parameters"])}, zlib.compress(listing, 3)


OPS = {"checkpoint": checkpoint, "parameters": parameters}
