"""A checkpoint as an engine sees it: one file, or a folder of shards with or without an index, and whether they agree.

The index is a promise about the shards: every key it names must lie in the shard it names. Without one, names such as
`model-00002-of-00004` say how many shards there must be.
"""

import json
import os
import re
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import files
from .errors import OpError
from .safetensors_file import read_safetensors
from .tensors import DAMAGED, Fault, Listing, Tensor, TensorFileError, numbered
from .torch_file import ARCHIVE, read_torch

MOST_FILES = 5000
MOST_INDEX = 64 << 20
RECENT_S = 120.0
TORCH_ENDS = (".pt", ".pth", ".bin", ".ckpt")
_NOT_WEIGHTS = re.compile(r"(training_args|optimizer|scheduler|scaler|rng_state).*")
SHARD = re.compile(r"(.+)-(\d{1,6})-of-(\d{1,6})(\.\w+)")
_UNFINISHED = (".incomplete", ".part", ".tmp", ".aria2", ".crdownload", ".download")
_NAMED = 3  # names in one fault


class Checkpoint(NamedTuple):
    """`sizes`: bytes of each file that was read, by name. `folder` is where config.json would lie."""

    form: str
    folder: str
    sizes: Dict[str, int]
    tensors: List[Tensor]
    faults: List[Fault]


def read_checkpoint(path: str) -> Checkpoint:
    """List a file or a folder. Raises OpError when there is nothing at `path` or nothing that looks like weights."""
    if os.path.isdir(path):
        return _folder(path)
    listing, size = _file(path)
    return Checkpoint("file", os.path.dirname(path), {os.path.basename(path): size}, listing.tensors, listing.faults)


def _file(path: str) -> Tuple[Listing, int]:
    """One file, whatever is wrong with it said as a fault. Raises OpError when it cannot be opened."""
    fd = files.open_regular(path)
    name = os.path.basename(path)
    with os.fdopen(fd, "rb") as stream:
        info = os.fstat(fd)
        try:
            if path.endswith(TORCH_ENDS) or os.pread(fd, 4, 0) == ARCHIVE:
                listing = read_torch(stream, info.st_size, path)
            else:
                listing = read_safetensors(lambda offset, length: _read_at(fd, offset, length), info.st_size, path)
        except TensorFileError as error:
            listing = Listing([], [Fault(error.kind, name, error.text)])
        except OSError as error:
            listing = Listing([], [Fault("unreadable", name, "it cannot be read: %s" % error.strerror)])
    age_s = time.time() - info.st_mtime
    fresh = " (last written %.0f s ago)" % age_s if 0 <= age_s < RECENT_S else ""
    faults = [Fault(one.kind, name, one.text + (fresh if one.kind in DAMAGED else "")) for one in listing.faults]
    return Listing(listing.tensors, faults), info.st_size


def _read_at(fd: int, offset: int, length: int) -> bytes:
    parts = []
    while length > 0:
        part = os.pread(fd, length, offset)
        if not part:
            break
        parts.append(part)
        offset, length = offset + len(part), length - len(part)
    return b"".join(parts)


def _folder(path: str) -> Checkpoint:
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        raise OpError("permission", "list `%s`: %s" % (path, error.strerror)) from error
    shards = [name for name in names if name.endswith(".safetensors")]
    torch = [name for name in names if name.endswith(TORCH_ENDS) and not _NOT_WEIGHTS.fullmatch(name)]
    index_name = next((name for name in names if name.endswith(".safetensors.index.json" if shards else ".bin.index.json")), None)
    if index_name is None and not shards:
        index_name = next((name for name in names if name.endswith(".safetensors.index.json")), None)
    partial = [name for name in names if name.endswith(_UNFINISHED)][:_NAMED]
    faults = [Fault("unfinished", name, "it looks like a download that has not ended") for name in partial]
    if shards and torch:
        faults.append(Fault("ignored", torch[0], "%d files of torch lie beside the safetensors files and were not read" % len(torch)))
    shards = shards or torch
    if not shards and index_name is None:
        raise OpError("not_found", "`%s` has no weights: no *.safetensors, *.bin, *.pt or *.pth" % path, "name the file itself")
    if len(shards) > MOST_FILES:
        raise OpError("unsupported", "`%s` has %d files of weights" % (path, len(shards)), "name one of them")
    return _shards(path, shards, index_name, faults)


def _shards(path: str, shards: List[str], index_name: Optional[str], faults: List[Fault]) -> Checkpoint:
    tensors: List[Tensor] = []
    sizes: Dict[str, int] = {}
    for name in shards:
        try:
            listing, sizes[name] = _file(os.path.join(path, name))
        except OpError as error:
            kind = "missing" if error.code == "not_found" else "unreadable"
            listing = Listing([], [Fault(kind, name, error.message)])
        tensors += listing.tensors
        faults += listing.faults
    faults += _numbering(shards)
    faults += _twice(tensors)
    if index_name is not None:
        faults += _index(path, index_name, tensors, sizes, faults)
    return Checkpoint("folder", path, sizes, tensors, faults)


def _numbering(shards: List[str]) -> List[Fault]:
    """Shards that the names of the others promise."""
    families: Dict[Tuple[str, str, str], set] = {}
    for match in filter(None, map(SHARD.fullmatch, shards)):
        families.setdefault((match[1], match[3], match[4]), set()).add(int(match[2]))
    found = []
    for (stem, total, end), there in families.items():
        first = 0 if 0 in there else 1
        lost = [number for number in range(first, first + min(int(total), MOST_FILES)) if number not in there]
        if lost:
            shown = ", ".join("%s-%0*d-of-%s%s" % (stem, len(total), number, total, end) for number in lost[:_NAMED])
            found.append(Fault("missing", "", "%d of %s shards are not there: %s" % (len(lost), total, shown)))
    return found


def _twice(tensors: List[Tensor]) -> List[Fault]:
    first: Dict[str, str] = {}
    twice = []
    for one in tensors:
        if one.name in first and first[one.name] != one.file:
            twice.append((one.name, os.path.basename(first[one.name]), os.path.basename(one.file)))
        first.setdefault(one.name, one.file)
    return [Fault("twice", pair[2], "%d keys are in two files, as `%s` in %s and %s" % (len(twice), *pair)) for pair in twice[:1]]


def _index(path: str, index_name: str, tensors: List[Tensor], sizes: Dict[str, int], known: List[Fault]) -> List[Fault]:
    """Where the index and the shards differ. Keys of a shard that could not be read are not held against the index."""
    try:
        weight_map, promised = read_index(files.read_regular(os.path.join(path, index_name), MOST_INDEX))
    except OpError as error:
        return [Fault("unreadable", index_name, error.message)]
    except TensorFileError as error:
        return [Fault(error.kind, index_name, error.text)]
    found = []
    listed = set(weight_map.values())
    gone = sorted(listed - set(sizes))
    if gone:
        found.append(Fault("missing", index_name, "it names %d files that are not there: %s" % (len(gone), ", ".join(gone[:_NAMED]))))
    more = sorted(set(sizes) - listed)
    if more:
        text = "it does not name %s: engines that follow it load nothing from there"
        found.append(Fault("unlisted", index_name, text % ", ".join(more[:_NAMED])))
    broken = {one.file for one in known}
    real = {one.name: os.path.basename(one.file) for one in tensors}
    lost = [key for key, file in weight_map.items() if key not in real and file in sizes and file not in broken]
    if lost:
        found.append(Fault("index", index_name, "%d keys that it names are not in their shard: %s" % (len(lost), _some(lost))))
    moved = [key for key, file in weight_map.items() if key in real and real[key] != file and real[key] in listed]
    if moved:
        text = "%d keys lie in another shard than it says, as `%s` in %s, not %s"
        found.append(Fault("index", index_name, text % (len(moved), moved[0], real[moved[0]], weight_map[moved[0]])))
    silent = [key for key, file in real.items() if key not in weight_map and file in listed]
    if silent:
        found.append(Fault("index", index_name, "%d keys of its shards are not in it: %s" % (len(silent), _some(silent))))
    total = sum(one.size for one in tensors)
    if promised is not None and promised != total and not (broken or gone or lost or silent):
        found.append(Fault("unlisted", index_name, "it says %s bytes in all, the shards have %s" % (numbered(promised), numbered(total))))
    return found


def _some(names: List[str]) -> str:
    return ", ".join("`%s`" % name[:200] for name in names[:_NAMED]) + (", …" if len(names) > _NAMED else "")


def read_index(raw: bytes) -> Tuple[Dict[str, str], Optional[int]]:
    """(key to file, total bytes if it says so). Raises TensorFileError."""
    data = read_json(raw)
    weight_map = data.get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise TensorFileError("damaged", "it has no `weight_map` of keys to files")
    outside = next((file for file in weight_map.values() if "/" in file or file in ("", ".", "..")), None)
    if outside is not None:
        raise TensorFileError("damaged", "it names `%s`, which is no file of this folder" % outside[:200])
    metadata = data.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return weight_map, total if isinstance(total, int) else None


def read_json(raw: bytes) -> Dict[str, Any]:
    """A JSON mapping. Raises TensorFileError."""
    try:
        data = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise TensorFileError("damaged", "it is not JSON: %s" % str(error)[:200]) from error
    if not isinstance(data, dict):
        raise TensorFileError("damaged", "it is not a JSON mapping")
    return data
