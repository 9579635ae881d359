"""Do the standard library's own tests still pass when every function of a module carries an entry and an exit probe?

    python tests/benchmarks/patched_suites.py [MODULE=TEST …]

A copy of the module, patched, stands first on the path of an interpreter that runs CPython's test of it; the same is done with an
unpatched copy, and both must run the same number of tests and pass. It needs an interpreter that has the package `test`.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from runbook.probes.anchors import functions
from runbook.probes.spec import Probe
from runbook.probes.transform import Transformed, transform

TO_STDERR = b"os.write(2, line)"
"""Left out here: some tests compare what a child writes to stderr, and a probe's line there is no fault."""
PYTHON = Path(sys.base_prefix, "bin", "python3")
SUITES = {
    "base64": "test_base64",
    "bisect": "test_bisect",
    "cmd": "test_cmd",
    "colorsys": "test_colorsys",
    "configparser": "test_configparser",
    "contextlib": "test_contextlib",
    "copy": "test_copy",
    "csv": "test_csv",
    "dataclasses": "test_dataclasses",
    "difflib": "test_difflib",
    "fileinput": "test_fileinput",
    "fnmatch": "test_fnmatch",
    "fractions": "test_fractions",
    "functools": "test_functools",
    "getopt": "test_getopt",
    "gettext": "test_gettext",
    "glob": "test_glob",
    "graphlib": "test_graphlib",
    "heapq": "test_heapq",
    "html": "test_html",
    "ipaddress": "test_ipaddress",
    "json": "test_json",
    "linecache": "test_linecache",
    "mimetypes": "test_mimetypes",
    "netrc": "test_netrc",
    "optparse": "test_optparse",
    "pathlib": "test_pathlib",
    "plistlib": "test_plistlib",
    "pprint": "test_pprint",
    "queue": "test_queue",
    "sched": "test_sched",
    "shlex": "test_shlex",
    "statistics": "test_statistics",
    "string": "test_string",
    "textwrap": "test_textwrap",
    "tokenize": "test_tokenize",
    "weakref": "test_weakref",
    "zipfile": "test_zipfile",
}


def probes_of(data: bytes) -> list[Probe]:
    """Entry and exit of each function whose name is its own."""
    names = [name for name, _ in functions(ast.parse(data))]
    return [Probe(at=name, where=where) for name in names if names.count(name) == 1 for where in ("entry", "exit")]


def copy_of(module: str, folder: Path, side: Path | None) -> int:
    """Put a copy of the module or package into a folder, patched when there is a side file; answers the number of probes."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    origin = Path(spec.origin)
    source, target = (origin.parent, folder / module) if spec.submodule_search_locations else (origin, folder / origin.name)
    folder.mkdir()
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)
    return 0 if side is None else sum(patch(path, side) for path in folder.rglob("*.py"))


def patch(path: Path, side: Path) -> int:
    """Patch a file; answers the number of probes."""
    data = path.read_bytes()
    probes = probes_of(data)
    made = transform(data, probes, marker=f"suites/{path.name}", side_file=str(side), path=str(path), run="suites")
    assert isinstance(made, Transformed) and made.data.count(TO_STDERR) == 1, made
    path.write_bytes(made.data.replace(TO_STDERR, b"pass"))
    return len(probes)


def run(test: str, folder: Path) -> tuple[int, str, str]:
    """(tests that ran, last line, tail of the output) of one suite with that folder first on the path."""
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(PYTHON), "-m", "unittest", f"test.{test}"]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, errors="replace", timeout=600)
    lines = [line for line in done.stderr.splitlines() if not line.startswith('{"runbook"')]
    ran = re.search(r"Ran (\d+) test", done.stderr)
    return (
        int(ran[1]) if ran else 0,
        (lines or ["no output"])[-1],
        "\n".join(line for line in lines if re.match(r"(ERROR|FAIL):|\w+Error", line)),
    )


def suite(module: str, test: str) -> tuple[bool, str]:
    """Whether the patched copy passes as the plain one does, and the line of the table."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as root:
        side = Path(root, "side.jsonl")
        side.touch()
        copy_of(module, Path(root, "plain"), None)
        count = copy_of(module, Path(root, "patched"), side)
        plain, patched = run(test, Path(root, "plain")), run(test, Path(root, "patched"))
        hits = side.read_bytes().count(b'"kind": "hit"')
    passed = patched[:2] == plain[:2] and patched[0] > 0 and hits > 0
    line = f"{module:<14}{count:>6} probes {hits:>7} hits {patched[0]:>5} of {plain[0]:>5} tests  {time.monotonic() - began:5.1f} s"
    return passed, f"{'ok  ' if passed else 'FAIL'} {line}" + ("" if passed else f"  {plain[1]} / {patched[1]}\n{patched[2]}")


def main(given: Sequence[str]) -> int:
    """Print a table; answers how many suites failed, at most 1."""
    chosen = dict(pair.split("=") for pair in given) or SUITES
    failed, began = 0, time.monotonic()
    for module, test in chosen.items():
        passed, line = suite(module, test)
        failed += not passed
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - failed} of {len(chosen)} suites pass, {time.monotonic() - began:.0f} s\n")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
