"""Runs inside the launch's own interpreter: which parameters does a model class expect?

It is fed to `python -` behind a line `ARGS = {...}`: {module, class, config, nonce}. The class is built on torch's `meta` device, which
gives shapes without memory, and no GPU is visible. It prints one line, NONCE{json}NONCE. Any Python from 3.6.
"""

import importlib
import json
import sys

MOST_BYTES = 8 << 30  # of memory: a class that names a real device would else fill the host


class Config(dict):
    """The configuration as classes read it: by key or by attribute."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError("the configuration has no `%s`" % name) from None


def main(args):
    """Print the answer: {parameters: [[name, dtype, shape], …]} or {problem}."""
    try:
        limit_memory()
        answer = {"parameters": build(args["module"], args["class"], args["config"])}
    except BaseException as error:  # a package may raise anything, even SystemExit, when it is imported
        answer = {"problem": "%s: %s" % (type(error).__name__, str(error)[:800])}
    answer["interpreter"] = sys.executable
    sys.stdout.write("\n%s%s%s\n" % (args["nonce"], json.dumps(answer), args["nonce"]))
    sys.stdout.flush()


def limit_memory():
    """So much data and no more; a limit that is lower already stays."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    known = [limit for limit in (soft, hard, MOST_BYTES) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(known), hard))


def build(module, name, config):
    """[[name, dtype, shape], …] of everything that a checkpoint could fill."""
    torch = importlib.import_module("torch")
    found = importlib.import_module(module)
    cls = getattr(found, name, None)
    if cls is None:
        there = sorted(key for key, value in vars(found).items() if isinstance(value, type) and value.__module__ == module)
        raise AttributeError("`%s` has no `%s`; its classes are: %s" % (module, name, ", ".join(there[:20]) or "none"))
    state = first_that_works(cls, configurations(config), torch).state_dict()
    return [[key, str(value.dtype).replace("torch.", ""), list(value.shape)] for key, value in state.items()]


def first_that_works(cls, configs, torch):
    """An instance on the meta device, from the first form of the configuration that its constructor takes."""
    problems = []
    for kind, config in configs:
        try:
            with torch.device("meta"):
                return cls(config)
        except Exception as error:  # whatever a constructor of somebody else raises is the answer
            problems.append("with %s: %s: %s" % (kind, type(error).__name__, str(error)[:300]))
    raise RuntimeError("; ".join(problems))


def configurations(config):
    """A mapping with attributes; and the engine's own kind of configuration where the module has brought it in."""
    yield "the configuration as a mapping", nested(config)
    transformers = sys.modules.get("transformers")
    if transformers is not None:
        yield "a PretrainedConfig", transformers.PretrainedConfig.from_dict(dict(config))


def nested(value):
    """The same with every mapping readable by attribute."""
    if isinstance(value, dict):
        return Config((key, nested(item)) for key, item in value.items())
    return [nested(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main(globals()["ARGS"])
