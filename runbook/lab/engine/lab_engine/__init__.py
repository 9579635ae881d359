"""A small, real inference server on torch: HTTP front, rank processes, speculative decoding with an EAGLE-3 draft.

Behaves to the outside as SGLang does (log lines, health contract, process titles), so that a playbook tried here runs there.
"""

import pathlib

__version__ = "0.5.23+lab"
HOME = pathlib.Path(__file__).resolve().parents[1]
"""The folder that holds this package: the lab's home, with `models/` and `gpus/` beside it."""
