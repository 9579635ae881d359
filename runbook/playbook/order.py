"""The order of keys in a playbook, as the reference lists them: a step's own keys, then its type, then a block's."""

from __future__ import annotations

from runbook.lang.yaml_order import Order
from runbook.playbook.keys import BLOCK, COMMON, TOP

ORDER = Order(TOP, COMMON, BLOCK, frozenset({"steps", *BLOCK}))
