"""What the controller has of earlier looks, so that only what changed since is sent."""

import json
import threading
import zlib
from collections import OrderedDict
from typing import Any, Dict, Tuple

from . import changes

MOST_CHAINS = 16


class Sent:
    """The last look of each chain of looks at one thing. A controller that has another one, or none, gets the whole."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: "OrderedDict[str, Tuple[int, Dict[str, Any]]]" = OrderedDict()

    def answer(self, chain: str, has: int, look: Dict[str, Any]) -> Tuple[Dict[str, Any], bytes]:
        """{number} and the look, or {number, since} and what changed where the controller has look number `has`: zlib of JSON."""
        with self._lock:
            number, before = self._last.pop(chain, (0, {}))
            self._last[chain] = (number + 1, look)
            while len(self._last) > MOST_CHAINS:
                self._last.popitem(last=False)
        if not number or has != number:
            return {"number": number + 1}, _packed(look)
        return {"number": number + 1, "since": number}, _packed(changes.between(before, look))


def _packed(data: Any) -> bytes:
    return zlib.compress(json.dumps(data, separators=(",", ":")).encode("utf-8", "surrogatepass"), 1)
