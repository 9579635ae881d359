"""Runs inside the launch's own interpreter: where would it import a module from, without importing its parents?

It is fed to `python -` behind a line `ARGS = {...}`: {module, nonce, load}. The walk asks the same finders as an import would, one
name at a time; `load` imports the parents instead, for packages that only build their path then. It prints one line,
NONCE{json}NONCE. Any Python from 3.6.
"""

import json
import os
import sys

MOST_ENTRIES = 500


def main(args):
    """Print the answer: {path, package_root, interpreter, others} or {problem, text}."""
    try:
        answer = load(args["module"]) if args["load"] else walk(args["module"])
    except BaseException as error:  # a package may raise anything, even SystemExit, when it is imported
        answer = {"problem": "not_found", "text": "%s: %s" % (type(error).__name__, error)}
    answer["interpreter"] = sys.executable
    sys.stdout.write("\n%s%s%s\n" % (args["nonce"], json.dumps(answer), args["nonce"]))
    sys.stdout.flush()


def walk(module):
    """Find it along sys.path by asking finders only."""
    entries = search_path()
    specs = descend(module, entries, True)
    if isinstance(specs, str):
        return {"problem": "not_found", "text": specs}
    answer = describe(specs[-1], root_of(specs[0]))
    if "path" in answer:
        copies = [describe(found[-1], "") for found in (descend(module, [entry], False) for entry in entries) if not isinstance(found, str)]
        paths = [copy["path"] for copy in copies if "path" in copy]
        here = os.path.realpath(answer["path"])
        answer["others"] = [path for at, path in enumerate(paths) if os.path.realpath(path) != here and path not in paths[:at]]
    return answer


def search_path():
    """sys.path as folders; the empty entry is the working directory."""
    return [entry or os.getcwd() for entry in sys.path if isinstance(entry, str)][:MOST_ENTRIES]


def descend(module, entries, finders):
    """Specs from the top package down to the module, or a sentence about the name that is not there."""
    parts, specs, path = module.split("."), [], entries
    for at in range(len(parts)):
        name = ".".join(parts[: at + 1])
        spec = find(name, path, finders, at == 0)
        if spec is None:
            return "`%s` has no `%s`" % (".".join(parts[:at]), parts[at]) if at else "no `%s` on sys.path" % name
        specs.append(spec)
        path = [] if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
    return specs


def find(name, path, finders, top):
    """The spec that an import of `name` would use, given its parent's path; None when there is none."""
    from importlib.machinery import PathFinder

    for finder in sys.meta_path if finders else [PathFinder]:
        if finder is PathFinder:
            spec = find_on(name, path)
        elif hasattr(finder, "find_spec"):
            spec = finder.find_spec(name, None if top else path)
        else:
            spec = None
        if spec is not None:
            return spec
    return None


def find_on(name, path):
    """As PathFinder, whose namespace packages would want their parent to be imported."""
    import pkgutil
    from importlib.machinery import ModuleSpec

    portions = []
    for entry in path:
        finder = pkgutil.get_importer(entry)
        if finder is None or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec(name)
        if spec is None:
            continue
        if spec.loader is not None:
            return spec
        portions.extend(spec.submodule_search_locations or [])
    if not portions:
        return None
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = portions
    return spec


def root_of(spec):
    """Folder of the top package; of a lone module, the folder it lies in."""
    locations = list(spec.submodule_search_locations or [])
    return locations[0] if locations else os.path.dirname(spec.origin or "")


def describe(spec, root):
    """{path, package_root} of a source file; else what it is instead."""
    origin = spec.origin
    if spec.loader is None or origin == "namespace":
        return {"problem": "unsupported", "text": "`%s` is a namespace package: it has no file" % spec.name}
    if origin in ("built-in", "frozen"):
        return {"problem": "unsupported", "text": "`%s` is %s: it has no source file" % (spec.name, origin)}
    if not origin or not os.path.isfile(origin):
        return {"problem": "unsupported", "text": "`%s` comes from %s, which is no plain file (an archive?)" % (spec.name, origin)}
    if not origin.endswith(".py"):
        return {"problem": "unsupported", "text": "`%s` is compiled: %s" % (spec.name, origin)}
    return {"path": os.path.abspath(origin), "package_root": os.path.abspath(root) if root else "", "others": []}


def load(module):
    """The bounded fallback: let the parents be imported, then ask."""
    import importlib.util

    spec = importlib.util.find_spec(module)
    if spec is None:
        return {"problem": "not_found", "text": "`%s` is not there, even with its parents imported" % module}
    top = sys.modules.get(module.split(".")[0])
    answer = describe(spec, root_of(top.__spec__ if top is not None and top.__spec__ else spec))
    answer["imported_parents"] = True
    return answer


if __name__ == "__main__":
    main(globals()["ARGS"])
