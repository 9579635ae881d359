"""Files and folders of a command line as files."""

from __future__ import annotations

import os
from collections.abc import Sequence

SUFFIXES = (".yaml", ".yml")


def yaml_files(names: Sequence[str]) -> list[str]:
    """Files as they are named; of a folder all YAML files in it and below, hidden folders left out."""
    found: list[str] = []
    for name in names:
        if not os.path.isdir(name):
            found.append(name)
            continue
        for folder, below, files in os.walk(name):
            below[:] = sorted(one for one in below if not one.startswith("."))
            found += [os.path.join(folder, file) for file in sorted(files) if file.endswith(SUFFIXES)]
    return list(dict.fromkeys(found))
