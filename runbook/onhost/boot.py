"""How our code gets onto a host that has none of it: a stub on the command line, everything else over stdin.

Only `STUB` is ever on argv, and it holds no word that a pattern could mean. It reads eight hex digits (a length) and that many
bytes of compressed source, this file, and runs it. This file reads two more such blocks, the sources of the package and which
module to start with what, and installs an importer for them; a module is compiled when it is imported.

It must parse on every Python 3, so that an old one can say that it is too old.
"""

import json
import os
import sys
import zlib

FLAGS = "-ISc"  # no user site, no PYTHON* variables, no site, nothing importable from the working directory
STUB = "import sys,zlib;f=sys.stdin.buffer;exec(zlib.decompress(f.read(int(f.read(8),16))))"
OLDEST = (3, 8)
PACKAGE = "rbhost"


def block(text):
    """A length-prefixed, compressed block as the stub and `start` read it."""
    body = zlib.compress(text.encode("utf-8"), 4)  # half the time of 6, for a twentieth more bytes
    return b"%08x" % len(body) + body


def payload(sources, entry, args):
    """What to write to the stdin of `python -ISc STUB`, so that `entry`'s `main(stream, args)` runs there. `args` is plain data."""
    return block(sources["boot"]) + block(json.dumps(sources)) + block(json.dumps({"entry": entry, "args": args}))


def own_sources():
    """The sources this very process runs, to start another process of the same code."""
    package = sys.modules[__package__] if __package__ else None
    held = getattr(package, "SOURCES", None)
    if held is not None:
        return held
    folder = os.path.dirname(os.path.abspath(__file__))
    names = [name[:-3] for name in sorted(os.listdir(folder)) if name.endswith(".py")]
    return {name: read_text(os.path.join(folder, name + ".py")) for name in names}


def read_text(path):
    """A source file."""
    with open(path, encoding="utf-8") as stream:
        return stream.read()


class Importer:
    """Finds and loads the package's modules from `sources`."""

    def __init__(self, sources):
        self.sources = sources

    def find_spec(self, fullname, path=None, target=None):
        """Part of the import protocol: ours or None."""
        top, _, name = fullname.partition(".")
        if top != PACKAGE or (name or "__init__") not in self.sources:
            return None
        kind = type(sys.__spec__)  # ModuleSpec, without an import inside of an import
        return kind(fullname, self, origin="<%s>" % fullname, is_package=not name)  # type: ignore[arg-type]

    def create_module(self, spec):
        """Part of the import protocol: the default module."""
        return None

    def exec_module(self, module):
        """Part of the import protocol: compile now, run."""
        exec(compile(self.get_source(module.__name__), module.__spec__.origin, "exec"), module.__dict__)

    def get_source(self, fullname):
        """Source lines for tracebacks."""
        return self.sources[fullname.partition(".")[2] or "__init__"]


def read_block(stream):
    """The plain data of the next block."""
    return json.loads(zlib.decompress(stream.read(int(stream.read(8), 16))).decode("utf-8"))


def start(stream):
    """Read the other blocks and run the entry module."""
    import importlib

    sources, given = read_block(stream), read_block(stream)
    if sys.version_info < OLDEST:
        sys.exit("python %d.%d is too old: %d.%d or later is needed" % (sys.version_info[:2] + OLDEST))
    sys.meta_path.insert(0, Importer(sources))
    importlib.import_module(PACKAGE).SOURCES = sources  # type: ignore[attr-defined]
    importlib.import_module(PACKAGE + "." + given["entry"]).main(stream, given["args"])


if __name__ == "__main__":
    start(sys.stdin.buffer)
