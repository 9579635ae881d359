"""The probe transform on real source: does every result compile, and is nothing changed but by insertion?

    python tests/benchmarks/transform_corpus.py [--cache DIR] [--functions 20000] [--seed 1] [--parts sample,sglang,anchor]

Whole files are drawn by seed from the standard library, the installed torch and a transformers wheel until they hold the wanted
number of functions; of SGLang's `models/` every function of nine releases is taken. Wheels are downloaded once, without their
dependencies, and only read. Each function gets three probes at once: entry, exit, and before or after a statement that it has once.

A result counts when it compiles, when its tree without our nodes is the original's, and when the original text is what is left once
our texts are taken out, but for blanks and line ends (checked here without the transform's own code).
"""

from __future__ import annotations

import argparse
import ast
import collections
import gc
import hashlib
import multiprocessing
import random
import re
import resource
import subprocess
import sys
import sysconfig
import time
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from runbook.model.diagnostic import Diagnostic
from runbook.probes.anchors import Index, functions
from runbook.probes.spec import Probe
from runbook.probes.transform import Transformed, transform
from tests.support.insertions import fault

SGLANG = "0.4.6 0.4.10.post2 0.5.2 0.5.4 0.5.6 0.5.9 0.5.12 0.5.18 0.5.23".split()
TRANSFORMERS = "5.19.0"
ANCHOR = "hidden_states = forward_batch.spec_info.hidden_states"
FOUNDING = {"llama_eagle3.py": "LlamaModel.forward", "kimi_k25_eagle3.py": "Eagle3MLAModel.forward"}
MARKER = "corpus/taps/1"
_ENDS = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def put(data: bytes, probes: list[Probe], path: str) -> Transformed | list[Diagnostic]:
    """The transform under test."""
    return transform(data, probes, marker=MARKER, side_file="/nowhere", path=path, run="corpus")


def three_probes(tree: ast.Module, data: bytes, path: str, chance: random.Random) -> list[list[Probe]]:
    """For each function: entry, exit, and a statement of it that is there once."""
    index, lines = Index(tree, path), data.splitlines()
    found = []
    for name, function in functions(tree):
        if any(ast.unparse(mark).endswith("overload") for mark in function.decorator_list):
            continue  # a type for checkers: the function itself follows
        probes = [Probe(at=name, where="entry"), Probe(at=name, where="exit")]
        rows = index.statements(function)
        counts = collections.Counter(text for text, _ in rows)
        once = [(text, node) for text, node in rows if counts[text] == 1 and lines[node.lineno - 1].lstrip()[:4] != b"elif"]
        if once:
            text, node = chance.choice(once)
            side = "before" if isinstance(node, _ENDS) or chance.random() < 0.5 else "after"
            probes.append(Probe(**{"at": name, side: text}))
        found.append(probes)
    return found


def one_file(job: tuple[str, bytes, int]) -> collections.Counter[str]:
    """Counts of functions, probes, refusals by code, and faults with their place."""
    path, data, seed = job
    told: collections.Counter[str] = collections.Counter()
    warnings.simplefilter("ignore")
    gc.set_threshold(500_000, 50, 1000)
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError):
        told["files that do not parse"] += 1
        return told
    triples = three_probes(tree, data, path, random.Random(f"{seed}{path}"))
    told["functions"] = len(triples)
    probes = [probe for triple in triples for probe in triple]
    result = put(data, probes, path)
    if not isinstance(result, Transformed):
        probes, refused = fitting(data, probes, path)
        told.update(refused)
        result = put(data, probes, path)
    if not isinstance(result, Transformed):
        told[f"FAULT {path}: {result[0].code} {result[0].summary[:80]}"] += 1
        return told
    told["files"] += 1
    for probe in probes:
        told[f"probes: {probe.where or 'statement'}"] += 1
    wrong = fault(data, result.data, MARKER)
    told[f"FAULT {path}: {wrong}"] += bool(wrong)
    return told


def fitting(data: bytes, probes: list[Probe], path: str) -> tuple[list[Probe], collections.Counter[str]]:
    """The probes that are not refused one by one, and how many were, by code."""
    kept, refused = [], collections.Counter()
    index = Index(ast.parse(data), path)
    places = [index.find(probe.at, probe.after or probe.before, side_of(probe)) for probe in probes]
    first = [probe for probe, place in zip(probes, places, strict=True) if not isinstance(place, Diagnostic)]
    result = put(data, first, path)
    crowded = {problem.span.line for problem in result if problem.span} if isinstance(result, list) else set()
    for probe, place in zip(probes, places, strict=True):
        if isinstance(place, Diagnostic):
            refused[f"refused: {place.code}"] += 1
        elif side_of(probe) in ("before", "after") and place.statement.lineno in crowded:
            refused["refused: no-place"] += 1
        else:
            kept.append(probe)
    return kept, refused


def side_of(probe: Probe) -> str:
    """As the transform calls it."""
    return "after" if probe.after else "before" if probe.before else probe.where or "entry"


def python_files(folder: Path, *without: str) -> Iterator[tuple[str, bytes]]:
    """Sources below a folder, in a fixed order."""
    for path in sorted(folder.rglob("*.py")):
        if not set(without) & set(path.relative_to(folder).parts):
            yield str(path), path.read_bytes()


def wheel_files(wheel: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """Sources of a wheel whose name matches."""
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if re.search(pattern, name):
                yield f"{wheel.name}/{name}", archive.read(name)


def download(name: str, version: str, cache: Path) -> Path:
    """The wheel of a release, once. Raises RuntimeError when the index has none."""
    found = sorted(cache.glob(f"{name}-{version}-*.whl"))
    if not found:
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(cache)]
        subprocess.run([*command, f"{name}=={version}"], check=False, capture_output=True, timeout=300)
        found = sorted(cache.glob(f"{name}-{version}-*.whl"))
    if not found:
        raise RuntimeError(f"no wheel of {name} {version}")
    return found[0]


def sources(cache: Path) -> list[tuple[str, bytes]]:
    """The standard library, torch, transformers."""
    library = Path(sysconfig.get_paths()["stdlib"])
    found = list(python_files(library, "site-packages", "test", "tests", "idle_test", "lib2to3"))
    found += python_files(Path(sysconfig.get_paths()["purelib"]) / "torch")
    return found + list(wheel_files(download("transformers", TRANSFORMERS, cache), r"\.py$"))


def drawn(files: list[tuple[str, bytes]], wanted: int, seed: int) -> list[tuple[str, bytes]]:
    """Whole files by seed, until they hold so many functions."""
    files = list(files)
    random.Random(seed).shuffle(files)
    taken, count = [], 0
    for path, data in files:
        if count >= wanted:
            break
        taken.append((path, data))
        count += len(re.findall(rb"^[ \t]*(?:async +)?def ", data, re.M))
    return taken


def measure(title: str, files: Iterable[tuple[str, bytes]], seed: int, workers: int) -> collections.Counter[str]:
    """Transform these files and print what came of it; the same bytes are done once."""
    began, cpu = time.monotonic(), cpu_seconds()
    files = list(files)
    once = {hashlib.sha256(data).digest(): (path, data, seed) for path, data in files}
    with multiprocessing.Pool(workers) as pool:
        told = sum(pool.imap_unordered(one_file, once.values(), chunksize=4), collections.Counter())
        pool.close()
        pool.join()
    faults = {key: told.pop(key) for key in list(told) if key.startswith("FAULT")}
    say(f"{title}: {len(files)} files, {len(once)} different, {sum(len(data) for _, data, _ in once.values()) / 1e6:.1f} MB")
    for key in sorted(told):
        say(f"    {key:<28}{told[key]:>8}")
    say(f"    {'faults':<28}{sum(faults.values()):>8}    {time.monotonic() - began:.1f} s, {cpu_seconds() - cpu:.1f} s of CPU")
    for wrong in sorted(key for key, count in faults.items() if count)[:20]:
        say(f"    {wrong}")
    return collections.Counter({"functions": told["functions"], "faults": sum(faults.values())})


def cpu_seconds() -> float:
    """Of the workers that have ended: on a shared machine the wall clock says little."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def founding(cache: Path) -> int:
    """Print where the founding story's anchor is in each release; answers how many files lack it."""
    missing = 0
    for version in SGLANG:
        files = dict(wheel_files(download("sglang", version, cache), r"srt/models/(llama|kimi_k25)_eagle3\.py$"))
        for path, data in files.items():
            at = FOUNDING[path.rsplit("/", 1)[-1]]
            result = put(data, [Probe(at=at, after=ANCHOR, show={"hidden": "hidden_states", "embeds": "embeds"})], path)
            missing += not isinstance(result, Transformed)
            where = f"line {result.placed[0].line}" if isinstance(result, Transformed) else result[0].summary
            say(f"    {version:<12} {path.rsplit('/', 1)[-1]:<22} {at:<24} {where}")
    return missing


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Print a table; answers 1 when there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=Path(".cache/corpus"))
    parser.add_argument("--functions", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--parts", default="sample,sglang,anchor")
    given = parser.parse_args()
    parts, began, faults = given.parts.split(","), time.monotonic(), 0
    if "sample" in parts:
        files = drawn(sources(given.cache), given.functions, given.seed)
        faults += measure(f"seed {given.seed}", files, given.seed, given.workers)["faults"]
    if "sglang" in parts:
        wheels = [download("sglang", version, given.cache) for version in SGLANG]
        models = [row for wheel in wheels for row in wheel_files(wheel, r"srt/models/.*\.py$")]
        faults += measure("sglang models", models, given.seed, given.workers)["faults"]
    if "anchor" in parts:
        say("founding anchor:")
        faults += founding(given.cache)
    say(f"faults: {faults}; {time.monotonic() - began:.0f} s in all")
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main())
